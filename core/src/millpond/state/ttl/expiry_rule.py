"""The rule for expired values: a value expires when its timestamp is as old as the TTL.

If an entry was written with a time to live of its own, it has an *own expiry* instead of a
timestamp: the time of expiry minus 2**62. So the entry expires at the same time if the TTL of the
state changes. Own expiries are less than -2**61, and timestamps are not.
"""

from __future__ import annotations

import struct

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
_OWN = 1 << 62
_EARLIEST = -(1 << 61)
"""The lowest timestamp in ms, 73 million years before 1970. Own expiries are lower."""

STAMP = struct.Struct(">q")
"""The stored form of a timestamp in ms since the epoch: eight bytes, big-endian and signed."""


def last_expired(ttl_ms: int, now: int) -> int:
    """Return the newest timestamp that has expired at `now`, i.e. for which ``stamp + ttl <= now``.

    As in Flink, the sum is limited to 2**63 - 1 ms, so a very long time to live ends then.
    """
    return _LONG_MAX if now >= _LONG_MAX else now - ttl_ms


def lives_on(stamp: int, now: int) -> bool:
    """Return whether `stamp` is an own expiry that is later than `now`.

    An own expiry is always less than ``last_expired``, so only an entry that seems to have expired
    needs this check.
    """
    return stamp < _EARLIEST and stamp + _OWN > now


def has_expired(stamp: int, ttl_ms: int, now: int) -> bool:
    """Return whether an entry with this timestamp or own expiry has expired at `now`."""
    return stamp <= last_expired(ttl_ms, now) and not lives_on(stamp, now)


def own_expiry(ttl_ms: int, now: int) -> int:
    """Return the own expiry of an entry that is written at `now` and lives for `ttl_ms`."""
    return max(min(now + ttl_ms, -_EARLIEST - 1), -_OWN) - _OWN


def is_renewed(stamp: int, now: int) -> bool:
    """Return whether an access at `now` renews `stamp`. It does not renew an own expiry."""
    return _EARLIEST <= stamp <= now


def as_timestamp(stamp: int, ttl_ms: int) -> int:
    """Return the timestamp that expires at the same time as the own expiry `stamp`."""
    return max(stamp + _OWN - ttl_ms, _LONG_MIN)
