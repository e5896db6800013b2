"""Functions over rows without keys. Names are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from typing_extensions import TypeVar

from millpond.functions.broadcast import BroadcastContext
from millpond.functions.functions import OperatorFunction, ProcessContext

__all__ = ["BroadcastProcessFunction", "ProcessFunction"]

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
