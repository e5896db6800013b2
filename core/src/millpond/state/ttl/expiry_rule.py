"""The rule for expired values: a value expires when its timestamp is as old as the TTL."""

from __future__ import annotations

import struct

_LONG_MAX = (1 << 63) - 1
STAMP = struct.Struct(">q")
"""The stored form of a timestamp in ms since the epoch: eight bytes, big-endian and signed."""


def last_expired(ttl_ms: int, now: int) -> int:
    """Return the newest timestamp that has expired at `now`, i.e. for which ``stamp + ttl <= now``.

    As in Flink, the sum is limited to 2**63 - 1 ms, so a very long time to live ends then.
    """
    return _LONG_MAX if now >= _LONG_MAX else now - ttl_ms
