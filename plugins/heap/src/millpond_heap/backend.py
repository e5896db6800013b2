"""The keyed backend in dictionaries, and its views for snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from millpond.backend import KeyedStateBackend, MemoryTimerRows
from millpond.spi import (
    AddressChange,
    Amount,
    CellTable,
    Change,
    ChangeListener,
    Changes,
    KeyedBackendParameters,
    MapTable,
    RegisteredState,
    StateShape,
    StateSize,
    StateView,
    TimerRows,
    apply_to_lists,
    unreadable,
)
from millpond.state.descriptors import StateKind
from millpond.types import KeyCodec
from typing_extensions import override

from millpond_heap.cells import HeapCellTable
from millpond_heap.maps import HeapMapTable, HeapSortedMapTable
from millpond_heap.tables import HeapKey


class HeapView(StateView):
    """A view of the dictionaries of all tables. Rows are serialized when they are read.

    While a view is open, a table copies a dictionary before it writes to it.
    """

    def __init__(
        self,
        shape: StateShape,
        key: HeapKey,
        tables: Mapping[str, Any],
        unclaimed: Mapping[str, Mapping[bytes, Mapping[bytes, bytes]]],
        release: Callable[[StateView], None],
    ) -> None:
        super().__init__(shape)
        self._release = release
        self._prefixes = key.group_prefixes
        self._tables = {name: (table, table.freeze()) for name, table in tables.items()}
        self._unclaimed = dict(unclaimed)

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        for meta in self.metas:
            if meta.name in self._tables:
                table, groups = self._tables[meta.name]
                yield meta.name, list(table.rows(groups, key_group))
            else:
                rows = self._unclaimed.get(meta.name, {}).get(self._prefixes[key_group], {})
                yield meta.name, list(rows.items())

    @override
    def close(self) -> None:
        self._tables.clear()
        self._release(self)


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keyed state in dictionaries.

    The restored rows of a state remain serialized until a function requests the state. So a state
    that is never requested costs little, and its rows enter the next snapshot unchanged.
    """

    name: ClassVar[str] = "heap"

    def __init__(self, parameters: KeyedBackendParameters) -> None:
        self._key = HeapKey(self.name, parameters)
        super().__init__(parameters, self._key)
        self._unclaimed: dict[str, dict[bytes, dict[bytes, bytes]]] = {}
        self._freezing = threading.Lock()
        self._live: set[int] = set()

    @override
    def add_change_listener(self, listener: ChangeListener) -> None:
        super().add_change_listener(listener)
        for table in self.states.tables.values():
            if table.changed is None:  # type: ignore[union-attr]
                table.flushed()  # type: ignore[union-attr]

    @override
    def write_changes(self, version: str | None) -> Mapping[str, Sequence[Change]]:
        """Return the changes for the listeners. There is no store to write to."""
        if not self.listeners:
            self.version = version
            return {}
        batch = {
            name: changes
            for name, table in self.states.tables.items()
            if (changes := table.changes())  # type: ignore[union-attr]
        }
        for table in self.states.tables.values():
            table.flushed()  # type: ignore[union-attr]
        if batch or version is None or self.version is None:
            self.version = version
        return batch

    @override
    def create_table(self, registered: RegisteredState) -> CellTable | MapTable:
        track = bool(self.listeners)
        namespaces, serializer = registered.namespace_codec, registered.serializer
        map_keys = registered.map_key_codec
        if map_keys is None:
            return HeapCellTable(self._key, namespaces, serializer, track_changes=track)
        made = HeapSortedMapTable if registered.descriptor.is_sorted else HeapMapTable
        return made(self._key, namespaces, map_keys, serializer, track_changes=track)

    @override
    def table_created(self, registered: RegisteredState) -> None:
        name = registered.meta.name
        table: Any = self.states.tables[name]
        for rows in self._unclaimed.get(name, {}).values():
            self._load(table, name, Changes(list(rows), list(rows.values())))
        self._unclaimed.pop(name, None)

    @override
    def create_timer_rows(self, name: str) -> TimerRows:
        restored = self._unclaimed.pop(name, {})
        rows = (row for group in restored.values() for row in group)
        return MemoryTimerRows(self._key.layout, rows, track_changes=bool(self.listeners))

    @override
    def migrate_rows(self, state_name: str, migrate: Callable[[bytes], bytes | None]) -> None:
        """Convert the values of restored rows, which are still serialized."""
        groups = self._unclaimed.get(state_name, {})
        changes = [(key, migrate(value)) for rows in groups.values() for key, value in rows.items()]
        self._unclaimed.pop(state_name, None)  # a running snapshot may read these dictionaries
        self.load_rows(state_name, changes)
        self.version = None
        self.report({state_name: changes})

    @override
    def readdress_rows(self, state_name: str, change: AddressChange) -> None:
        """Convert the physical keys of restored rows, which are still serialized."""
        groups = self._unclaimed.get(state_name, {})
        rows = [
            (key, change(key), value) for rows in groups.values() for key, value in rows.items()
        ]
        moved: list[Change] = [(made, value) for _, made, value in rows]
        kept = {made for made, _ in moved}
        self._unclaimed.pop(state_name, None)  # a running snapshot may read these dictionaries
        self.load_rows(state_name, moved)
        self.version = None
        self.report({state_name: [(key, None) for key, _, _ in rows if key not in kept] + moved})

    @override
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        self.sweeper.run()  # as in a byte store, whose flush removes expired entries first
        if name in self.states.tables:
            table: Any = self.states.tables[name]
            yield from table.addresses()
            return
        for rows in list(self._unclaimed.get(name, {}).values()):
            # Restored rows may be in any order. Once sorted, the entries of a map are adjacent.
            yield from self._key.layout.addresses(sorted(rows), self.key_codec, namespaces)

    @override
    def count_entries(self) -> int:
        self.sweeper.run()
        tables: Iterable[Any] = self.states.tables.values()
        unclaimed = sum(
            len(rows)
            for meta in self.state_metas()
            if meta.kind is not StateKind.TIMER
            for rows in self._unclaimed.get(meta.name, {}).values()
        )
        return unclaimed + sum(int(table.count()) for table in tables)

    @override
    def state_sizes(self) -> dict[str, StateSize]:
        sizes = {}
        for meta in self.state_metas():
            table: Any = self.states.tables.get(meta.name)
            if meta.kind is StateKind.TIMER:
                continue
            if table is not None:
                sizes[meta.name] = table.size()
                continue
            entries = Amount(sum(map(len, self._unclaimed.get(meta.name, {}).values())))
            keys = None if meta.kind is StateKind.MAP else entries
            sizes[meta.name] = StateSize(keys, entries)
        return sizes

    @override
    def freeze(self) -> StateView:
        """Return a view, without copying any dictionary."""
        self.current.require_open()
        with self._freezing:
            view = HeapView(
                self.shape(), self._key, self.states.tables, self._unclaimed, self._release
            )
            self._live.add(id(view))
        return view

    def _release(self, view: StateView) -> None:
        """Note that a view was closed. After the last one, tables write without copying."""
        with self._freezing:
            self._live.discard(id(view))
            if not self._live:
                for table in self.states.tables.values():
                    table.thaw()  # type: ignore[union-attr]

    @override
    def load_rows(self, state_name: str, rows: Iterable[Change]) -> None:
        table = self.states.tables.get(state_name)
        if table is not None:
            self._load(table, state_name, Changes.from_rows(rows))
            return
        groups = self._unclaimed.setdefault(state_name, {})
        lists = self.states.holds_lists(state_name)
        for key, value in rows:
            group = groups.setdefault(key[: self._key.layout.group_bytes], {})
            if value is None:
                group.pop(key, None)
            elif lists:
                apply_to_lists(group, key, value)
            else:
                group[key] = value

    def _load(self, table: Any, state_name: str, rows: Changes) -> None:
        key = b""
        try:
            table.load_all(rows)
        except Exception:  # noqa: BLE001 - loading rows one by one names the damaged one
            try:
                for key, value in rows:
                    table.load(key, value)
            except Exception as error:
                raise unreadable(self.parameters.operator.label, state_name, key, error) from error

    @override
    def _close(self) -> None:
        self.states.tables.clear()
        self._unclaimed.clear()
