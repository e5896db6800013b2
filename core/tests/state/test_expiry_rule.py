"""The rule of expiry is `stamp + ttl <= now`, limited to 64 bits as in Flink, and written once."""

import re
from pathlib import Path

import millpond
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond.state.ttl.expiry_rule import (
    as_timestamp,
    has_expired,
    is_renewed,
    last_expired,
    own_expiry,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(deadline=None)
@given(INT64, st.integers(1, (1 << 63) - 1), INT64)
def test_the_rule_is_flink_s(stamp, ttl, now):
    """An entry expires when its stamp plus the TTL, at most 2**63 - 1, is reached."""
    assert (stamp <= last_expired(ttl, now)) == (min(stamp + ttl, (1 << 63) - 1) <= now)


TIMES = st.integers(-(1 << 58), 1 << 58)
TTLS = st.integers(1, 1 << 57)


@settings(deadline=None)
@given(TIMES, TTLS, TTLS, TIMES)
def test_an_own_expiry_is_independent_of_the_ttl(written, own, ttl, now):
    """An entry with its own TTL expires by it, whatever the TTL of the state is."""
    stamp = own_expiry(own, written)
    assert not is_renewed(stamp, now)
    assert has_expired(stamp, ttl, now) == (written + own <= now)
    assert has_expired(as_timestamp(stamp, ttl), ttl, now) == (written + own <= now)


@settings(deadline=None)
@given(TIMES, TTLS, TIMES)
def test_a_timestamp_is_no_own_expiry(stamp, ttl, now):
    """The timestamps of entries without their own TTL expire by the TTL of the state."""
    assert is_renewed(stamp, now) == (stamp <= now)
    assert has_expired(stamp, ttl, now) == (stamp + ttl <= now)


def test_the_rule_is_written_once():
    """No other module adds a TTL to a stamp or subtracts it."""
    found = [
        path.name
        for path in Path(millpond.__file__).parent.rglob("*.py")
        if re.search(r"[+-] *(self\.)?(_?\w+\.)*_?ttl_ms", path.read_text())
    ]
    assert found == ["expiry_rule.py"]
