"""The options of RocksDB: for all states, for one state, and for a whole process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import attrs
from millpond.config import ByteSize, structure_options
from millpond.config.structuring import names_in
from millpond.errors import ConfigError, brief
from millpond.spi import memory_bytes
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

from millpond_rocksdb.gauges import check_tickers

_MEMORY = "backend.rocksdb.memory"
_FACTORY = "backend.rocksdb.options-factory"
_LEAST_ARENA = 4 << 10
_MOST_ARENA = 1 << 20


@attrs.frozen(eq=False)
class MemoryBudget:
    """The memory that all stores of a process share.

    Attributes:
        total: the budget in bytes.
        cache: the cache of blocks, which also counts the memory of memtables.
        write_buffers: the manager that limits the memory of all memtables.
        mutable_limit: the number of bytes of memtables above which RocksDB writes a memtable to a
            file.
    """

    total: int
    cache: Cache
    write_buffers: WriteBufferManager
    mutable_limit: int


@cache
def memory_budget(total: int, write_buffer_ratio: float) -> MemoryBudget:
    """Return the memory budget of this process. Calls with equal sizes return one object.

    The shares are Flink's: memtables may exceed their limit by half before RocksDB stalls. The
    cache also counts the memory of memtables, so the cache is smaller by that amount.
    """
    cache_bytes = int((3 - write_buffer_ratio) * total / 3)
    buffer_bytes = int(2 * total * write_buffer_ratio / 3)
    shared = Cache(cache_bytes)
    manager = WriteBufferManager.new_write_buffer_manager_with_cache(buffer_bytes, False, shared)
    return MemoryBudget(total, shared, manager, buffer_bytes * 7 // 8)


def arena_block_size(write_buffer_size: int, budget: MemoryBudget | None) -> int:
    """Return the number of bytes by which a memtable grows.

    RocksDB's default is an eighth of the memtable. If that exceeded the share of the budget for
    memtables, RocksDB would write a file after every write. So this function chooses a smaller size
    if necessary.

    Raises:
        ConfigError: the smallest useful size does not fit the budget.
    """
    wanted = min(_MOST_ARENA, max(_LEAST_ARENA, write_buffer_size // 8))
    if budget is None:
        return wanted
    allowed = budget.mutable_limit // 8
    if allowed < _LEAST_ARENA:
        reason = f"{budget.total:,} bytes are too few for memtables to work in; give 1mb or more"
        raise ConfigError(_MEMORY, reason)
    return min(wanted, allowed)


class RocksDBOptionsFactory:
    """The base class of factories, which change rocksdict's options after Millpond has set them.

    A factory must not change ``raw_mode``, atomic flushes, the creation of missing databases and
    column families, or the block cache and write-buffer manager that a process's stores share.
    """

    def create_db_options(self, options: Options) -> Options:
        """Return the database options to use, given the `options` that Millpond has set."""
        return options

    def create_column_options(self, options: Options, state: str) -> Options:
        """Return the options for the column family of `state`, given Millpond's `options`."""
        return options


def load_factory(target: str | None) -> RocksDBOptionsFactory:
    """Return the options factory for ``module:attr``, which is an instance, a class or a function.

    Raises:
        ConfigError: the factory cannot be imported or created.
    """
    if target is None:
        return RocksDBOptionsFactory()
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(_FACTORY, f"expected module:attr, got {brief(target)}")
    try:
        found = getattr(import_module(module), name)
        made = found if isinstance(found, RocksDBOptionsFactory) else found()
    except Exception as error:
        raise ConfigError(_FACTORY, f"{target}: {type(error).__name__}: {error}") from error
    if not isinstance(made, RocksDBOptionsFactory):
        kind = type(made).__name__
        raise ConfigError(_FACTORY, f"{target}: expected a RocksDBOptionsFactory, got {kind}")
    return made


_COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
_STYLES = ("level", "universal")


PREDEFINED: dict[str, dict[str, Any]] = {
    "default": {},
    "spinning-disk-optimized": {
        "compaction_style": "level",
        "max_background_jobs": 4,
        "dynamic_level_bytes": True,
    },
    "spinning-disk-optimized-high-mem": {
        "compaction_style": "level",
        "max_background_jobs": 4,
        "dynamic_level_bytes": True,
        "block_cache_size": 256 << 20,
        "block_size": 128 << 10,
        "max_write_buffer_number": 4,
        "target_file_size": 256 << 20,
    },
    "flash-ssd-optimized": {"max_background_jobs": 4},
}
"""Sets of option values under Flink's names. An option that is configured separately has priority.


The sets for spinning disks use the compaction style ``level``, as in Flink; the others use the
default style.
"""


