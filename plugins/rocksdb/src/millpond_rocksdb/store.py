"""A ``ByteStore`` over RocksDB: a column family for each state, and no write-ahead log."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from millpond.errors import (
    ConfigError,
    StoreDamagedError,
    StoreFullError,
)
from millpond.spi import (
    META_FAMILY,
    ByteStore,
    FamilySize,
    StoreReader,
    WriteBatch,
    fits_address_space,
    store_error,
)
from rocksdict import Cache, Checkpoint, Options, Rdict, RdictIter, ReadOptions, WriteOptions
from rocksdict import WriteBatch as NativeBatch
from typing_extensions import override

from millpond_rocksdb.gauges import check_properties, native_property, tickers
from millpond_rocksdb.options import RocksDBOptions, column_options, database_options
from millpond_rocksdb.record_headers import damaged_record

_SIZES = ("estimate-num-keys", "estimate-live-data-size")
_METRICS = {
    "live_bytes": "live-sst-files-size",
    "sst_bytes": "total-sst-files-size",
    "memtable_bytes": "size-all-mem-tables",
    "table_reader_bytes": "estimate-table-readers-mem",
    "estimated_keys": "estimate-num-keys",
    "running_compactions": "num-running-compactions",
    "pending_compaction_bytes": "estimate-pending-compaction-bytes",
    "delayed_write_rate": "actual-delayed-write-rate",
}
"""The RocksDB property that each metric reports, by the name of the metric."""


_DAMAGE = ("Corruption", os.strerror(errno.ENOENT))
"""Texts in errors that mean damage. A missing file counts as damage."""
_ROOM_TO_OPEN = 128 << 20
_ROOM_TO_WORK = 64 << 20
_ROOM_TO_READ = 32 << 20
"""Bytes of address space for RocksDB's threads, memtables, compactions and blocks.

With less, the process dies without raising an error (measured when opening with 64 MB too few).
"""
_BATCH_FACTOR = 4
"""The maximum memory of a batch as a multiple of its rows: its buffer doubles when it grows."""
_SECONDS_TO_BEGIN = 0.5
"""The maximum number of seconds to wait until a compaction begins.

After a disk error, or if an options factory turns compactions off, none begins.
"""
_MADE_SINGLY = 8
"""The maximum number of column families that are created one by one.

