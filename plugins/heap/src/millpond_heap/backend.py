"""The heap's keyed backend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from millpond.arguments import check_type
from millpond.backend.changes import Change, ChangeListener
from millpond.backend.keyed import KeyedStateBackend, RegisteredState, addresses_of
from millpond.backend.parameters import KeyedBackendParameters
from millpond.backend.state_view import StateView
from millpond.backend.tables import CellTable, MapTable
from millpond.backend.timer_queue import MemoryTimerRows, TimerRows
from millpond.keygroups import key_group_prefix_bytes
from millpond.state.descriptors import StateKind
from millpond.types import KeyCodec
from millpond.untrusted import unreadable
from typing_extensions import override

from millpond_heap.maps import HeapMapTable
from millpond_heap.tables import HeapCellTable
from millpond_heap.view import HeapView

__all__ = ["HeapKeyedStateBackend"]


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keyed state in dictionaries.

    Restored rows of a state stay serialized until the state is requested, so what is never
    requested costs little and goes unchanged into the next snapshot.
    """

    name: ClassVar[str] = "heap"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        super().__init__(parameters)
        self.key_group: int | None = None
        self.address: Any = None
        self.prefix_bytes = key_group_prefix_bytes(parameters.max_parallelism)
        self.group_prefixes = {
            group: group.to_bytes(self.prefix_bytes, "big") for group in self.key_group_range
        }
        self._unclaimed: dict[str, dict[bytes, dict[bytes, bytes]]] = {}
        self._freezing = threading.Lock()
        self._live: set[int] = set()

    @override
    def _select(self, key: Any, key_group: int) -> None:
        codec = self.key_codec
        self.address = key if codec.exact else codec.encode(key)
        self.key_group = key_group

    @override
    def _unselect(self) -> None:
        self.key_group = None

    @contextmanager
    def turned_to(self, key_group: int | None, address: Any) -> Iterator[None]:
        """Let the tables work on another key for a moment."""
        before = self.key_group, self.address
        self.key_group, self.address = key_group, address
        try:
            yield
        finally:
            self.key_group, self.address = before

    @override
    def add_change_listener(self, listener: ChangeListener) -> None:
        super().add_change_listener(listener)
        for table in self._tables.values():
            if table.changed is None:  # type: ignore[union-attr]
                table.changed = set()  # type: ignore[union-attr]

    @override
    def flush(self, version: str | None = None) -> None:
        """There is no store, only listeners."""
        self.require_open()
        check_type("version", version, str | None)
        self.remove_expired()
        if not self._listeners:
            self.version = version
            self._all_flushed()
            return
        batch = {
            name: changes
            for name, table in self._tables.items()
            if (changes := table.changes())  # type: ignore[union-attr]
        }
        for table in self._tables.values():
            table.flushed()  # type: ignore[union-attr]
        if batch or version is None or self.version is None:
            self.version = version
        self._all_flushed()
        self._tell(batch)

    @override
    def _create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        track = bool(self._listeners)
        namespaces, serializer = registered.namespace_codec, registered.serializer
        table: CellTable | MapTable
        if registered.map_key_codec is not None:
            table = HeapMapTable(
                self, namespaces, registered.map_key_codec, serializer, track_changes=track
            )
        else:
            table = HeapCellTable(self, namespaces, serializer, track_changes=track)
        return table

    @override
    def _claim_rows(self, name: str) -> None:
        table: Any = self._tables[name]
        for rows in self._unclaimed.get(name, {}).values():
            self._load(table, name, rows.items())
        self._unclaimed.pop(name, None)

    @override
    def _create_timer_rows(self, name: str) -> TimerRows:
        restored = self._unclaimed.pop(name, {})
        rows = (row for group in restored.values() for row in group)
        return MemoryTimerRows(self.prefix_bytes, rows, track_changes=bool(self._listeners))

    @override
    def migrate_rows(self, state_name: str, migrate: Callable[[bytes], bytes | None]) -> None:
        """Restored rows are still as they were stored."""
        groups = self._unclaimed.get(state_name, {})
        changes = [(key, migrate(value)) for rows in groups.values() for key, value in rows.items()]
        self._unclaimed.pop(state_name, None)  # a running snapshot may read these dictionaries
        self.load_rows(state_name, changes)
        self._report(state_name, changes)

    @override
    def _addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        if name in self._tables:
            table: Any = self._tables[name]
            yield from table.addresses()
            return
        for rows in list(self._unclaimed.get(name, {}).values()):
            # Deltas append: in order, the entries of one map follow each other.
            yield from addresses_of(sorted(rows), self.key_codec, namespaces, self.prefix_bytes)

    @override
    def _count_entries(self) -> int:
        self.remove_expired()
        tables: Iterable[Any] = self._tables.values()
        unclaimed = sum(
            len(rows)
            for meta in self.state_metas()
            if meta.kind is not StateKind.TIMER
            for rows in self._unclaimed.get(meta.name, {}).values()
        )
        return unclaimed + sum(int(table.count()) for table in tables)

    @override
    def freeze(self) -> StateView:
        """Nothing is copied before it is written to."""
        self.require_open()
        with self._freezing:
            view = HeapView(self, self._tables, self._unclaimed)
            self._live.add(id(view))
        return view

    def release(self, view: StateView) -> None:
        """A view is not read any more; the last one ends the sharing."""
        with self._freezing:
            self._live.discard(id(view))
            if not self._live:
                for table in self._tables.values():
                    table.thaw()  # type: ignore[union-attr]

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        table = self._tables.get(state_name)
        if table is not None:
            self._load(table, state_name, rows)
            return
        groups = self._unclaimed.setdefault(state_name, {})
        for key, value in rows:
            group = groups.setdefault(key[: self.prefix_bytes], {})
            if value is None:
                group.pop(key, None)
            else:
                group[key] = value

    def _load(self, table: Any, state_name: str, rows: Iterable[Change]) -> None:
        key = b""
        try:
            for key, value in rows:
                table.load(key, value)
        except Exception as error:
            raise unreadable(self.parameters.operator.label, state_name, key, error) from error

    @override
    def _close(self) -> None:
        self._tables.clear()
        self._unclaimed.clear()
