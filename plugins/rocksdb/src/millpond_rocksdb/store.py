"""RocksDB as a ByteStore: a column family per state, no write-ahead log, atomic flushes."""

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
"""Gauges by name, with the RocksDB property that each reads."""


_DAMAGE = ("Corruption", os.strerror(errno.ENOENT))
"""Texts of errors about damage: a missing file counts as damage."""
_ROOM_TO_OPEN = 128 << 20
_ROOM_TO_WORK = 64 << 20
_ROOM_TO_READ = 32 << 20
"""Bytes of address space for RocksDB's threads, memtables, compactions and blocks: with less, the
process dies without raising an error (tried: opening with 64 MB too few)."""
_BATCH_FACTOR = 4
"""A batch needs at most this many times the bytes of its rows: its buffer doubles when it grows."""
_SECONDS_TO_BEGIN = 0.5
"""A compaction that does not begin within these seconds is not awaited: none begins after a disk
error, or if an options factory turns compactions off."""
_MADE_SINGLY = 8
"""To create more column families than this, reopen the store, which creates all at once."""


class _RocksDBReader(StoreReader):
    """An iterator per column family: each sees the family as it was when the iterator was made.

    RocksDB's snapshots are no use here: in rocksdict 0.3.29 iterators ignore them (gets do not).
    """

    def __init__(self, store: RocksDBStore, cursors: dict[str, RdictIter]) -> None:
        self._store = store
        self._cursors = cursors

    @override
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        cursor = self._cursors.get(family)
        if cursor is None:  # it had not been created
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
    """Return the process's block cache of a size, for all stores with that cache size.

    It keeps its blocks when a store is closed and reopened, as happens in each micro-batch
    (measured: 120 instead of 198 ms for 50,000 rows).
    """
    return Cache(size)


class RocksDBStore(ByteStore):
    """One RocksDB in one directory.

    Args:
        directory: its directory.
        options: its options.
        compacts: whether files are merged in the background; False for a store that is only read.

    Writes reach the disk when the store is closed or a memtable is full, for all column families
    together; after a kill the store reopens at an older write.
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
        # 18 s for 200, one after the other). So the first write to one creates all of these.
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
        """Raise StoreFullError if the process has an address-space limit and is close to it."""
        if self._limited:
            self._require_room(_ROOM_TO_READ)

    @override
    def families(self) -> list[str]:
        return [*self._columns, *self._requested]

    @override
    def create_family(self, family: str) -> None:
        """Note the family; until the first write creates it, reads find it empty."""
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
            # An open cursor keeps the store open, and RocksDB does not report it.
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
        """Reopen the store with the families `more`; if that fails, reopen it without them."""
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
        except KeyError:  # it is not created yet
            return None
        except Exception as error:
            raise self._failure(error) from error
        return value

    @override
    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read in a loop in C; RocksDB's own method for many keys is not faster."""
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
        """Raise if a stopped cursor is not at the end: a cursor also stops if it cannot read on.

        Raises:
            StoreDamagedError: the cursor could not read on.
        """
        try:
            cursor.status()
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return the error to raise for an error of rocksdict, whose errors differ by text only."""
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
    def metrics(self) -> Mapping[str, float]:
        """Return sums over all states, and one value each for shared resources."""
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
        """Make a native checkpoint (hard links) in a directory that does not exist yet."""
        self._require_room(_ROOM_TO_WORK)
        try:
            Checkpoint(self._db).create_checkpoint(str(directory))
        except Exception as error:
            raise self._failure(error) from error

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Delete all keys from ``start`` up to ``end``, without reading them."""
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
        """Wait until no compaction runs or is about to begin: closing the store would abandon it.

        A store is open for one micro-batch at a time. The compaction of a large store takes longer
        and would never end. Reads would then search more and more files (measured with 5,000,000
        keys and batches of 21,500: 224 instead of 379 ms of processor time a batch).
        """
        begun = time.monotonic()
        level = [
            column
            for name, column in self._columns.items()
            if self._options.for_state(name).compaction_style == "level"
        ]
        while not self._closed:
            # RocksDB's threads may not have begun a pending compaction, on a busy machine. Only the
            # level style counts: the universal one also reports compactions that it never begins
            # (measured: with a trigger of 2, after 58 of 60 batches).
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
        # A database that failed to close frees its lock when its last reference goes away.
        columns.clear()
        self._columns, self._handles = {}, {}
        del self._db
        if failed is not None:
            raise self._failure(failed) from failed


def _closing(native: Rdict) -> Exception | None:
    """Close a column family or database; return its error, without frames that refer to it."""
    try:
        native.close()
    except Exception as error:  # noqa: BLE001 - close all, then raise the first error
        return error.with_traceback(None)
    return None
