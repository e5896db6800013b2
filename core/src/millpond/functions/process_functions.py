"""Functions without keys, with two keyed inputs, and with broadcast state. Names are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic

import attrs
from typing_extensions import TypeVar

from millpond.backend.keyed_states import StatesOfKeys
from millpond.backend.operator_state import BroadcastState, OperatorStateBackend
from millpond.functions.functions import (
    Context,
    KeyedFunction,
    KeyedProcessFunction,
    OperatorFunction,
    ProcessContext,
    required_event_time,
)
from millpond.functions.timer_service import TimerService
from millpond.state import MapStateDescriptor, State, StateDescriptor

IN = TypeVar("IN", default=Any)
BROADCAST = TypeVar("BROADCAST", default=Any)
OUT = TypeVar("OUT", default=Any)


class ProcessFunction(OperatorFunction[OUT], Generic[IN, OUT]):
    """A function over rows without keys, dealt to the subtasks.

    It has neither keyed state nor timers. What must last belongs into operator state, by
    ``CheckpointedFunction`` or ``ListCheckpointed``. For type checkers it may be given the types
    of the rows and of what it yields.
    """

    @abstractmethod
    def process_element(self, row: IN, context: ProcessContext) -> Iterable[OUT] | None:
        """Handle a row; yield rows, or return a list of rows."""


class BroadcastProcessFunction(ProcessFunction[IN, OUT], Generic[IN, BROADCAST, OUT]):
    """A function over rows without keys, beside which rows of another stream reach every subtask.

    In ``process_element``, ``context.get_broadcast_state(descriptor)`` gives the map to read. On
    Spark a micro-batch's broadcast rows come before its other rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; what is yielded comes out once for every subtask."""


K = TypeVar("K", default=Any)
IN1 = TypeVar("IN1", default=Any)
IN2 = TypeVar("IN2", default=Any)

INPUTS = ("process_element1", "process_element2")
"""The methods for the rows of the first input and of the second."""


class KeyedCoProcessFunction(KeyedFunction[K, OUT], Generic[K, IN1, IN2, OUT]):
    """A function over two inputs with the same keys: rows of both see one keyed state.

    For type checkers it may be given the types of the key, of the rows of both inputs, and of what
    it yields, in Flink's order.
    """

    @abstractmethod
    def process_element1(self, row: IN1, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the first input, with its key current; yield, or return a list."""

    @abstractmethod
    def process_element2(self, row: IN2, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the second input, with its key current; yield, or return a list."""


V = TypeVar("V", default=Any)
S = TypeVar("S", bound=State, default=Any)


@attrs.frozen
class BroadcastContext:
    """What ``process_broadcast_element`` gets.

    Attributes:
        timestamp: the row's event time in ms, where it has one.
    """

    _backend: StatesOfKeys
    _operator_state: OperatorStateBackend
    _timers: TimerService
    timestamp: int | None

    @property
    def event_time(self) -> int:
        """The ``timestamp`` in ms; NoEventTimeError if the row has none."""
        return required_event_time(self.timestamp)

    def current_watermark(self) -> int:
        """The watermark in ms."""
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        """The processing time in ms."""
        return self._timers.current_processing_time()

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """The broadcast map of a descriptor, to be changed in the same way by every subtask.

        That is: by the row and what the map holds alone, never by keyed state, time or chance.
        """
        return self._operator_state.get_broadcast_state(descriptor)

    def apply_to_keyed_state(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)`` for every key of this subtask that holds the state."""
        self._backend.apply_to_all_keys(descriptor, function)


class KeyedBroadcastProcessFunction(
    KeyedProcessFunction[K, IN, OUT], Generic[K, IN, BROADCAST, OUT]
):
    """A keyed function beside which rows of another stream reach every subtask.

    In ``process_element`` and ``on_timer``, ``context.get_broadcast_state(descriptor)`` gives
    the map to read. On Spark a micro-batch's broadcast rows come before its keyed rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; each row that it yields comes out once per subtask."""
