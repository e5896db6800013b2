"""A consistent view of a byte store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

from typing_extensions import override

from millpond.backend.bytestore.list_pieces import whole_lists
from millpond.spi.byte_store import ByteStore, StoreReader
from millpond.spi.keys import KeyLayout, end_of_prefix
from millpond.spi.rows import Change, StateShape, StateView
from millpond.state.descriptors import StateKind

_CHUNK = 4096


class ByteStoreView(StateView):
    """Reads the store's own snapshot; without one, reads the store before the next write."""

    def __init__(self, shape: StateShape, store: ByteStore) -> None:
        super().__init__(shape)
        self._reader = store.reader()
        self._source: ByteStore | StoreReader = self._reader or store
        self._layout = KeyLayout(shape.max_parallelism)

    @override
    def rows(self, key_group: int) -> Iterator[tuple[str, list[Change]]]:
        prefix = self._layout.group_prefix(key_group)
        for meta in self.metas:
            with closing(self._source.scan(meta.name, prefix, end_of_prefix(prefix))) as scan:
                rows = whole_lists(scan) if meta.kind is StateKind.LIST else scan
                while chunk := list[Change](islice(rows, _CHUNK)):
                    yield meta.name, chunk

    @override
    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
