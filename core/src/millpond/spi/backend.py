"""The contracts of a backend: its factory, its entries, and the objects that plugins are given.

A backend over ordered bytes derives from ``millpond.backend.ByteStoreBackend`` and implements a
``ByteStore``. Any other backend derives from ``millpond.backend.KeyedStateBackend`` and implements
``EntryStore``.
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
from millpond.types import DeclaredKeyType, KeyCodec, TypeSerializer

S = TypeVar("S", bound=State, default=Any)

AddressChange = Callable[[bytes], bytes]
"""A function from a stored physical key to the physical key under the declared types."""

CellMigration = Callable[[bytes], bytes | None]
"""A function from a stored cell to its new bytes, or to None if the entry is gone."""


# ------------------------------------------------------------------ contracts of backends


@attrs.define
class RegisteredState:
    """A state that was requested by its descriptor.

    Attributes:
        meta: the description of the state in snapshots.
        declared: the descriptor that the caller gave.
        descriptor: the same descriptor with plugins' serializers instead of the types.
        namespace_codec: the codec of the namespaces.
        map_key_codec: the codec of the map keys; None unless it is a map state.
        serializer: the serializer of a stored cell or map entry.
        state: the state object; None until it is made.
    """

    meta: StateMeta
    declared: StateDescriptor
    descriptor: StateDescriptor
    namespace_codec: KeyCodec
    map_key_codec: KeyCodec | None
    serializer: TypeSerializer[Any]
    state: Any = None


class TableSource(ABC):
    """The tables of a backend, and the enumeration of their entries."""

    @abstractmethod
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        """Create the table of a new state."""

    def table_created(self, registered: RegisteredState) -> None:
        """Fill the new table with restored rows that it does not contain yet."""

    def cleanup_planned(self, registered: RegisteredState) -> None:
        """Prepare the clean-up of a state. It can resume a clean-up that another process began."""

    @abstractmethod
    def create_timer_rows(self, name: str) -> TimerRows:
        """Create the rows of a timer queue, with the restored rows of that name."""

    @abstractmethod
    def make_state(self, registered: RegisteredState) -> Any:
        """Make the state object over a table; the base class asks plugins to make and wrap it."""

    @abstractmethod
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        """Iterate over a state's pairs of key and namespace, each once.

        The caller may change the state during the iteration.
        """

    @abstractmethod
    def count_entries(self) -> int:
        """Count the entries of all states."""


class EntryStore(TableSource):
    """Everything that a keyed backend implements: tables, flushes, snapshots and restores."""

    @abstractmethod
    def write_changes(self, version: str | None) -> Mapping[str, Sequence[Change]]:
        """Write the buffered changes to the store, and return them by state name.

        If this raises, all changes remain in the buffer: reads still see them, and the next flush
        writes them. Set ``self.version`` to `version`. But if nothing has changed since the state
        got its present name, that name remains.

        Args:
            version: the state's new version name, or None: the state is at no named version. A
                store that survives the process records the name in the same atomic write.
        """

    @abstractmethod
    def freeze(self) -> StateView:
        """Return a view of all flushed entries. Later changes do not affect the view."""

    def expect_states(self, names: Iterable[str]) -> None:
        """Prepare for calls of ``load_rows`` that give rows of these states.

        Does nothing by default; override it if the store can prepare states faster together than
        one by one.
        """

    @abstractmethod
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Put portable rows of a state into the store; the value None removes a row.

        One call gets a few MiB of rows at most, because restores come in parts.
        """

    @abstractmethod
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Change the physical keys of all rows of a restored, not yet requested state.

        Each row remains in its key group, and no two rows become one. Afterwards the backend is as
        after ``migrate_rows``. If ``change`` refuses a row, all rows remain as they were.
        """

    @abstractmethod
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Rewrite all stored values of a restored, not yet requested state.

        Afterwards the state is at no named version, and the change listeners know the changes. If
        ``migrate`` refuses a value, all values remain unchanged.
        """


@attrs.frozen
class NoOptions:
    """The options of a backend that has none: every key is refused."""


