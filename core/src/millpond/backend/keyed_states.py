"""The side of a backend that functions, timers and wrappers of states work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import TypeVar

from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.timer_queue import TimerQueue
from millpond.spi.backend import KeyedStates
from millpond.spi.keys import CurrentKey
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.types import DeclaredKeyType

S = TypeVar("S", bound=State, default=Any)


class StatesOfKeys(Protocol):
    """What functions reach by their contexts."""

    @property
    def current(self) -> CurrentKey:
        """The current key, in the form that the tables take."""

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = ...,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """The state of a descriptor, set to a namespace; made at the first request."""

    def timer_queue(self, domain: str, namespace_type: DeclaredKeyType[Any] = ...) -> TimerQueue:
        """The timers of a time domain, made at the first request."""

    def has_timers(self, domain: str) -> bool:
        """Whether there is a queue of a domain, requested or restored."""

    def apply_to_all_keys(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)``, which may change it, for every key."""


class StatesAndTimers(KeyedStates, StatesOfKeys, Protocol):
    """The backend as an operator sees it: states and timers of the current key, operator state.

    A ``KeyedStateBackend`` adds snapshots and restores. A ``SingleKeyBackend``, for input that is
    sorted by key, has none.

    Attributes:
        operator_state: the subtask's operator state, if it has any.
    """

    operator_state: OperatorStateBackend | None
