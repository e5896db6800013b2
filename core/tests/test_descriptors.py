"""Descriptors: names, TTL, queries."""

from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors


@pytest.mark.parametrize("name", ["", None, "default", "_millpond_x", "a\0b", "x" * 256])
def test_refused_names(name):
    """Empty, reserved, overlong names and control characters are refused."""
    with pytest.raises(errors.StateNameError):
        mp.ValueStateDescriptor(name, int)


def test_missing_parts():
    """None is not a type and no function."""
    with pytest.raises(errors.NullValueError):
        mp.ValueStateDescriptor("x", None)
    with pytest.raises(errors.NullValueError):
        mp.ReducingStateDescriptor("x", None, int)


def test_ttl_default_and_queries_exclude_each_other():
    """TTL goes with neither a default nor a query name."""
    ttl = mp.StateTtlConfig(timedelta(seconds=1))
    with pytest.raises(errors.ConfigError):
        mp.ValueStateDescriptor("x", int, default=1).enable_time_to_live(ttl)
    queryable = mp.ValueStateDescriptor("x", int).set_queryable("q")
    with pytest.raises(errors.ConfigError):
        queryable.enable_time_to_live(ttl)
    with pytest.raises(errors.ConfigError):
        queryable.set_queryable("again")
    expiring = mp.ValueStateDescriptor("x", int)
    assert expiring.enable_time_to_live(ttl) is expiring
    with pytest.raises(errors.ConfigError):
        expiring.set_queryable("q")


def test_ttl_builder():
    """PyFlink's builder gives the same settings as the constructor."""
    built = (
        mp.StateTtlConfig.new_builder(timedelta(seconds=1))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .set_ttl(timedelta(milliseconds=1500))
        .build()
    )
    assert built == mp.StateTtlConfig(
        timedelta(milliseconds=1500),
        mp.UpdateType.ON_READ_AND_WRITE,
        mp.StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP,
    )
    assert built.ttl_ms == 1500


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), 5])
def test_wrong_ttl(ttl):
    """A TTL is a timedelta of at least a millisecond."""
    with pytest.raises(errors.ConfigError):
        mp.StateTtlConfig(ttl)


def test_expiry_is_exact_and_does_not_overflow():
    """An entry expires exactly at timestamp + ttl, and a huge TTL never."""
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10))
    assert not ttl.expired(5, 14)
    assert ttl.expired(5, 15)
    assert not mp.StateTtlConfig(timedelta.max).expired(2**63 - 10, 2**63 - 2)
