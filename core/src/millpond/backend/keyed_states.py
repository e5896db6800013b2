"""The side of a backend that functions, timers and wrappers of states work with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from typing_extensions import TypeVar

from millpond.backend.current_key import CurrentKey
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.timer_queue import TimerQueue
from millpond.keygroups import KeyGroupRange
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
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


class KeyedStates(StatesOfKeys, Protocol):
    """States and timers of the current key, however long they live.

    A ``KeyedStateBackend`` adds snapshots and restores; a ``SingleKeyBackend``, for input that is
    sorted by key, has nothing to snapshot.

    Attributes:
        operator_state: the subtask's operator state, where it has some.
    """

    operator_state: OperatorStateBackend | None

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters of its opening."""

    @property
    def metrics(self) -> MetricRegistry:
        """The metrics of the states."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the whole operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of this subtask."""

    @property
    def current_key(self) -> Any:
        """The current key; NoCurrentKeyError where there is none."""

    def set_current_key(self, key: Any, /) -> None:
        """Choose the key that all states work on."""

    def table_of(self, name: str) -> Any:
        """The table of a state under registration; for ``millpond_create_state``."""

    def keys(self, state_name: str, namespace: Any = ...) -> Iterator[Any]:
        """The keys that hold something in a state and namespace, each once; in no order."""

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """All pairs of key and namespace that hold something in a state, each once."""

    def num_state_entries(self) -> int:
        """How many entries are stored: one per state, key and namespace; map entries singly."""
