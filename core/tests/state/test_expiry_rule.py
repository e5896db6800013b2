"""The rule of expiry is `stamp + ttl <= now`, limited to 64 bits as in Flink, and written once."""

import re
from pathlib import Path

import millpond
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond.state.ttl.expiry_rule import last_expired

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(deadline=None)
@given(INT64, st.integers(1, (1 << 63) - 1), INT64)
def test_the_rule_is_flink_s(stamp, ttl, now):
    """An entry expires when its stamp plus the TTL, at most 2**63 - 1, is reached."""
    assert (stamp <= last_expired(ttl, now)) == (min(stamp + ttl, (1 << 63) - 1) <= now)


def test_the_rule_is_written_once():
    """No other module adds a TTL to a stamp or subtracts it."""
    found = [
        path.name
        for path in Path(millpond.__file__).parent.rglob("*.py")
        if re.search(r"[+-] *(self\.)?(_?\w+\.)*_?ttl_ms", path.read_text())
    ]
    assert found == ["expiry_rule.py"]
