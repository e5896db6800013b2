"""Reading LMDB: scans, and readers that see the store at one moment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import lmdb
from millpond.backend.bytestore import StoreReader
from millpond.backend.key_layout import end_of_prefix
from millpond.errors import MillpondError
from typing_extensions import override

from millpond_lmdb.longkeys import PREFIX, LastBucket, restore_order

__all__ = ["LmdbReader", "scan_cursor"]


def scan_cursor(
    cursor: lmdb.Cursor, family: str, start: bytes, end: bytes | None, last: LastBucket
) -> Generator[tuple[bytes, bytes], None, None]:
    """The rows of a family from ``start`` up to ``end``, with their whole keys."""
    beyond: bytes | None = start[:PREFIX]
    if last.holds(family, start):
        for row in last.rows_from(start):
            if end is not None and row[0] >= end:
                return
            yield row
        beyond = end_of_prefix(start[:PREFIX])
    if beyond is None or not cursor.set_range(beyond):
        return
    # The items are bytes: no transaction here hands out buffers.
    entries: Any = iter(cursor)
    for key, value in restore_order(entries, family, last):
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
            cursor = self._transaction.cursor(db=self._databases[family])
            yield from scan_cursor(cursor, family, start, end, LastBucket())
        except lmdb.Error as error:
            raise self._failure(error) from error

    @override
    def close(self) -> None:
        self._transaction.abort()
        self._closed(self)
