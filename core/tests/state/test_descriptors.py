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
    """A missing type or function is refused."""
    with pytest.raises(errors.NullValueError):
        mp.ValueStateDescriptor("x", None)
    with pytest.raises(errors.NullValueError):
        mp.ReducingStateDescriptor("x", None, int)


def test_ttl_default_and_queries_exclude_each_other():
    """A TTL cannot be combined with a default or a query name."""
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


def test_ttl_in_pyflinks_spelling():
    """PyFlink's spellings of enums, settings and getters give the same settings."""
    built = (
        mp.StateTtlConfig.new_builder(timedelta(seconds=1))
        .set_update_type(mp.StateTtlConfig.UpdateType.OnReadAndWrite)
        .set_state_visibility(mp.StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp)
        .set_ttl_time_characteristic(mp.StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)
        .use_processing_time()
        .cleanup_incrementally(7, True)
        .build()
    )
    assert built.get_ttl() == timedelta(seconds=1)
    assert built.get_update_type() is mp.UpdateType.ON_READ_AND_WRITE
    assert built.get_state_visibility() is mp.StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
    assert built.get_ttl_time_characteristic() is mp.TtlTime.PROCESSING_TIME
    assert built.get_cleanup_strategies().incremental_size == 7
    assert mp.UpdateType.OnCreateAndWrite is mp.UpdateType.ON_CREATE_AND_WRITE
    assert mp.StateVisibility.NeverReturnExpired is mp.StateVisibility.NEVER_RETURN_EXPIRED


def test_cleanup_in_compactions_is_cleanup_in_the_background():
    """The setting for RocksDB's compactions switches the background clean-up on, and its arguments are checked."""
    builder = mp.StateTtlConfig.new_builder(timedelta(seconds=1)).disable_cleanup_in_background()
    assert not builder.build().cleanup.in_background
    assert builder.cleanup_in_rocksdb_compact_filter(1000).build().cleanup.in_background
    with pytest.raises(errors.ArgumentTypeError):
        builder.cleanup_in_rocksdb_compact_filter(1000, 5)


def test_disabled_ttl_takes_ttl_back():
    """With UpdateType.DISABLED nothing expires, so a default value is allowed."""
    disabled = mp.StateTtlConfig(timedelta(seconds=1), mp.UpdateType.Disabled)
    assert not disabled.is_enabled()
    expiring = mp.ValueStateDescriptor("x", int).enable_time_to_live(
        mp.StateTtlConfig(timedelta(seconds=1))
    )
    assert expiring.enable_time_to_live(disabled).ttl_config is None
    with_default = mp.ValueStateDescriptor("x", int, default=1)
    assert with_default.enable_time_to_live(disabled).ttl_config is None


def test_descriptors_are_equal_by_class_and_name():
    """As in Flink, descriptors are equal by class and name, and can be dictionary keys."""
    assert mp.ValueStateDescriptor("x", int) == mp.ValueStateDescriptor("x", str)
    assert mp.ValueStateDescriptor("x", int) != mp.ValueStateDescriptor("y", int)
    assert mp.ValueStateDescriptor("x", int) != mp.ListStateDescriptor("x", int)
    assert {mp.ValueStateDescriptor("x", int): 1}[mp.ValueStateDescriptor("x", str)] == 1


def test_getters_of_descriptors():
    """PyFlink's getters give the name and the functions."""
    add, mean = max, Mean()
    assert mp.ReducingStateDescriptor("x", add, int).get_reduce_function() is add
    described = mp.AggregatingStateDescriptor("y", mean, tuple[float, int])
    assert described.get_agg_function() is mean
    assert described.get_name() == "y"


class Mean(mp.AggregateFunction):
    """Aggregate function of the mean."""

    def create_accumulator(self):
        return 0.0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), 5])
def test_wrong_ttl(ttl):
    """A TTL is a timedelta of at least a millisecond."""
    with pytest.raises(errors.ConfigError):
        mp.StateTtlConfig(ttl)


def test_expiry_is_exact_and_does_not_overflow():
    """An entry expires exactly at timestamp + ttl; with a huge TTL it never expires."""
    ttl = mp.StateTtlConfig(timedelta(milliseconds=10))
    assert not ttl.expired(5, 14)
    assert ttl.expired(5, 15)
    assert not mp.StateTtlConfig(timedelta.max).expired(2**63 - 10, 2**63 - 2)