def _one_of(known: tuple[str, ...]) -> Callable[[Any, Any, str], None]:
    def check(_: Any, __: Any, value: str) -> None:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, got {value!r}")

    return check


@attrs.frozen
class ColumnOptions:
    """The options of one state's column family.

    Attributes:
        write_buffer_size: bytes of a memtable before it is written to a file.
        block_size: bytes of a data block.
        bloom_bits: bits per key of the bloom filter; 0 switches it off.
        compression: ``none``, ``snappy``, ``lz4`` or ``zstd``.
        compaction_trigger: the number of level-0 files that starts a compaction.
        max_write_buffer_number: the largest number of memtables, including the active one.
        target_file_size: bytes of a file of level 1.
        compaction_style: ``universal`` or ``level``. ``universal`` merges files of similar sizes,
            so the small file of a micro-batch does not cause a rewrite of a large file (measured
            with 10,000,000 keys: one batch in ten takes 0.6 s or more, with ``level`` 1.4 s).
            ``level`` needs less disk space during a merge.
        max_size_level_base: only for ``level``: bytes of all files of level 1; each further level
            takes ten times more.
        dynamic_level_bytes: only for ``level``: whether the level sizes follow the size of the
            data.
    """

    write_buffer_size: ByteSize = ByteSize(64 << 20)
    block_size: ByteSize = ByteSize(4 << 10)
    bloom_bits: int = attrs.field(default=10, validator=attrs.validators.ge(0))
    compression: str = attrs.field(default="lz4", validator=_one_of(_COMPRESSIONS))
    compaction_trigger: int = attrs.field(default=8, validator=attrs.validators.ge(2))
    max_write_buffer_number: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    target_file_size: ByteSize = ByteSize(64 << 20)
    compaction_style: str = attrs.field(default="universal", validator=_one_of(_STYLES))
    max_size_level_base: ByteSize = ByteSize(256 << 20)
    dynamic_level_bytes: bool = False


