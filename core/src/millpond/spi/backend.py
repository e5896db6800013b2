"""The interfaces of a backend: its factory, its tables, and the objects that plugins receive.

To write a backend over a key-value store with ordered keys, derive from
``millpond.backend.ByteStoreBackend`` and implement a ``ByteStore``. To write any other backend,
derive from ``millpond.backend.KeyedStateBackend`` and implement ``EntryStore``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import attrs
from typing_extensions import TypeVar

from millpond.clock import Clock
from millpond.config import Config, structure_options
from millpond.keygroups import KeyGroupRange
from millpond.spi.keys import CurrentKey
from millpond.spi.parameters import Capability, KeyedBackendParameters
from millpond.spi.portable_rows import Change, StateView
from millpond.spi.tables import CellTable, MapTable, TimerRows
from millpond.state.descriptors import StateDescriptor
from millpond.state.interfaces import State
from millpond.state.metrics.metric_registry import MetricRegistry
from millpond.state.state_meta import StateMeta
from millpond.state.ttl.ttl_times import TtlTimes
from millpond.types import DeclaredKeyType, KeyCodec, TypeSerializer

S = TypeVar("S", bound=State, default=Any)

AddressChange = Callable[[bytes], bytes]
"""A function that converts a stored physical key to the physical key for the declared types."""

CellMigration = Callable[[bytes], bytes | None]
"""A function that converts a stored value to its new bytes, or to None if the entry has expired."""


# ------------------------------------------------------------------ interfaces of backends


@attrs.define
class RegisteredState:
    """A state that a function has requested with a descriptor.

    Attributes:
        meta: the description of the state in snapshots.
        declared: the descriptor that the function gave.
        descriptor: the same descriptor, but with serializers instead of types that plugins store.
        namespace_codec: the codec of the namespaces.
        map_key_codec: the codec of the map keys; None if the state is not a map.
        serializer: the serializer of a stored value or map value.
        times: the time by which values expire; None if they do not expire.
        state: the state object; None until it is created.
    """

    meta: StateMeta
    declared: StateDescriptor
    descriptor: StateDescriptor
    namespace_codec: KeyCodec
    map_key_codec: KeyCodec | None
    serializer: TypeSerializer[Any]
    times: TtlTimes | None = None
    state: Any = None


class TableSource(ABC):
    """The methods that create tables, which store the entries of states, and list entries."""

    @abstractmethod
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        """Return a new table for the entries of a state."""

    def table_created(self, registered: RegisteredState) -> None:
        """Fill the new table with restored rows that it does not contain yet."""

    def cleanup_planned(self, registered: RegisteredState) -> None:
        """Prepare the removal of expired entries of a state.

        The backend may continue a clean-up that another process began.
        """

    @abstractmethod
    def create_timer_rows(self, name: str) -> TimerRows:
        """Return the rows of a timer queue, including the restored rows of the state `name`."""

    @abstractmethod
    def make_state(self, registered: RegisteredState) -> Any:
        """Return the state object of a registered state. The base class calls hooks of plugins."""

    @abstractmethod
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        """Iterate over the key and namespace of each entry of the state `name`, each pair once.

        The caller may change the state during the iteration.
        """

    @abstractmethod
    def count_entries(self) -> int:
        """Return the number of entries of all states."""


class EntryStore(TableSource):
    """The interface of a keyed backend: tables, flushes, snapshots and restores."""

    @abstractmethod
    def write_changes(self, version: str | None) -> Mapping[str, Sequence[Change]]:
        """Write all buffered changes to the store, and return the changed rows by state name.

        If this method raises an error, all changes must remain in the buffer. Reads still see them,
        and the next call writes them.

        Set ``self.version`` to `version`. If nothing has changed since the state got its current
        version name, keep that name instead.

        Args:
            version: the new name of the state's version, or None if the state has no version name.
                A store that survives the process must store the name in the same atomic write.
        """

    @abstractmethod
    def freeze(self) -> StateView:
        """Return a view of all flushed entries. Later changes do not affect the view."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Prepare the store for calls of ``load_rows`` with rows of these states.

        By default this does nothing. Override this method if the store can prepare many states
        together faster than one by one.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Store restored rows of a state. If the value of a row is None, remove the entry.

        A restore calls this several times, with at most a few MiB of rows each.
        """

    @abstractmethod
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Replace the physical key of each row by the result of `change`.

        The state was restored, but no function has requested it yet. `change` keeps each row in its
        key group, and never returns one key for two rows. Afterwards the state has no version name,
        and change listeners have been called. If `change` raises an error, all rows must remain
        unchanged.
        """

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Replace the value of each row by the result of `migrate`.

        The state was restored, but no function has requested it yet. Afterwards the state has no
        version name, and change listeners have been called. If `migrate` raises an error, all rows
        must remain unchanged.
        """


@attrs.frozen
class NoOptions:
    """The options of a backend that has none. Any option is an error."""


class StateBackend(ABC):
    """A factory of keyed backends. It is picklable, and importable without the native library.

    Note for implementers: import the native library inside ``create_keyed_backend``, so that
    ``millpond backends`` works if the library is missing.
    """

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    options: ClassVar[type[Any]] = NoOptions
    """An attrs class whose fields are the options under ``backend.<name>.``."""

    def structured_options(self, options: Mapping[str, Any]) -> Any:
        """Return an instance of ``options``; raise ConfigError if an option is unknown or wrong."""
        return structure_options(self.options, options, "configuration", f"backend.{self.name}")

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check the options under ``backend.<name>.``.

        Millpond calls this method on the driver when a job is built, and on workers before a
        backend is created. On the driver, the native library may be missing.

        Raises:
            ConfigError: an option is unknown or invalid.
        """
        self.structured_options(options)

    @abstractmethod
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> EntryStore:
        """Return an open backend for one subtask.

        The backend is empty, or contains the state in the working directory if that state has one
        of the versions in ``reuse_versions`` of `parameters`.

        Returns:
            A ``millpond.backend.KeyedStateBackend``.

        Raises:
            ConfigError: an option is unknown or invalid.
            PluginLoadError: the native library is missing.
        """

    def native_version(self) -> str:
        """Return the name and version of the native library, or '' if the backend has none.

        Raises:
            ImportError: the native library is missing.
        """
        return ""

    @classmethod
    def capability_names(cls) -> tuple[str, ...]:
        """Return the names of the backend's capabilities, sorted."""
        return tuple(sorted(capability.value for capability in cls.capabilities))