To create more, the store is reopened, which creates all at once.
"""


class _RocksDBReader(StoreReader):
    """A reader with an iterator for each column family.

    An iterator sees the family as it was when the iterator was created. RocksDB's snapshots are not
    used, because iterators of rocksdict 0.3.29 ignore them.
    """

    def __init__(self, store: RocksDBStore, cursors: dict[str, RdictIter]) -> None:
        self._store = store
        self._cursors = cursors

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        cursor = self._cursors.get(family)
        if cursor is None:  # the family did not exist when the reader was created
            return
        self._store.require_room_to_read()
        cursor.seek(start)
        while cursor.valid():
            key = cursor.key()
            if end is not None and key >= end:
                return
            yield key, cursor.value()
            self._store.require_room_to_read()
            cursor.next()
        self._store.require_end(cursor)

    @override
    def close(self) -> None:
        self._cursors = {}


@cache
def _block_cache(size: int) -> Cache:
    """Return the process's block cache of `size` bytes, for all stores with that cache size.

    The cache keeps its blocks when a store is closed and reopened, as in each micro-batch
    (measured: 120 instead of 198 ms for 50,000 rows).
    """
    return Cache(size)


class RocksDBStore(ByteStore):
    """A store over one RocksDB in one directory.

    Writes reach the disk when the store is closed or a memtable is full, for all column families
    together. If the process is killed, the reopened store has the content after an older write.

    Args:
        directory: the directory of the store.
        options: the options of the store.
        compacts: whether RocksDB merges files in the background; false for a store that is only
            read.
    """

    def __init__(self, directory: Path, options: RocksDBOptions, *, compacts: bool = True) -> None:
        self._options = options
        self._compacts = compacts
        self._factory = options.factory
        self._directory = directory
        self._closed = False
        self._budget = options.budget
        shared = self._budget.cache if self._budget else _block_cache(options.block_cache_size)
        self._cache = shared
        self._limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        try:
            self._open(directory, options)
        except Exception as error:
            raise self._failure(error) from error
        try:
            check_properties(options.properties, self._db)
        except ConfigError:
            self.close()
            raise

    def _open(self, directory: Path, options: RocksDBOptions, more: Iterable[str] = ()) -> None:
        self._require_room(_ROOM_TO_OPEN)
        path = str(directory)
        if fault := damaged_record(directory):
            raise StoreDamagedError("rocksdb", path, fault)
        native = self._factory.create_db_options(database_options(options))
        existing = Rdict.list_cf(path, native) if (directory / "CURRENT").exists() else []
        families = {
            name: self._column_options(name) for name in (*existing, *more) if name != META_FAMILY
        }
        self._db = Rdict(path, native, column_families=families)
        write = WriteOptions()
        write.disable_wal = True  # type: ignore[method-assign,assignment]  # a property; the stub is wrong
        self._db.set_write_options(write)
        self._columns: dict[str, Rdict] = {
            name: self._db.get_column_family(name) for name in families
        }
        self._columns[META_FAMILY] = self._db
        # RocksDB rewrites the options of all column families whenever it creates one (measured:
        # 18 s for 200 families). So the first write to one of these families creates all of them.
        self._requested: set[str] = set()
        self._iterated = False
        self._handles = {
            name: self._db.get_column_family_handle(name) for name in [*families, META_FAMILY]
        }
        self._write = write
        self._native = native

    def _require_room(self, size: int) -> None:
        if not fits_address_space(size):
            reason = f"the address space has no room for {size:,} bytes (ulimit -v)"
            raise StoreFullError("rocksdb", str(self._directory), reason)

    def require_room_to_read(self) -> None:
        """Raise StoreFullError if the process is close to its address-space limit."""
        if self._limited:
            self._require_room(_ROOM_TO_READ)

    @override
    def families(self) -> list[str]:
        return [*self._columns, *self._requested]

    @override
    def create_family(self, family: str) -> None:
        """Note that the family is needed. The first write creates it; until then it is empty."""
        if family not in self._columns:
            self._requested.add(family)

    def _column_options(self, family: str) -> Options:
        made = column_options(self._options.for_state(family), self._cache, self._budget)
        made.set_disable_auto_compactions(not self._compacts)
        return self._factory.create_column_options(made, family)

    def _create_requested(self) -> None:
        self._require_room(_ROOM_TO_WORK)
        names = sorted(self._requested)
        try:
            # The store cannot be reopened while a cursor is open, and RocksDB does not report that.
            if len(names) > _MADE_SINGLY and not self._iterated:
                self._reopen(names)
                return
            for name in names:
                self._columns[name] = self._db.create_column_family(
                    name, self._column_options(name)
                )
                self._handles[name] = self._db.get_column_family_handle(name)
                self._requested.discard(name)
        except Exception as error:
            raise self._failure(error) from error

    def _reopen(self, more: list[str]) -> None:
        """Reopen the store with the new families `more`. If that fails, reopen it without them."""
        self.close()
        try:
            self._open(self._directory, self._options, more)
        except Exception:
            self._open(self._directory, self._options)
            self._requested.update(more)
            raise
        finally:
            self._closed = not self._columns

    @override
    def get(self, family: str, key: bytes) -> bytes | None:
        self.require_room_to_read()
        try:
            value: bytes | None = self._columns[family].get(key)
        except KeyError:  # the family is not created yet
            return None
        except Exception as error:
            raise self._failure(error) from error
        return value

    @override
    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key by a loop in C. RocksDB's own method is not faster."""
        if self._limited or family in self._requested:
            return [self.get(family, key) for key in keys]
        try:
            return list(map(self._columns[family].get, keys))
        except Exception as error:
            raise self._failure(error) from error

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        if family in self._requested:
            return
        cursor = self._cursor(family, end)
        cursor.seek(start)
        while cursor.valid():
            yield cursor.key(), cursor.value()
            self.require_room_to_read()
            cursor.next()
        self.require_end(cursor)

    @override
    def scan_back(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        if family in self._requested:
            return
        cursor = self._cursor(family, end)
        cursor.seek_to_last()
        while cursor.valid():
            key = cursor.key()
            if key < start:  # rocksdict 0.3.29 ignores a lower bound
                return
            yield key, cursor.value()
            self.require_room_to_read()
            cursor.prev()
        self.require_end(cursor)

    def _cursor(self, family: str, end: bytes | None) -> RdictIter:
        read = ReadOptions()
        if end is not None:
            read.set_iterate_upper_bound(end)
        self._iterated = True
        self.require_room_to_read()
        return self._columns[family].iter(read)

    def require_end(self, cursor: RdictIter) -> None:
        """Raise an error if `cursor` has stopped because it could not read a row.

        Raises:
            StoreDamagedError: the cursor has stopped before the end.
        """
        try:
            cursor.status()
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return the error to raise for an error of rocksdict, whose text shows the kind."""
        reason = str(error)
        if type(error) is not Exception:
            return error
        damaged = any(word in reason for word in _DAMAGE)
        cure = "See RocksDB's own log, LOG in that directory"
        found = store_error("rocksdb", self._directory, reason, cure, damaged=damaged)
        self.damaged = self.damaged or isinstance(found, StoreDamagedError)
        return found

    @override
    def reader(self) -> StoreReader:
        self._iterated = True
        self.require_room_to_read()
        return _RocksDBReader(self, {name: column.iter() for name, column in self._columns.items()})

    @override
    def family_size(self, family: str) -> FamilySize | None:
        column = self._columns.get(family)
        if column is None:  # not created yet
            return FamilySize(0, 0, is_exact=False)
        rows, size = (native_property(name, self._db, [column]) for name in _SIZES)
        return FamilySize(int(rows), int(size), is_exact=False)

    @override
    def metrics(self) -> Mapping[str, float]:
        """Return metrics: sums over all states, and single values for shared resources."""
        asked = _METRICS | {name.replace("-", "_"): name for name in self._options.properties}
        gauges = {
            name: native_property(key, self._db, self._columns.values())
            for name, key in asked.items()
        }
        if self._options.tickers:
            counted = tickers(self._native)
            gauges |= {name.replace(".", "_"): counted[name] for name in self._options.tickers}
        shared = {"block_cache_bytes": float(self._cache.get_usage())}
        if self._budget is not None:
            shared["budget_bytes"] = float(self._budget.total)
            shared["write_buffer_bytes"] = float(self._budget.write_buffers.get_usage())
        return {**gauges, **shared}

    def checkpoint(self, directory: Path) -> None:
        """Create hard links to all files in `directory`, which must not exist yet."""
        self._require_room(_ROOM_TO_WORK)
        try:
            Checkpoint(self._db).create_checkpoint(str(directory))
        except Exception as error:
            raise self._failure(error) from error

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Delete all keys from `start` up to but not including `end`, without reading them."""
        native = NativeBatch(raw_mode=True)
        native.delete_range(start, end, self._handles[family])
        self._apply(native)

    @override
    def write(self, batch: WriteBatch) -> None:
        if not self._requested.isdisjoint(batch):
            self._create_requested()
        if self._limited:
            rows = chain.from_iterable(batch.values())
            size = sum(len(key) + len(value or b"") for key, value in rows)
            self._require_room(_ROOM_TO_WORK + _BATCH_FACTOR * size)
        native = NativeBatch(raw_mode=True)
        for family, changes in batch.items():
            handle = self._handles[family]
            for key, value in changes:
                if value is None:
                    native.delete(key, handle)
                else:
                    native.put(key, value, handle)
        self._apply(native)

    def _apply(self, native: NativeBatch) -> None:
        self._require_room(_ROOM_TO_WORK + 2 * native.size_in_bytes())
        try:
            self._db.write(native, self._write)
        except Exception as error:
            raise self._failure(error) from error

    def await_compactions(self) -> None:
        """Wait until no compaction runs or is about to begin. Closing the store would stop it.

        A store is open for only one micro-batch at a time. The compaction of a large store takes
        longer, so without waiting it would never end. Reads would then search more and more files.
        With 5,000,000 keys and batches of 21,500, a batch takes 224 ms of processor time with
        waiting, and 379 ms without.
        """
        begun = time.monotonic()
        level = [
            column
            for name, column in self._columns.items()
            if self._options.for_state(name).compaction_style == "level"
        ]
        while not self._closed:
            # On a busy machine, RocksDB's threads may not have begun a pending compaction. This is
            # checked only for the style ``level``: ``universal`` also reports compactions that
            # never begin (measured: with a trigger of 2, after 58 of 60 batches).
            pending = any(c.property_int_value("rocksdb.compaction-pending") for c in level)
            if self._db.property_int_value("rocksdb.num-running-compactions"):
                begun = time.monotonic()
            elif not pending or time.monotonic() - begun > _SECONDS_TO_BEGIN:
                return
            time.sleep(0.001)

    @override
    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        columns = [column for name, column in self._columns.items() if name != META_FAMILY]
        failed = next(filter(None, [_closing(native) for native in (*columns, self._db)]), None)
        # If closing has failed, the database frees its lock with the last reference to it.
        columns.clear()
        self._columns, self._handles = {}, {}
        del self._db
        if failed is not None:
            raise self._failure(failed) from failed


def _closing(native: Rdict) -> Exception | None:
    """Close a column family or database, and return the error if that fails.

    The error has no traceback, because its frames would refer to the column family.
    """
    try:
        native.close()
    except Exception as error:  # noqa: BLE001 - close all, then raise the first error
        return error.with_traceback(None)
    return None
