"""The options of the RocksDB backend, for all states or for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from millpond.config import ByteSize, structure_options
from millpond.config.structuring import names_in
from millpond.errors import ConfigError
from millpond.spi import memory_bytes
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    Options,
)

from millpond_rocksdb.gauges import required_tickers
from millpond_rocksdb.memory_budget import (
    MemoryBudget,
    arena_block_size,
    memory_budget,
)
from millpond_rocksdb.options_factory import RocksDBOptionsFactory, load_factory

_COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
_STYLES = ("level", "universal")
_MEMORY = "backend.rocksdb.memory"


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
"""Sets of options under Flink's names; an option configured by itself overrides the set.

Those for disks are of ``level`` as in Flink; ``flash-ssd-optimized`` keeps the default style.
"""


def _one_of(known: tuple[str, ...]) -> Callable[[Any, Any, str], None]:
    def check(_: Any, __: Any, value: str) -> None:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}, got {value!r}")

    return check


@attrs.frozen
class ColumnOptions:
    """Options of one state's column family.

    Attributes:
        write_buffer_size: bytes of a memtable before it is written to a file.
        block_size: bytes of a data block.
        bloom_bits: bits per key of the bloom filter; 0 switches it off.
        compression: ``none``, ``snappy``, ``lz4`` or ``zstd``.
        compaction_trigger: the number of level-0 files that starts a compaction.
        max_write_buffer_number: the largest number of memtables, including the active one.
        target_file_size: bytes of a file of level 1.
        compaction_style: ``universal``, which merges files of like sizes, so that the small file of
            each micro-batch does not have a large one rewritten (measured with 10,000,000 keys: a
            batch in ten takes 0.6 s or more, with ``level`` 1.4 s); or ``level``, which takes less
            room while it merges.
        max_size_level_base: ``level``: bytes of all files of level 1; each further level takes ten
            times more.
        dynamic_level_bytes: ``level``: whether the level sizes follow the size of the data.
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
    """Options of the database, and the defaults of its column families.

    Attributes:
        predefined: a set of other defaults; see PREDEFINED.
        memory: a budget for block cache and memtables of all stores in a worker process, in bytes
            or as a share of the process's memory (``25%``); it replaces ``block_cache_size``.
        write_buffer_ratio: the share of the budget that memtables may take.
        block_cache_size: bytes of the block cache that all states of a worker process share.
        max_background_jobs: threads for flushes and compactions.
        max_open_files: -1 keeps all files open.
        transfer_threads: incremental snapshots: parallel uploads and downloads.
        inline_threshold: incremental snapshots: the handle contains files up to this many bytes.
        options_factory: ``module:attr`` of a ``RocksDBOptionsFactory``, called last.
        properties: RocksDB's properties that are gauges too, without ``rocksdb.``.
        tickers: RocksDB's tickers that are gauges too; counting costs some percent of the time.
        state: options by state name; they override the ones given here.
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
        """Return the options for a store of this process; ConfigError if one is wrong."""
        made = cls.structured(options)
        arena_block_size(made.write_buffer_size, made.budget)
        return made

    @classmethod
    def structured(cls, options: Mapping[str, Any]) -> RocksDBOptions:
        """Structure the options under ``backend.rocksdb.``, on any machine.

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
            required_tickers(made.tickers)
        return made

    @property
    def factory(self) -> RocksDBOptionsFactory:
        """The factory that may change RocksDB's options last."""
        return load_factory(self.options_factory)

    @property
    def budget(self) -> MemoryBudget | None:
        """The budget that all stores of this process share, if one is configured."""
        if self.memory is None:
            return None
        return memory_budget(memory_bytes(self.memory, _MEMORY), self.write_buffer_ratio)

    def for_state(self, state: str) -> ColumnOptions:
        """Return the options of one state; configuration keys have ``-`` instead of ``_``."""
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
        ConfigError: the memory budget leaves memtables no room.
    """
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(chosen.block_size)
    if chosen.bloom_bits:
        table.set_bloom_filter(chosen.bloom_bits, block_based=False)
    # Filters and indexes are outside the block cache: the cache is split into shards, and RocksDB
    # would reread a filter larger than a shard at every get (measured: 80 µs instead of 5).
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
    # RocksDB soon compacts a file with a quarter tombstones, so removed entries free space.
    options.add_compact_on_deletion_collector_factory(4096, 1024, 0.25)
    options.set_level_zero_file_num_compaction_trigger(chosen.compaction_trigger)
    return options


def database_options(chosen: RocksDBOptions) -> Options:
    """Return RocksDB's own options for the database.

    There is no write-ahead log: the directory is a local copy of confirmed snapshots, and
    atomic flushes keep its column families at one common version.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_atomic_flush(True)
    options.set_paranoid_checks(True)
    options.set_max_background_jobs(chosen.max_background_jobs)
    options.set_max_open_files(chosen.max_open_files)
    # RocksDB would start 16 threads for the few files there are, in each micro-batch: to open a
    # store of 8 files took 4.9 ms with them, 3.7 with two; one of 120 files 7.5, and 6.4.
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