# ------------------------------------------------------------------ arguments of plugins


class KeyedStates(Protocol):
    """The parts of a backend that plugins may use to create and wrap states."""

    @property
    def current(self) -> CurrentKey:
        """The current key."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters with which the backend was opened."""

    @property
    def metrics(self) -> MetricRegistry:
        """The metrics of the states' operations."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the whole operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups of this subtask."""

    @property
    def current_key(self) -> Any:
        """The current key; raises NoCurrentKeyError if there is none."""

    def set_current_key(self, key: Any, /) -> None:
        """Make `key` the current key, which all states read and write."""

    def table_of(self, name: str) -> Any:
        """Return the table that a plugin's new state must use, in ``millpond_create_state``.

        `name` is the name of the state.
        """

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = ...,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return the state of a descriptor, with `namespace` as its current namespace.

        The first request creates the state.
        """

    def keys(self, state_name: str, namespace: Any = ...) -> Iterator[Any]:
        """Iterate, in any order, over the keys with an entry in this state and namespace."""

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over the pairs of key and namespace with an entry in this state."""

    def num_state_entries(self) -> int:
        """Return the number of entries of all states. Each entry of a map counts as one."""


@attrs.frozen
class StateContext:
    """The objects that a wrapper of a state may use. ``times`` is None if the state has no TTL."""

    backend: KeyedStates
    clock: Clock
    config: Config
    metrics: MetricRegistry
    times: TtlTimes | None = None


Place = Literal["checkpoint", "savepoint", "local"]
"""The source of restored bytes: the checkpoint storage, a savepoint, or a local state copy."""


@attrs.frozen
class RestoredBytes:
    """The number of bytes that restores have read to fill a backend, since the last ``clear``.

    If a file contains rows of all states, such as a file of a local copy or one of RocksDB's files
    in a snapshot, the size of the file counts. Otherwise the uncompressed keys and values of the
    rows count.

    Attributes:
        by_place: the number of bytes by source: ``checkpoint`` for the checkpoint storage,
            ``savepoint``, or ``local`` for a local copy of the state.
        by_state: the number of bytes of rows by state, without files that contain all states.
    """

    by_place: Counter[str] = attrs.field(factory=Counter)
    by_state: Counter[str] = attrs.field(factory=Counter)

    def add_rows(self, place: Place, state: str, size: int) -> None:
        """Add `size` bytes of rows that were read from `place` for the state `state`."""
        self.by_place[place] += size
        self.by_state[state] += size

    def add_files(self, place: Place, size: int) -> None:
        """Add `size` bytes of files that were read from `place` and contain rows of all states."""
        self.by_place[place] += size

    def clear(self) -> None:
        """Set all counts to zero."""
        self.by_place.clear()
        self.by_state.clear()

    def figures(self) -> dict[str, int]:
        """Return the metrics ``restored_bytes.<place>`` and ``<state>.restored_bytes``."""
        places = {f"restored_bytes.{place}": size for place, size in self.by_place.items()}
        return places | {f"{state}.restored_bytes": n for state, n in self.by_state.items()}


@attrs.frozen
class Amount:
    """A number of keys, entries or bytes.

    Attributes:
        number: the number.
        is_exact: whether the number is exact; otherwise it is an estimate.
    """

    number: int
    is_exact: bool = True


@attrs.frozen
class StateSize:
    """The size of one state of a subtask. An amount that a backend cannot tell cheaply is None.

    Attributes:
        keys: the number of different pairs of key and namespace.
        entries: the number of entries, as ``num_state_entries`` counts them.
        bytes: the size in the backend's store.
    """

    keys: Amount | None = None
    entries: Amount | None = None
    bytes: Amount | None = None

    def figures(self, state: str) -> dict[str, int]:
        """Return the metrics of the state `state`, such as ``<state>.entries``.

        The name of an estimate is ``<state>.entries_estimate``.
        """
        amounts = {"keys": self.keys, "entries": self.entries, "bytes": self.bytes}
        return {
            f"{state}.{name}" + ("" if amount.is_exact else "_estimate"): amount.number
            for name, amount in amounts.items()
            if amount is not None
        }


class RestoreTarget(Protocol):
    """The target of a restore: a new, empty backend, or a tool that keeps the rows in memory."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters with which the target was opened."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the whole operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that the target needs."""

    @property
    def key_codec(self) -> KeyCodec:
        """The codec of the keys."""

    @property
    def restored(self) -> dict[str, StateMeta]:
        """The description of each restored state by name. Each restore adds its states."""

    @property
    def restored_bytes(self) -> RestoredBytes:
        """The number of bytes that restores have read. Each restore adds its bytes."""

    def expect_outside_bytes(self) -> None:
        """Decode pickles only if the configuration allows it, because a snapshot's bytes follow."""

    def expect_states(self, names: Iterable[str], /) -> None:
        """Prepare for calls of ``load_rows`` with rows of these states."""

    def load_rows(self, state_name: str, rows: Iterable[Change], /) -> None:
        """Take restored rows of a state. If the value of a row is None, remove the entry."""