@attrs.frozen
class RocksDBOptions(ColumnOptions):
    """The options of the database, and the defaults for its column families.

    Attributes:
        predefined: a set of other defaults; see PREDEFINED.
        memory: a budget for block cache and memtables of all stores in a worker process, in bytes
            or as a share of the process's memory (``25%``); it replaces ``block_cache_size``.
        write_buffer_ratio: the share of the budget that memtables may take.
        block_cache_size: bytes of the block cache that all states of a worker process share.
        max_background_jobs: threads for flushes and compactions.
        max_open_files: the maximum number of open files; -1 keeps all files open.
        transfer_threads: the number of parallel uploads and downloads of incremental snapshots.
        inline_threshold: the maximum bytes of a file that an incremental snapshot puts into its
            handle.
        options_factory: ``module:attr`` of a ``RocksDBOptionsFactory``, which is called last.
        properties: the RocksDB properties to report as metrics, without ``rocksdb.``.
        tickers: the RocksDB tickers to report as metrics; counting them costs a few percent of the
            time.
        state: options by state name; they override the options of all states.
    """

    predefined: str = "default"
    memory: str | None = None
    write_buffer_ratio: float = attrs.field(
        default=0.5, validator=attrs.validators.and_(attrs.validators.gt(0), attrs.validators.lt(1))
    )
    block_cache_size: ByteSize = ByteSize(64 << 20)
    max_background_jobs: int = attrs.field(default=2, validator=attrs.validators.ge(1))
    max_open_files: int = attrs.field(default=-1, validator=attrs.validators.ge(-1))
    transfer_threads: int = attrs.field(default=4, validator=attrs.validators.ge(1))
    inline_threshold: ByteSize = ByteSize(4 << 10)
    options_factory: str | None = None
    properties: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    tickers: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    state: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> RocksDBOptions:
        """Return the options for a store in this process; raise ConfigError if one is wrong."""
        made = cls.structured(options)
        arena_block_size(made.write_buffer_size, made.budget)
        return made

    @classmethod
    def structured(cls, options: Mapping[str, Any]) -> RocksDBOptions:
        """Return the options under ``backend.rocksdb.``, without checks that depend on the machine.

        Raises:
            ConfigError: an option is unknown or wrong.
        """
        chosen = options.get("predefined", "default")
        if chosen not in PREDEFINED:
            reason = f"expected one of {', '.join(PREDEFINED)}, got {chosen!r}"
            raise ConfigError("backend.rocksdb.predefined", reason)
        preset = {name.replace("_", "-"): value for name, value in PREDEFINED[chosen].items()}
        merged = {**preset, **options}
        made = structure_options(cls, merged, "configuration", "backend.rocksdb")
        if made.memory is not None:
            memory_bytes(made.memory, _MEMORY)
        for state in made.state:
            made.for_state(state)
        load_factory(made.options_factory)
        if made.tickers:
            check_tickers(made.tickers)
        return made

    @property
    def factory(self) -> RocksDBOptionsFactory:
        """The factory that changes RocksDB's options last."""
        return load_factory(self.options_factory)

    @property
    def budget(self) -> MemoryBudget | None:
        """The memory budget that all stores of this process share, or None."""
        if self.memory is None:
            return None
        return memory_budget(memory_bytes(self.memory, _MEMORY), self.write_buffer_ratio)

    def for_state(self, state: str) -> ColumnOptions:
        """Return the options of one state. Configuration keys have ``-`` instead of ``_``."""
        prefix = f"backend.rocksdb.state.{state}"
        own = self.state.get(state.replace("_", "-"), {})
        if not isinstance(own, Mapping):
            raise ConfigError(prefix, "is a section, not a value")
        given = structure_options(ColumnOptions, own, "configuration", prefix)
        names = [key.replace("-", "_") for key in own]
        defaults = {name: getattr(self, name) for name in attrs.fields_dict(ColumnOptions)}
        return ColumnOptions(**{**defaults, **{name: getattr(given, name) for name in names}})


def column_options(
    chosen: ColumnOptions, cache: Cache, budget: MemoryBudget | None = None
) -> Options:
    """Return RocksDB's own options for a column family.

    Raises:
        ConfigError: the memory budget leaves no room for memtables.
    """
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(chosen.block_size)
    if chosen.bloom_bits:
        table.set_bloom_filter(chosen.bloom_bits, block_based=False)
    # Filters and indexes are not in the block cache. The cache is split into shards, and RocksDB
    # would read a filter larger than a shard again at every get (measured: 80 µs instead of 5).
    table.set_cache_index_and_filter_blocks(False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(chosen.write_buffer_size)
    options.set_arena_block_size(arena_block_size(chosen.write_buffer_size, budget))
    options.set_max_write_buffer_number(chosen.max_write_buffer_number)
    options.set_target_file_size_base(chosen.target_file_size)
    options.set_compaction_style(getattr(DBCompactionStyle, chosen.compaction_style)())
    options.set_max_bytes_for_level_base(chosen.max_size_level_base)
    options.set_level_compaction_dynamic_level_bytes(chosen.dynamic_level_bytes)
    options.set_compression_type(getattr(DBCompressionType, chosen.compression)())
    # RocksDB soon compacts a file if a quarter of its rows are tombstones, to free their space.
    options.add_compact_on_deletion_collector_factory(4096, 1024, 0.25)
    options.set_level_zero_file_num_compaction_trigger(chosen.compaction_trigger)
    return options


def database_options(chosen: RocksDBOptions) -> Options:
    """Return RocksDB's own options for the database.

    There is no write-ahead log, because the directory is only a local copy of the state. Atomic
    flushes keep all column families at one common version.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_paranoid_checks(True)
    options.set_max_background_jobs(chosen.max_background_jobs)
    options.set_max_open_files(chosen.max_open_files)
    # By default RocksDB starts 16 threads to open files, in each micro-batch. Opening a store of 8
    # files took 4.9 ms with 16 threads and 3.7 with two. For 120 files it took 7.5 and 6.4 ms.
    options.set_max_file_opening_threads(2)
    if chosen.budget is not None:
        options.set_write_buffer_manager(chosen.budget.write_buffers)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1 << 20)
    if chosen.tickers:
        options.enable_statistics()
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
