"""Second gallery: mistakes in reads: many keys, long keys, equal values."""

from __future__ import annotations

import zlib
from copy import copy
from decimal import Decimal
from typing import Any

import millpond as mp
from millpond.backend.bytestore.buffered_cells import BufferedCellTable
from millpond.backend.bytestore.write_buffer import EncodedKey
from millpond.spi import ByteStore
from millpond_heap.backend import HeapKeyedStateBackend
from millpond_lmdb.long_keys import LIMIT, PREFIX, restore_order
from millpond_lmdb.store import LmdbStore
from millpond_sqlite.backend import SqliteStore, _table

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import at, stored_by, tables, works

TEXT = mp.ValueStateDescriptor("v", str)
NUMBER = mp.ValueStateDescriptor("n", int)
DATA = mp.ValueStateDescriptor("d", bytes)


class _EmptyIsNothing(LmdbStore):
    def get_many(self, family: str, keys: Any) -> Any:
        return [data or None for data in super().get_many(family, keys)]


class EmptyIsNothing(Wrong):
    """A bulk read takes an empty value for a missing one."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _EmptyIsNothing)

    def show(self, opened: Opener) -> None:
        backend = opened()
        at(backend, "a", TEXT).update("")
        backend.flush()
        assert at(backend, "a", TEXT).get_many(["a", "b"]).to_pylist() == ["", None]


class _LengthOfTheFirst(LmdbStore):
    def get_many(self, family: str, keys: Any) -> Any:
        if not keys or len(keys[0]) >= LIMIT:
            return ByteStore.get_many(self, family, keys)
        cursor = self._cursors.get(family) or self._cursor(family)
        return [cursor.get(key[:LIMIT]) for key in keys]


class LengthOfTheFirst(Wrong):
    """A bulk read takes all keys for short ones if the first one is short."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _LengthOfTheFirst)

    def show(self, opened: Opener) -> None:
        backend, keys = opened(), ["a", "b" * 700]
        for key in keys:
            at(backend, key, TEXT).update(key[0])
        backend.flush()
        assert at(backend, "a", TEXT).get_many(keys).to_pylist() == ["a", "b"]


class _LastSlice(SqliteStore):
    def get_many(self, family: str, keys: Any) -> Any:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ",".join("?" * len(part))
            sql = f"select k, v from {_table(family)} where k in ({marks})"
            found = dict(self._execute(sql, tuple(part)).fetchall())
        return [found.get(key) for key in keys]


class LastSlice(Wrong):
    """A bulk read works in slices of 500 keys, and returns only the results of the last slice."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _LastSlice)

    def show(self, opened: Opener) -> None:
        backend, keys = opened(), [str(number) for number in range(600)]
        state = backend.get_partitioned_state(NUMBER)
        state.update_many(keys, list(range(600)))
        backend.flush()
        assert state.get_many(keys).null_count == 0


class _ScansFromThePrefix(LmdbStore):
    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        transaction = self._begin_reading()
        try:
            cursor: Any = transaction.cursor(db=self._databases[family])
            if not cursor.set_range(start[:PREFIX]):
                return
            for key, data in restore_order(iter(cursor)):
                if end is not None and key >= end:
                    return
                yield key, data
        finally:
            transaction.abort()


class ScansFromThePrefix(Wrong):
    """A scan starts at the first of several long keys with the same beginning."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _ScansFromThePrefix)

    def show(self, opened: Opener) -> None:
        backend, descriptor = opened(max_parallelism=1), mp.MapStateDescriptor("m", str, int)
        for end in "12":
            at(backend, "k" * 600 + end, descriptor).put("e", int(end))
        backend.flush()
        for end in "12":
            assert list(at(backend, "k" * 600 + end, descriptor).values()) == [int(end)]


class _SkipsEqual(BufferedCellTable):
    def put(self, namespace: Any, value: Any) -> None:
        if self.get(namespace) != value:
            super().put(namespace, value)


class SkipsEqual(Wrong):
    """A value that equals the previous one is not written: 1.0 after 1.00."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedCellTable, _SkipsEqual)

    def show(self, opened: Opener) -> None:
        backend = opened()
        for kind, values in ((float, (0.0, -0.0)), (Decimal, (Decimal("1.0"), Decimal("1.00")))):
            state = at(backend, "k", mp.ValueStateDescriptor(kind.__name__, kind))
            for value in values:
                state.update(value)
                backend.flush()
            assert repr(state.value()) == repr(values[1])


class _AllKeysExact(HeapKeyedStateBackend):
    def create_table(self, registered: Any) -> Any:
        if registered.map_key_codec is not None:
            registered.map_key_codec = copy(registered.map_key_codec)
            object.__setattr__(registered.map_key_codec, "exact", True)  # some are frozen
        return super().create_table(registered)


class AllKeysExact(Wrong):
    """Map keys that are equal in Python are one key: 1.0 and 1.00."""

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _AllKeysExact

    def show(self, opened: Opener) -> None:
        state = at(opened(), "k", mp.MapStateDescriptor("m", Decimal, int))
        state.put(Decimal("1.0"), 1)
        state.put(Decimal("1.00"), 2)
        assert len(state) == 2


class _Remembers(EncodedKey):
    last: Any = None
    encoded_last: Any = None

    def _choose(self, key: Any, key_group: int) -> None:
        if self.last != (key, key_group):
            self.last = (key, key_group)
            super()._choose(key, key_group)
            self.encoded_last = self.address
        self.address = self.encoded_last

    def forget(self) -> None:
        super().forget()
        self.encoded_last = None


class Remembers(Wrong):
    """A key's cached bytes are used although the key was deselected in between."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        backend.current.__class__ = _Remembers

    def show(self, opened: Opener) -> None:
        first = opened()
        at(first, "k", NUMBER).update(1)
        handle = first.snapshot(1, mp.checkpoint_storage("memory:remembers")).result().handle
        backend = opened(restore=[handle])
        with works():
            backend.apply_to_all_keys(NUMBER, lambda _, state: state.update(2))
            assert at(backend, "k", NUMBER).value() == 2


class _Compresses(SqliteStore):
    def get(self, family: str, key: bytes) -> bytes | None:
        data = super().get(family, key)
        return zlib.decompress(data) if data is not None and data[:2] == b"\x78\x9c" else data

    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        for key, data in super().scan(family, start, end):
            yield key, zlib.decompress(data) if data[:2] == b"\x78\x9c" else data

    def write(self, batch: Any) -> None:
        super().write({family: list(map(self._pressed, rows)) for family, rows in batch.items()})

    @staticmethod
    def _pressed(row: Any) -> Any:
        key, data = row
        return key, zlib.compress(data) if data is not None and len(data) > 2000 else data


class Compresses(Wrong):
    """Long values are compressed, and every value that looks compressed is decompressed."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _Compresses)

    def show(self, opened: Opener) -> None:
        backend, data = opened(), zlib.compress(b"hello")
        at(backend, "k", DATA).update(data)
        backend.flush()
        with works():
            assert at(backend, "k", DATA).value() == data
