"""State for one key at a time: what a bounded, sorted input needs. Everything goes with the key.

The idea is Flink's ``BatchExecutionStateBackend``: rows come sorted by key, so when the next key
comes nothing of the one before is needed any more. There are no snapshots and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from typing_extensions import override

from millpond.arguments import check_type
from millpond.backend.changes import Change
from millpond.backend.current_key import CurrentKey
from millpond.backend.expiry import Expiry
from millpond.backend.keyed import KeyedStateBackend
from millpond.backend.migration import CellMigration
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.state_registry import RegisteredState
from millpond.backend.state_view import StateView
from millpond.backend.tables import ABSENT, CellTable, MapTable
from millpond.backend.timer_queue import MemoryTimerRows, TimerRows
from millpond.errors import UnsupportedCapabilityError
from millpond.types import KeyCodec

__all__ = ["SingleKeyBackend"]


class _SingleKeyTable:
    """What both tables share."""

    def __init__(self, namespaces: KeyCodec) -> None:
        self._namespaces = namespaces
        self.entries: dict[bytes, Any] = {}

    def prepare_namespace(self, namespace: Any) -> Any:
        """The encoded namespace."""
        return self._namespaces.encode(namespace)

    def clear_all(self) -> None:
        """Another key comes; an iteration that was begun keeps what it goes through."""
        if self.entries:
            self.entries = {}

    def load(self, key: bytes, value: bytes | None) -> None:
        """Nothing is ever restored."""
        raise UnsupportedCapabilityError(SingleKeyBackend.name, "restore")

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """Nothing lives long enough to be swept."""
        return 0, 0, True

    def changed_entries(self) -> int:
        """None that a snapshot could tell: this backend has no snapshots."""
        return 0


class _Cells(_SingleKeyTable, CellTable):
    @override
    def get(self, namespace: Any) -> Any:
        return self.entries.get(namespace)

    @override
    def put(self, namespace: Any, value: Any) -> None:
        self.entries[namespace] = value

    @override
    def remove(self, namespace: Any) -> None:
        self.entries.pop(namespace, None)


class _Maps(_SingleKeyTable, MapTable):
    def __init__(self, namespaces: KeyCodec, map_keys: KeyCodec) -> None:
        super().__init__(namespaces)
        self._map_keys = map_keys

    @override
    def prepare_key(self, key: Any) -> Any:
        return self._map_keys.encode(key)

    @override
    def get(self, namespace: Any, key: Any) -> Any:
        return self.entries.get(namespace, {}).get(key, ABSENT)

    @override
    def put(self, namespace: Any, key: Any, value: Any) -> None:
        self.entries.setdefault(namespace, {})[key] = value

    @override
    def remove(self, namespace: Any, key: Any) -> None:
        self.remove_at(self.place(namespace), key)

    @override
    def place(self, namespace: Any) -> Any:
        return self.entries, namespace

    @override
    def items_at(self, place: Any) -> Iterator[tuple[Any, Any]]:
        entries, namespace = place
        for key in list(entries.get(namespace, ())):
            value = entries.get(namespace, {}).get(key, ABSENT)
            if value is not ABSENT:
                yield self._map_keys.decode(key, 0)[0], value

    @override
    def put_at(self, place: Any, key: Any, value: Any) -> None:
        entries, namespace = place
        entries.setdefault(namespace, {})[key] = value

    @override
    def remove_at(self, place: Any, key: Any) -> None:
        entries, namespace = place
        found = entries.get(namespace, {})
        found.pop(key, None)
        if not found:
            entries.pop(namespace, None)

    @override
    def is_empty(self, namespace: Any) -> bool:
        return not self.entries.get(namespace)

    @override
    def clear(self, namespace: Any) -> None:
        self.entries.pop(namespace, None)


class _HeldKey(CurrentKey):
    """The current key; another one calls for the tables to be emptied.

    Attributes:
        held: the key whose entries the tables hold, also while there is no current key.
    """

    def __init__(self, parameters: KeyedBackendParameters, empty: Callable[[], None]) -> None:
        super().__init__(SingleKeyBackend.name, parameters)
        self.held: Any = None
        self._empty = empty

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        if key is not self.held and not self._holds(key):
            self.held = key
            self._empty()

    def _holds(self, key: Any) -> bool:
        if self.held is None or self.codec.exact:
            return bool(key == self.held)
        return self.codec.encode(key) == self.codec.encode(self.held)


class SingleKeyBackend(KeyedStateBackend):
    """Keyed state that another current key empties."""

    name: ClassVar[str] = "single-key"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self._key = _HeldKey(parameters, self._empty)
        super().__init__(parameters, self._key)

    def _empty(self) -> None:
        for table in self.states.tables.values():
            if isinstance(table, (_SingleKeyTable, MemoryTimerRows)):
                table.clear_all()

    @override
    def flush(self, version: str | None = None) -> None:
        """Nothing is buffered."""
        self.current.require_open()
        check_type("version", version, str | None)
        self.version = version

    @override
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        if registered.map_key_codec is not None:
            return _Maps(registered.namespace_codec, registered.map_key_codec)
        return _Cells(registered.namespace_codec)

    @override
    def create_timer_rows(self, name: str) -> TimerRows:
        return MemoryTimerRows(self.current.layout, (), track_changes=False)

    @override
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        table: Any = self.states.tables[name]
        for namespace in list(table.entries):
            yield self._key.held, namespaces.decode(namespace, 0)[0]

    @override
    def count_entries(self) -> int:
        tables = (t for t in self.states.tables.values() if isinstance(t, _SingleKeyTable))
        return sum(
            sum(map(len, table.entries.values()))
            if isinstance(table, _Maps)
            else len(table.entries)
            for table in tables
        )

    @override
    def freeze(self) -> StateView:
        """There are no snapshots."""
        raise UnsupportedCapabilityError(self.name, "snapshot")

    @override
    def migrate_rows(self, state_name: str, migrate: CellMigration) -> None:
        """Nothing is ever restored."""
        raise UnsupportedCapabilityError(self.name, "restore")

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        """Nothing is ever restored."""
        raise UnsupportedCapabilityError(self.name, "restore")

    @override
    def _close(self) -> None:
        self.states.tables.clear()
