"""A frozen view of the heap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millpond.spi import Change, StateShape, StateView
from typing_extensions import override

from millpond_heap.heap_key import HeapKey


class HeapView(StateView):
    """Dictionaries that the tables no longer write to; reading a row serializes it."""

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
