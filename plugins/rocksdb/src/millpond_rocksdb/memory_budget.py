"""One memory budget for all stores of a worker process: block cache and write buffers.

The shares are Flink's: memtables may exceed their limit by half before RocksDB stalls, so the
cache, which also accounts for them, is smaller by that amount.
"""

from __future__ import annotations

from functools import cache

import attrs
from millpond.errors import ConfigError
from rocksdict import Cache, WriteBufferManager

_LEAST_ARENA = 4 << 10
_MOST_ARENA = 1 << 20


@attrs.frozen(eq=False)
class MemoryBudget:
    """The memory that all stores of a process share.

    Attributes:
        total: the budget in bytes.
        cache: holds blocks, and accounts for memtables.
        write_buffers: keeps all memtables together below their share.
        mutable_limit: above this many bytes of memtables RocksDB writes one to a file.
    """

    total: int
    cache: Cache
    write_buffers: WriteBufferManager
    mutable_limit: int


@cache
def memory_budget(total: int, write_buffer_ratio: float) -> MemoryBudget:
    """Return the budget of this process; the same object for the same sizes."""
    cache_bytes = int((3 - write_buffer_ratio) * total / 3)
    buffer_bytes = int(2 * total * write_buffer_ratio / 3)
    shared = Cache(cache_bytes)
    manager = WriteBufferManager.new_write_buffer_manager_with_cache(buffer_bytes, False, shared)
    return MemoryBudget(total, shared, manager, buffer_bytes * 7 // 8)


def arena_block_size(write_buffer_size: int, budget: MemoryBudget | None) -> int:
    """Bytes by which memtables grow, small enough that an empty one does not fill the budget.

    RocksDB by default takes an eighth of the memtable. If that exceeded the budget's share for
    memtables, RocksDB would write a file after every write; so this chooses a smaller size.

    Raises:
        ConfigError: no sensible size is left.
    """
    wanted = min(_MOST_ARENA, max(_LEAST_ARENA, write_buffer_size // 8))
    if budget is None:
        return wanted
    allowed = budget.mutable_limit // 8
    if allowed < _LEAST_ARENA:
        reason = f"{budget.total:,} bytes are too few for memtables to work in; give 1mb or more"
        raise ConfigError("backend.rocksdb.memory", reason)
    return min(wanted, allowed)
