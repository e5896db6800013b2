"""The rule by which values expire: each has a timestamp, and lives for the TTL from then on."""

from __future__ import annotations

import struct

_LONG_MAX = (1 << 63) - 1
STAMP = struct.Struct(">q")
"""The timestamp of a stored value, in ms since the epoch: eight bytes, big-endian and signed."""


def last_expired(ttl_ms: int, now: int) -> int:
    """Return the newest timestamp that has expired: an entry expires if ``stamp + ttl <= now``.

    As in Flink, the sum is at most 2**63 - 1 ms: a very long TTL expires at the end of time.
    """
    return _LONG_MAX if now >= _LONG_MAX else now - ttl_ms