class StateBackend(ABC):
    """A factory of keyed backends; light, picklable, and importable without its native library.

    Note for implementers: import the native library inside ``create_keyed_backend``, so that
    ``millpond backends`` works if the library is missing.
    """

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    options: ClassVar[type[Any]] = NoOptions
    """The attrs class with the options under ``backend.<name>.``."""

    def structured_options(self, options: Mapping[str, Any]) -> Any:
        """Return an instance of ``options``; ConfigError if an option is unknown or wrong."""
        return structure_options(self.options, options, "configuration", f"backend.{self.name}")

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Check the configuration under ``backend.<name>.``.

        Called when a job is built, on the driver, even if the native library is missing there, and
        before a backend is created.

        Raises:
            ConfigError: an option is unknown or wrong.
        """
        self.structured_options(options)

    @abstractmethod
    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> EntryStore:
        """Open a backend: empty, or with the directory's state if its version may be reused.

        Returns:
            A ``millpond.backend.KeyedStateBackend``.

        Raises:
            ConfigError: an option is unknown or wrong.
            PluginLoadError: the native library is missing.
        """

    def native_version(self) -> str:
        """Return the native library's name and version; an empty string if there is none.

        Raises:
            ImportError: the native library is missing.
        """
        return ""

    @classmethod
    def capability_names(cls) -> tuple[str, ...]:
        """Return the declared capabilities as words, sorted."""
        return tuple(sorted(capability.value for capability in cls.capabilities))


# ------------------------------------------------------------------ arguments of plugins


class KeyedStates(Protocol):
    """The parts of a backend that plugins may use to make and wrap states."""

    @property
    def current(self) -> CurrentKey:
        """The current key, in the form that the tables take."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters with which the backend was opened."""

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
        """The current key; NoCurrentKeyError if none is set."""

    def set_current_key(self, key: Any, /) -> None:
        """Choose the key that all states work on."""

    def table_of(self, name: str) -> Any:
        """Return the table of a state that is being registered, for ``millpond_create_state``."""

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any = ...,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return the state of a descriptor, set to a namespace; make it at the first request."""

    def keys(self, state_name: str, namespace: Any = ...) -> Iterator[Any]:
        """Iterate over the keys that have an entry in a state and namespace, in any order."""

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """Iterate over all pairs of key and namespace that have an entry in a state."""

    def num_state_entries(self) -> int:
        """Count the entries of all states; each entry of a map counts as one."""


@attrs.frozen
class StateContext:
    """The objects that a state wrapper may use."""

    backend: KeyedStates
    clock: Clock
    config: Config
    metrics: MetricRegistry


Place = Literal["checkpoint", "savepoint", "local"]
"""The place that a restore reads from."""


@attrs.frozen
class RestoredBytes:
    """The bytes that restores have read to fill a backend, since ``clear``.

    Attributes:
        by_place: the bytes by place: ``checkpoint`` is the storage of snapshots, ``local`` a local
            copy. Files that mix all states count with their size: files of a local copy, and
            RocksDB's own files in a snapshot. Rows count with the bytes of their uncompressed keys
            and values.
        by_state: the bytes of rows by state, without files.
    """

    by_place: Counter[str] = attrs.field(factory=Counter)
    by_state: Counter[str] = attrs.field(factory=Counter)

    def add_rows(self, place: Place, state: str, size: int) -> None:
        """Count the bytes of rows of a state."""
        self.by_place[place] += size
        self.by_state[state] += size

    def add_files(self, place: Place, size: int) -> None:
        """Count the bytes of files that mix states."""
        self.by_place[place] += size

    def clear(self) -> None:
        """Set all counts to zero."""
        self.by_place.clear()
        self.by_state.clear()

    def figures(self) -> dict[str, int]:
        """Return metrics: ``restored_bytes.<place>`` and ``<state>.restored_bytes``."""
        places = {f"restored_bytes.{place}": size for place, size in self.by_place.items()}
        return places | {f"{state}.restored_bytes": n for state, n in self.by_state.items()}


class RestoreTarget(Protocol):
    """The target of a restore: a new, empty backend, or rows in memory that tools inspect."""

    @property
    def parameters(self) -> KeyedBackendParameters:
        """The parameters with which the target was opened."""

    @property
    def max_parallelism(self) -> int:
        """The number of key groups of the whole operator."""

    @property
    def key_group_range(self) -> KeyGroupRange:
        """The key groups that the target takes."""

    @property
    def key_codec(self) -> KeyCodec:
        """The codec of the keys."""

    @property
    def restored(self) -> dict[str, StateMeta]:
        """The states that snapshots describe; each restore adds to it."""

    @property
    def restored_bytes(self) -> RestoredBytes:
        """The bytes that restores have read; each restore adds to it."""

    def expect_outside_bytes(self) -> None:
        """Stop trusting pickles: bytes of a snapshot come in."""

    def expect_states(self, names: Iterable[str], /) -> None:
        """Prepare for calls of ``load_rows`` that give rows of these states."""

    def load_rows(self, state_name: str, rows: Iterable[Change], /) -> None:
        """Take portable rows of a state; the value None removes a row."""
