"""The timestamp of a stored value with a time to live, and its expiry."""

from __future__ import annotations

import struct

STAMP = struct.Struct(">q")
"""A time in ms since the epoch: eight bytes, big-endian and signed."""
_LONG_MAX = (1 << 63) - 1


def last_expired(ttl_ms: int, now: int) -> int:
    """Return the newest stamp that has expired: an entry expires if ``stamp + ttl <= now``.

    The sum is capped at 2**63 - 1 ms, as Flink's is: a very long TTL expires at the end of time.
    """
    return _LONG_MAX if now >= _LONG_MAX else now - ttl_ms
