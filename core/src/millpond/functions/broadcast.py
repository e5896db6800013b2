"""The broadcast pattern: rules that change while keyed rows flow. Names are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic

import attrs
from typing_extensions import TypeVar

from millpond.backend.keyed_states import StatesOfKeys
from millpond.backend.operator_state import BroadcastState, OperatorStateBackend
from millpond.functions.functions import KeyedProcessFunction, required_event_time
from millpond.functions.timer_service import TimerService
from millpond.state import MapStateDescriptor, State, StateDescriptor

__all__ = ["BroadcastContext", "KeyedBroadcastProcessFunction"]


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
BROADCAST = TypeVar("BROADCAST", default=Any)
OUT = TypeVar("OUT", default=Any)
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
