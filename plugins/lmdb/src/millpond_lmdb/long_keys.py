"""Reading LMDB: keys of any length, scans, and readers that see the store at one moment.

Keys longer than LMDB's limit of 511 bytes are stored so that prefix scans still work. A long key is
stored as its first 495 bytes plus a 16-byte digest of the whole key: exactly 511 bytes. The whole
key is stored in front of the value. Shorter keys, up to 510 bytes, are stored unchanged, so the
length distinguishes the two. Keys that share their first 495 bytes are next to each other: a scan
reads them together and sorts them.

Items are bytes, unlike in the stub: no transaction here returns buffers.
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
    """Return the key under which LMDB holds a key of any length."""
    if len(key) < LIMIT:
        return key
    return key[:PREFIX] + hashlib.blake2b(key, digest_size=_DIGEST).digest()


def pack(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value under which LMDB stores a pair."""
    if len(key) < LIMIT:
        return key, value
    return store_key(key), len(key).to_bytes(4, "big") + key + value


def unpack(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the whole key and the value of a pair that LMDB stores."""
    if len(stored) < LIMIT:
        return stored, value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def restore_order(
    pairs: Iterable[tuple[bytes, bytes]], *, reverse: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Turn stored pairs in LMDB's order into keys and values in the order of the whole keys.

    If ``reverse``, both orders are the opposite ones.
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
    """Yield the rows from ``start`` up to ``end``, with their whole keys."""
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
    """Yield the rows of ``scan_cursor`` from the last one to the first."""
    after = end
    if end is not None and len(end) >= PREFIX:  # its place among keys that begin alike is unknown
        after = end_of_prefix(end[:PREFIX])
    found = cursor.prev() if after is not None and cursor.set_range(after) else cursor.last()
    entries: Any = cursor.iterprev() if found else ()
    for row in restore_order(entries, reverse=True):
        if row[0] < start:
            return
        if end is None or row[0] < end:
            yield row


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
            yield from scan_cursor(cursor, start, end)
        except lmdb.Error as error:
            raise self._failure(error) from error

    @override
    def close(self) -> None:
        self._transaction.abort()
        # LMDB frees the slot with the last reference; the error of a snapshot may keep the reader.
        del self._transaction
        self._closed(self)
