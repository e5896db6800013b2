"""Keys of any length in LMDB, and reads from LMDB.

LMDB allows keys of up to 511 bytes. A longer key is stored as its first 495 bytes plus a 16-byte
digest of the whole key, which are exactly 511 bytes. The whole key is stored before the value. Keys
of up to 510 bytes are stored unchanged, so the length of a stored key shows which form it has.

Scans of a prefix still work: keys with the same first 495 bytes are adjacent, so a scan reads them
together and sorts them.

Transactions here return keys and values as bytes, although the type stub also allows buffers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import lmdb
from millpond.errors import MillpondError
from millpond.spi import StoreReader, end_of_prefix
from typing_extensions import override

LIMIT = 511
_DIGEST = 16
PREFIX = LIMIT - _DIGEST


def store_key(key: bytes) -> bytes:
    """Return the key under which LMDB stores a key of any length."""
    if len(key) < LIMIT:
        return key
    return key[:PREFIX] + hashlib.blake2b(key, digest_size=_DIGEST).digest()


def pack(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value that LMDB stores for a key of any length and its value."""
    if len(key) < LIMIT:
        return key, value
    return store_key(key), len(key).to_bytes(4, "big") + key + value


def unpack(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the whole key and its value, given the key and the value that LMDB stores."""
    if len(stored) < LIMIT:
        return stored, value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def restore_order(
    pairs: Iterable[tuple[bytes, bytes]], *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over whole keys and values in the order of the whole keys.

    `pairs` are stored keys and values in LMDB's order. If `reverse`, both orders are descending.
    """
    for _, bucket in groupby(pairs, key=lambda pair: pair[0][:PREFIX]):
        first = next(bucket)
        if len(first[0]) < PREFIX:
            yield first
        else:
            yield from sorted((unpack(*pair) for pair in (first, *bucket)), reverse=reverse)


def scan_cursor(
    cursor: lmdb.Cursor, start: bytes, end: bytes | None
) -> Generator[tuple[bytes, bytes], None, None]:
    """Iterate over whole keys and values from `start` up to but not including `end`."""
    if not cursor.set_range(start[:PREFIX]):
        return
    entries: Any = iter(cursor)
    for row in restore_order(entries):
        if end is not None and row[0] >= end:
            return
        if row[0] >= start:
            yield row


def scan_cursor_back(
    cursor: lmdb.Cursor, start: bytes, end: bytes | None
) -> Generator[tuple[bytes, bytes], None, None]:
    """Iterate over the rows of ``scan_cursor`` from the last row to the first."""
    after = end
    if end is not None and len(end) >= PREFIX:  # read all keys with this prefix: order unknown
        after = end_of_prefix(end[:PREFIX])
    found = cursor.prev() if after is not None and cursor.set_range(after) else cursor.last()
    entries: Any = cursor.iterprev() if found else ()
    for row in restore_order(entries, reverse=True):
        if row[0] < start:
            return
        if end is None or row[0] < end:
            yield row


class LmdbReader(StoreReader):
    """A reader of one moment's content, which uses a read transaction of LMDB."""

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
            yield from scan_cursor(cursor, start, end)
        except lmdb.Error as error:
            raise self._failure(error) from error

    @override
    def close(self) -> None:
        self._transaction.abort()
        # LMDB frees the reader's slot only with the last reference to the transaction. The reader
        # itself may be kept alive by the traceback of a failed snapshot.
        del self._transaction
        self._closed(self)
