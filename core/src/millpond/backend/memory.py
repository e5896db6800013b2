"""The memory that the backends of a worker process may use together."""

from __future__ import annotations

import os
import resource

from millpond.config.structuring import share_of_memory
from millpond.errors import ConfigError

__all__ = ["memory_bytes", "process_memory"]


def process_memory() -> int:
    """Bytes that this process may use: its address-space limit, or the machine's memory."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if limit == resource.RLIM_INFINITY else min(limit, physical)


def memory_bytes(given: str, key: str) -> int:
    """The bytes of a budget, which is a size or a share of what this process may use.

    Raises:
        ConfigError: it is neither; names the key.
    """
    try:
        return share_of_memory(given, process_memory())
    except ValueError as error:
        raise ConfigError(key, str(error)) from None
