"""Reading LMDB: scans, and readers that see the store at one moment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import lmdb
from millpond.backend.bytestore import StoreReader
from millpond.errors import MillpondError
from typing_extensions import override

from millpond_lmdb.longkeys import PREFIX, restore_order

__all__ = ["LmdbReader", "scan_cursor"]


def scan_cursor(
    cursor: lmdb.Cursor, start: bytes, end: bytes | None
) -> Generator[tuple[bytes, bytes], None, None]:
    """The rows of a cursor's database from ``start`` up to ``end``, with their whole keys."""
    if not cursor.set_range(start[:PREFIX]):
        return
    # The items are bytes: no transaction here hands out buffers.
    entries: Any = iter(cursor)
    for key, value in restore_order(entries):
        if end is not None and key >= end:
            return
        if key >= start:
            yield key, value


class LmdbReader(StoreReader):
    """Reads through an LMDB read transaction."""

    def __init__(
        self,
        transaction: lmdb.Transaction,
        databases: Mapping[str, Any],
        closed: Callable[[StoreReader], None],
        failure: Callable[[Exception], MillpondError],
    ) -> None:
        self._transaction = transaction
        self._databases = databases
        self._closed = closed
        self._failure = failure

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        try:
            yield from scan_cursor(self._transaction.cursor(db=self._databases[family]), start, end)
        except lmdb.Error as error:
            raise self._failure(error) from error

    @override
    def close(self) -> None:
        self._transaction.abort()
        self._closed(self)
