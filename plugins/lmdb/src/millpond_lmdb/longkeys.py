"""Stores keys longer than LMDB's limit of 511 bytes so that prefix scans still work.

A long key is stored as its first 495 bytes plus a 16-byte digest of the whole key: exactly 511
bytes. The whole key is stored in front of the value. Shorter keys, up to 510 bytes, are stored
unchanged, so the length distinguishes the two. Keys that share their first 495 bytes are next to
each other: a scan reads them together and sorts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby

LIMIT = 511
_DIGEST = 16
PREFIX = LIMIT - _DIGEST


def store_key(key: bytes) -> bytes:
    """Return the key under which LMDB holds a key of any length."""
    if len(key) < LIMIT:
        return key
    return key[:PREFIX] + hashlib.blake2b(key, digest_size=_DIGEST).digest()


def pack(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return stored key and stored value."""
    if len(key) < LIMIT:
        return key, value
    return store_key(key), len(key).to_bytes(4, "big") + key + value


def unpack(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return key and value of a stored pair."""
    if len(stored) < LIMIT:
        return stored, value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def restore_order(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Turn stored pairs in LMDB's order into keys and values in the order of the whole keys."""
    for _, bucket in groupby(pairs, key=lambda pair: pair[0][:PREFIX]):
        first = next(bucket)
        if len(first[0]) < PREFIX:
            yield first
        else:
            yield from sorted(unpack(*pair) for pair in (first, *bucket))
