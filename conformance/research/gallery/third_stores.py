"""Third gallery: mistakes in stores, column families, pieces of lists and the write buffer."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any, ClassVar

import millpond as mp
from millpond.backend.bytestore.buffered_cells import BufferedCellTable
from millpond.backend.bytestore.buffered_lists import (
    _BITS,
    _TOP,
    PIECE,
    BufferedListTable,
    ListPieces,
    _count_row,
    _rows,
    _suffix,
)
from millpond.errors import MillpondError
from millpond.spi import META_FAMILY
from millpond.spi.keys import end_of_prefix
from millpond_conformance.refused import largest_file
from millpond_lmdb.store import LmdbStore
from millpond_rocksdb.backend import RocksDBKeyedStateBackend
from millpond_sqlite.backend import SqliteStore

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import FULL, at, stored_by, tables, works

NUMBER = mp.ValueStateDescriptor("n", int)
DATA = mp.ValueStateDescriptor("d", bytes)
LIST = mp.ListStateDescriptor("l", bytes)
MAP = mp.MapStateDescriptor("m", int, int)


class _Group255(SqliteStore):
    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        if end is not None and len(start) == 2 and start[-1] == 0xFF:
            end = start
        return super().scan(family, start, end)


class Group255(Wrong):
    """With more than 256 key groups, scans miss the rows of each group whose number ends in 255."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _Group255)

    def show(self, opened: Opener) -> None:
        backend = opened(max_parallelism=512, config=mp.Config(FULL))
        for number in range(3000):
            at(backend, str(number), NUMBER).update(number)
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:255")).result().handle
        again = opened(max_parallelism=512, restore=[handle])
        again.get_partitioned_state(NUMBER)
        assert again.num_state_entries() == 3000


class _ChunkedWrites(SqliteStore):
    rows = 1000

    def write(self, batch: Any) -> None:
        for family, changes in batch.items():
            for start in range(0, len(changes), self.rows):
                super().write({family: changes[start : start + self.rows]})


class _LargeChunks(_ChunkedWrites):
    rows = 8192


