"""A ``ByteStore`` over LMDB, with a named database for each state, and a map that can grow."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
from millpond.errors import (
    MillpondError,
    StoreDamagedError,
    StoreFullError,
    TooManyStatesError,
)
from millpond.spi import (
    META_FAMILY,
    ByteStore,
    Changes,
    FamilySize,
    StoreReader,
    WriteBatch,
    fits_address_space,
    named,
    store_error,
)
from typing_extensions import override

from millpond_lmdb.long_keys import (
    LIMIT,
    LmdbReader,
    pack,
    scan_cursor,
    scan_cursor_back,
    store_key,
    unpack,
)
from millpond_lmdb.options import LmdbOptions

_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
    UnicodeDecodeError,
)
_FULL = (lmdb.MemoryError, lmdb.DiskError)

_DATA_FILE = "data.mdb"
_LOCK_FILE = "lock.mdb"
_META_PAGES = 2
_LOCK_HEADER, _LOCK_SLOT = 192, 64
"""Bytes in the lock file: of the header with the first reader slot, and of each further slot."""


class LmdbStore(ByteStore):
    """A store over one LMDB in one directory.

    Writes are not synced to disk. If the process is killed, no write is lost. If the machine fails,
    the files are not used again.
    """

    def __init__(self, directory: Path, options: LmdbOptions) -> None:
        self._directory = directory
        self._options = options
        with named("lmdb", directory):
            directory.mkdir(parents=True, exist_ok=True)
            data = directory / _DATA_FILE
            used = data.stat().st_size if data.exists() else 0
        size = max(options.initial_map_size, used + used // 4)
        self._env = self._open(size)
        try:
            self._prepare()
        except BaseException:
            self._env.close()
            raise

    def _prepare(self) -> None:
        # All gets between two writes use one read transaction, and one cursor for each family. The
        # transaction saves 1 µs per get. The cursor saves 0.2 µs more, because sorted keys are
        # usually on its current page.
        self._reader: lmdb.Transaction | None = None
        self._cursors: dict[str, Any] = {}
        self._readers: set[int] = set()
        self._idle = threading.Condition()
        self._databases: dict[str, Any] = {}
        with self._failures():
            names = self._names()
        for name in names:
            self.create_family(name)
        self.create_family(META_FAMILY)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.Error, UnicodeDecodeError, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> MillpondError:
        """Return the error to raise for an error of LMDB."""
        damaged, full = isinstance(error, _DAMAGE), isinstance(error, _FULL)
        reason, cure = str(error), "The text is LMDB's own; see its documentation"
        if reason.startswith("mdb_txn_commit") and os.strerror(errno.EIO) in reason:
            # LMDB reports an incomplete write like this. Reads cannot fail like this, because LMDB
            # reads from its memory map.
            reason, full = f"{reason}: the disk is full, or fails", True
        place = str(self._directory)
        found = store_error("lmdb", place, reason, cure, damaged=damaged, full=full)
        self.damaged = self.damaged or isinstance(found, StoreDamagedError)
        return found

    def _open(self, size: int) -> lmdb.Environment:
        with named("lmdb", self._directory):
            self._allocate_lock_file()
        try:
            return lmdb.open(
                str(self._directory),
                map_size=size,
                max_dbs=self._options.max_states + 1,
                max_readers=self._options.max_readers,
                sync=False,
                metasync=False,
                readahead=False,
                meminit=False,
            )
        except MemoryError as error:
            raise StoreFullError("lmdb", str(self._directory), str(error)) from error
        except lmdb.Error as error:
            raise self._failure(error) from error

    def _allocate_lock_file(self) -> None:
        """Allocate disk space for the lock file, which LMDB maps into memory for writing.

        On a full disk, LMDB would create a sparse file. The process would then be killed when it
        writes to the mapped file.
        """
        descriptor = os.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            readers = self._options.max_readers - 1
            os.posix_fallocate(descriptor, 0, _LOCK_HEADER + readers * _LOCK_SLOT)
        finally:
            os.close(descriptor)

    def _names(self) -> list[str]:
        with self._env.begin() as transaction:
            return [bytes(key).decode() for key, _ in transaction.cursor()]

    def _end_reading(self) -> None:
        """End the read transaction before a change. It keeps old pages and the map's size."""
        if self._reader is not None:
            self._cursors.clear()
            self._reader.abort()
            self._reader = None

    @override
    def families(self) -> list[str]:
        return list(self._databases)

    @override
    def create_family(self, family: str) -> None:
        if family in self._databases:
            return
        self._enlarging(partial(self._open_family, family), {})

    def _open_family(self, family: str) -> None:
        try:
            self._databases[family] = self._env.open_db(family.encode())
        except lmdb.DbsFullError as error:
            most = self._options.max_states
            raise TooManyStatesError("lmdb", family, most, "backend.lmdb.max-states") from error

    @override
    def get(self, family: str, key: bytes) -> bytes | None:
        cursor = self._cursors.get(family) or self._cursor(family)
        try:
            # The value is a bytes object, because the transaction does not return buffers.
            if len(key) < LIMIT:
                return cursor.get(key)  # type: ignore[no-any-return]
            value = cursor.get(store_key(key))
        except lmdb.Error as error:
            raise self._failure(error) from error
        return None if value is None else unpack(store_key(key), value)[1]

    def _cursor(self, family: str) -> Any:
        """Return a new cursor, with which ``get`` reads a family until the next write."""
        if self._reader is None:
            self._reader = self._begin_reading()
        cursor = self._cursors[family] = self._reader.cursor(self._databases[family])
        return cursor

    @override
    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key. A loop in C takes half the time of calling ``get``."""
        if not keys or max(map(len, keys)) >= LIMIT:
            return super().get_many(family, keys)
        cursor = self._cursors.get(family) or self._cursor(family)
        try:
            return list(map(cursor.get, keys))
        except lmdb.Error as error:
            raise self._failure(error) from error

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        return self._scan(scan_cursor, family, start, end)

    @override
    def scan_back(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        return self._scan(scan_cursor_back, family, start, end)

    def _scan(
        self, rows: Callable[..., Iterator[Any]], family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        transaction = self._begin_reading()
        try:
            cursor = transaction.cursor(db=self._databases[family])
            yield from rows(cursor, start, end)
        except lmdb.Error as error:
            raise self._failure(error) from error
        finally:
            transaction.abort()

    @override
    def reader(self) -> StoreReader:
        """Return a reader. The map cannot grow while a reader is open."""
        self._end_reading()
        transaction = self._begin_reading()
        reader = LmdbReader(transaction, dict(self._databases), self._reader_closed, self._failure)
        with self._idle:
            self._readers.add(id(reader))
        return reader

    def _begin_reading(self) -> lmdb.Transaction:
        try:
            return self._env.begin()
        except lmdb.ReadersFullError as error:
            reason = f"all {self._options.max_readers} reader slots are taken (max-readers)"
            raise StoreFullError("lmdb", str(self._directory), reason) from error
        except lmdb.Error as error:
            raise self._failure(error) from error

    def _reader_closed(self, reader: StoreReader) -> None:
        with self._idle:
            self._readers.discard(id(reader))
            self._idle.notify_all()

    @override
    def write(self, batch: WriteBatch) -> None:
        self._enlarging(partial(self._write, batch), batch)

    def _enlarging(self, write: Callable[[], None], batch: WriteBatch) -> None:
        """Call the function `write`. If the map has no room, enlarge it and call `write` again.

        `batch` contains the changes that `write` writes; it is empty for a new family.
        """
        self._end_reading()
        while True:
            try:
                return write()
            except lmdb.MapFullError:
                self._grow(sum(_size(changes) for changes in batch.values()))
            except lmdb.Error as error:
                raise self._failure(error) from error

    def _write(self, batch: WriteBatch) -> None:
        with self._env.begin(write=True) as transaction:
            for family, changes in batch.items():
                database = self._databases[family]
                rows = Changes.from_rows(changes)
                # A fast check for removals. Empty values are false too, hence the second test.
                puts = all(rows.values) or None not in rows.values
                if puts and max(map(len, rows.keys), default=0) < LIMIT:
                    plain: Any = rows  # the type stub does not allow None as a value
                    # This takes 0.3 µs less for each row than single calls.
                    transaction.cursor(database).putmulti(plain)
                    continue
                for key, value in rows:
                    if value is None:
                        transaction.delete(store_key(key), db=database)
                    else:
                        transaction.put(*pack(key, value), db=database)

    def _grow(self, needed: int) -> None:
        """Enlarge the map by half its size, at most by ``max_growth``.

        But the map grows at least by twice `needed`, the number of bytes of the changes.
        """
        with self._idle:
            self._idle.wait_for(lambda: not self._readers)
        size = self._env.info()["map_size"]
        least = max(2 * needed, 1 << 20)
        for step in (max(min(size // 2, self._options.max_growth), least), least):
            # Check first: after enlarging the map has failed, LMDB cannot use it any more.
            if fits_address_space(step):
                with self._failures():
                    self._env.set_mapsize(size + step)
                return
        reason = f"the address space has no room for {size + least:,} bytes"
        raise StoreFullError("lmdb", str(self._directory), reason)

    @override
    def family_size(self, family: str) -> FamilySize:
        with self._failures(), self._env.begin() as transaction:
            stat = transaction.stat(self._databases[family])
        return FamilySize(stat["entries"], _pages(stat) * stat["psize"], is_exact=True)

    @override
    def metrics(self) -> Mapping[str, float]:
        """Return sizes of the store; ``free_bytes`` is the size of pages that writes can reuse."""
        info, page = self._env.info(), self._env.stat()["psize"]
        with self._env.begin() as transaction:
            stats = [self._env.stat(), *(transaction.stat(db) for db in self._databases.values())]
        used = sum(map(_pages, stats)) + _META_PAGES
        total = info["last_pgno"] + 1
        return {
            "live_bytes": float(used * page),
            "free_bytes": float((total - used) * page),
            "map_bytes": float(info["map_size"]),
            "entries": float(sum(stat["entries"] for stat in stats[1:])),
            "reader_slots": float(info["max_readers"]),
            "readers": float(info["num_readers"]),
        }

    @override
    def close(self) -> None:
        self._end_reading()
        self._databases = {}
        self._env.close()
        # The lock file is only for processes that run at the same time. The next one creates it.
        (self._directory / _LOCK_FILE).unlink(missing_ok=True)


def _pages(stat: Mapping[str, Any]) -> int:
    """Return the number of pages of a database."""
    return int(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])


def _size(changes: Sequence[tuple[bytes, bytes | None]]) -> int:
    return sum(len(key) + len(value or b"") + 64 for key, value in changes)