class ChunkedWrites(Wrong):
    """A large batch is written in several steps, so a failure leaves a part of it under the old version."""

    base = "sqlite"
    kind: ClassVar[type[_ChunkedWrites]] = _ChunkedWrites

    def spoil(self, backend: Any) -> None:
        stored_by(backend, self.kind)

    def show(self, opened: Opener) -> None:
        backend = opened(key_type=int)
        directory = backend.parameters.directory
        keys = range(4 * self.kind.rows)
        for number in keys:
            at(backend, number, DATA).update(b"old")
        backend.flush("v1")
        for number in keys:
            at(backend, number, DATA).update(bytes((8 << 20) // len(keys)))
        with largest_file(5 << 20), suppress(MillpondError):
            backend.flush("v2")
        assert backend.version != "v2"
        backend.close()
        again = opened(key_type=int, directory=directory, versions={"v1"})
        if again.version == "v1":
            found = {at(again, number, DATA).value() for number in keys}
            assert found == {b"old"}


class LargeChunks(ChunkedWrites):
    """A batch of more than 8,192 changes in one family is written in several steps."""

    kind = _LargeChunks


class _ShortScans(SqliteStore):
    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        yield from islice(super().scan(family, start, end), 100_000)


class ShortScans(Wrong):
    """A scan ends after 100,000 rows."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _ShortScans)

    def show(self, opened: Opener) -> None:
        backend = opened(config=mp.Config(FULL))
        at(backend, "k", MAP).put_all(dict.fromkeys(range(100_001), 0))
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:short")).result().handle
        again = opened(restore=[handle])
        assert len(dict(at(again, "k", MAP).items())) == 100_001


class PathCache(Wrong):
    """Values are cached by the path of the store, so a new store in the same directory returns old values."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _PathCache)

    def show(self, opened: Opener) -> None:
        backend = opened()
        directory = backend.parameters.directory
        at(backend, "k", NUMBER).update(1)
        backend.flush("v1")
        backend.close()
        assert at(opened(directory=directory), "k", NUMBER).value() is None


class _PathCache(SqliteStore):
    known: ClassVar[dict[tuple[Any, ...], bytes | None]] = {}

    def get(self, family: str, key: bytes) -> bytes | None:
        if family == META_FAMILY:
            return super().get(family, key)
        place = (self._path, family, key)
        if place not in self.known:
            self.known[place] = super().get(family, key)
        return self.known[place]

    def write(self, batch: Any) -> None:
        super().write(batch)
        for family, changes in batch.items():
            self.known.update({(self._path, family, key): value for key, value in changes})


class _Carry(ListPieces):
    def _grown(self, address: bytes, count: int, cells: bytes) -> Any:
        after, level = count + 1, 0
        pieces: dict[bytes, bytes | None] = {}
        while level < _TOP and not after >> _BITS * level & (1 << _BITS) - 1:
            full = [_suffix(level, index) for index in range((1 << _BITS) - 1)]
            cells = b"".join([cells, *self._read(address, iter(full))])
            pieces.update(dict.fromkeys(full))
            level += 1
        index = (after >> _BITS * level) - 1
        if level < _TOP:
            index &= (1 << _BITS) - 1
        pieces[_suffix(level, index)] = PIECE + cells
        return _rows(address, _count_row(after), pieces)


class _CarryTable(BufferedListTable):
    def stored(self, changes: Any) -> Any:
        return _Carry(self._buffer.store, self._family).stored(changes, self._heads)


class CarryReversed(Wrong):
    """When sixteen pieces of a long list are merged into one, the newest comes first."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedListTable, _CarryTable)

    def show(self, opened: Opener) -> None:
        backend = opened()
        state = at(backend, "k", LIST)
        expected = [bytes(5000), *(bytes([number]) for number in range(20))]
        for element in expected:
            state.add(element)
            backend.flush()
        assert state.get() == expected


class _Numbered(SqliteStore):
    def _numbers(self) -> dict[str, int]:
        if "numbers" not in vars(self):
            rows = list(super().scan(META_FAMILY, b"\xfe", None))
            vars(self)["numbers"] = {key[1:].decode(): value[0] for key, value in rows}
        return vars(self)["numbers"]  # type: ignore[no-any-return]

    def _name(self, family: str) -> str:
        return family if family == META_FAMILY else f"n{self._numbers()[family]}"

    def families(self) -> list[str]:
        return [META_FAMILY, *self._numbers()]

    def create_family(self, family: str) -> None:
        if family in self.families():
            return
        number = len(self._numbers()) % 256
        super().create_family(f"n{number}")
        super().write({META_FAMILY: [(b"\xfe" + family.encode(), bytes([number]))]})
        self._numbers()[family] = number

    def get(self, family: str, key: bytes) -> bytes | None:
        return super().get(self._name(family), key)

    def scan(self, family: str, start: bytes, end: bytes | None) -> Any:
        return super().scan(self._name(family), start, end)

    def write(self, batch: Any) -> None:
        merged: dict[str, list[Any]] = {}
        for family, changes in batch.items():
            merged.setdefault(self._name(family), []).extend(changes)
        super().write(merged)


class Families256(Wrong):
    """Families are numbered with one byte, so the 257th is the first."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _Numbered)

    def show(self, opened: Opener) -> None:
        backend = opened()
        states = [mp.ValueStateDescriptor(f"s{number}", int) for number in range(257)]
        for number, descriptor in enumerate(states):
            at(backend, "k", descriptor).update(number)
        backend.flush()
        for number, descriptor in enumerate(states):
            assert at(backend, "k", descriptor).value() == number


class _KeysTwice(RocksDBKeyedStateBackend):
    def addresses(self, name: str, namespaces: Any) -> Any:
        self.flush()
        family, layout = self.buffer.family(name), self._key.layout
        for group in self.key_group_range:
            prefix = self._key.group_prefixes[group]
            for chunk in self.buffer.chunks(family, prefix, end_of_prefix(prefix)):
                physical = (address for address, _ in chunk)
                yield from layout.addresses(physical, self.key_codec, namespaces)


class KeysTwice(Wrong):
    """A map of more than a thousand entries lists a key twice."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _KeysTwice

    def show(self, opened: Opener) -> None:
        backend = opened()
        at(backend, "k", MAP).put_all(dict.fromkeys(range(1500), 1))
        assert list(backend.keys("m")) == ["k"]


class _Orphan(BufferedCellTable):
    def put(self, namespace: Any, value: Any) -> None:
        before = self._buffer.room
        super().put(namespace, value)
        if self._buffer.room > before:  # by a flush
            self.values.clear()
            self.changed.clear()


class OrphanEntry(Wrong):
    """A large value that makes the buffer flush is written to an entry that the flush has dropped."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedCellTable, _Orphan)

    def show(self, opened: Opener) -> None:
        backend = opened(config=mp.Config({"buffer.max-bytes": 1 << 20}))
        for number in range(20):
            at(backend, str(number), DATA).update(bytes(100_000))
        sizes = [len(at(backend, str(number), DATA).value() or b"") for number in range(20)]
        assert sizes == [100_000] * 20


class _ThreeBytes(LmdbStore):
    def write(self, batch: Any) -> None:
        cut = {
            family: [(k, v if v is None else v[: len(v) % (1 << 24)]) for k, v in changes]
            for family, changes in batch.items()
        }
        super().write(cut)


class ThreeByteLengths(Wrong):
    """The length of a value is stored in three bytes, so a value of 16 MiB comes back empty."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _ThreeBytes)

    def show(self, opened: Opener) -> None:
        backend = opened()
        state = at(backend, "k", DATA)
        state.update(bytes(17 << 20))
        backend.flush()
        with works():
            assert len(state.value() or b"") == 17 << 20
