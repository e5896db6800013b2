"""Every scalar of NumPy and pandas at every place that takes users' values.

The result depends only on the scalar: it becomes the equal Python value, or a null, or it is
refused. The tests are all combinations of scalars and places.
"""

import datetime as dt
import sys
from decimal import Decimal

import millpond as mp
import numpy as np
import pandas as pd
import pytest
from millpond import errors
from millpond.operator.arrow_results import python_values
from millpond_spark.values.output_frames import OutputCodec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
ZONED = MOMENT.replace(tzinfo=dt.UTC)
MISSING, REFUSED = object(), object()

INTS = [
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.longlong,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
]
SCALARS = [
    *[(kind(100), wanted, wanted(100)) for kind in INTS for wanted in (int, float, Decimal)],
    (np.array(7), int, 7),
    (np.array([7, 8]), int, REFUSED),
    (np.int64(1), bool, REFUSED),
    (np.int64(1), str, REFUSED),
    (np.uint64(2**64 - 1), float, REFUSED),
    *[(kind(0.1), float, float(kind(0.1))) for kind in (np.float16, np.float32, np.float64)],
    (np.float64(1.0), int, REFUSED),
    (np.float64(1.0), Decimal, REFUSED),
    (np.longdouble(0.1), float, REFUSED),
    (np.complex128(1), float, REFUSED),
    (np.bool_(True), bool, True),
    (np.bool_(True), int, REFUSED),
    (np.bool_(True), float, REFUSED),
    (np.str_("a\0"), str, "a\0"),
    (np.str_("a"), bytes, REFUSED),
    (np.bytes_(b"a\0"), bytes, b"a\0"),
    (np.bytes_(b"a"), str, REFUSED),
    (np.void(b"ab"), bytes, REFUSED),
    (np.datetime64("2024-01-02"), dt.date, dt.date(2024, 1, 2)),
    (np.datetime64("2024-01-02"), dt.datetime, REFUSED),
    *[(np.datetime64("2024-01-02", unit), dt.datetime, dt.datetime(2024, 1, 2))
      for unit in ("h", "m", "s", "ms", "us", "ns")],
    (np.datetime64(MOMENT, "us"), dt.datetime, MOMENT),
    (np.datetime64(MOMENT, "us"), dt.date, REFUSED),
    (np.datetime64(1, "ns"), dt.datetime, REFUSED),
    (np.datetime64("20240-01-02", "s"), dt.datetime, REFUSED),
    (np.datetime64("20240-01-02"), dt.date, REFUSED),
    (np.datetime64("NaT"), dt.datetime, MISSING),
    *[(np.timedelta64(10**9, unit), dt.timedelta, dt.timedelta(seconds=seconds))
      for unit, seconds in (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))],
    (np.timedelta64(1, "W"), dt.timedelta, dt.timedelta(7)),
    (np.timedelta64(1, "M"), dt.timedelta, REFUSED),
    (np.timedelta64(1), dt.timedelta, REFUSED),
    (np.timedelta64(1), int, REFUSED),
    (np.timedelta64(1, "ns"), dt.timedelta, REFUSED),
    (np.timedelta64("NaT"), dt.timedelta, MISSING),
    (pd.Timestamp(MOMENT), dt.datetime, MOMENT),
    (pd.Timestamp(ZONED).tz_convert("Asia/Tokyo"), dt.datetime, ZONED),
    (pd.Timestamp(MOMENT), dt.date, REFUSED),
    (pd.Timestamp(1), dt.datetime, REFUSED),
    (pd.Timedelta("1 day 5us"), dt.timedelta, dt.timedelta(1, 0, 5)),
    (pd.Timedelta("5s").as_unit("s"), dt.timedelta, dt.timedelta(0, 5)),
    (pd.Timedelta(1), dt.timedelta, REFUSED),
    (pd.NaT, dt.datetime, MISSING),
    (pd.NaT, dt.timedelta, MISSING),
    *[(pd.NA, kind, MISSING) for kind in (int, float, bool, str, Decimal, dt.date)],
    (pd.Period("2024-01"), dt.date, REFUSED),
    (pd.Interval(0, 1), float, REFUSED),
]  # fmt: skip

# ---------------------------------------------------------------- state


def of_states(use):
    """Return a place in a heap backend: a function that writes a value and reads it again."""

    def place(kind, value):
        with mp.open_keyed_backend("heap", key_type=str) as backend:
            backend.set_current_key("k")
            return use(backend.get_partitioned_state, kind, value)

    return place


def value_state(get, kind, value, make=lambda value: value, read=lambda value: value):
    state = get(mp.ValueStateDescriptor("v", kind))
    state.update(make(value))
    return read(state.value())


def map_key(get, kind, value):
    state = get(mp.MapStateDescriptor("m", kind, int))
    state.put(value, 1)
    assert state.contains(value)
    return next(iter(state.keys()))


def map_value(get, kind, value):
    state = get(mp.MapStateDescriptor("m", str, kind))
    state.put("a", value)
    return state.get("a", "nothing")


def list_element(get, kind, value):
    state = get(mp.ListStateDescriptor("l", kind))
    state.add(value)
    return state.get()[0]


def reduced(get, kind, value):
    state = get(mp.ReducingStateDescriptor("r", lambda a, b: b, kind))
    state.add(value)
    return state.get()


def with_ttl(get, kind, value):
    described = mp.ValueStateDescriptor("t", kind)
    state = get(described.enable_time_to_live(mp.StateTtlConfig(dt.timedelta(1))))
    state.update(value)
    return state.value()


def as_key(kind, value):
    with mp.open_keyed_backend("heap", key_type=kind) as backend:
        backend.set_current_key(value)
        return backend.current_key


def as_first_key(kind, value):
    """Use the scalar as the first key, from which the key type is inferred."""
    (found,) = mp.local.run(Key(), [{"k": value}], key="k")
    assert type(found) is kind
    return found


class Key(mp.KeyedProcessFunction):
    """Function that yields its key."""

    def process_element(self, row, context):
        yield context.current_key


def in_operator_state(kind, value):
    with mp.open_operator_backend() as backend:
        state = backend.get_list_state(mp.ListStateDescriptor("l", kind))
        state.add(value)
        return state.get()[0]


def in_broadcast_state(kind, value):
    with mp.open_operator_backend() as backend:
        state = backend.get_broadcast_state(mp.MapStateDescriptor("b", kind, kind))
        state.put(value, value)
        assert state.keys()
        return state.get(value)


REQUIRED = {
    "value": of_states(value_state),
    "with TTL": of_states(with_ttl),
    "map key": of_states(map_key),
    "map value": of_states(map_value),
    "list element": of_states(list_element),
    "reduced": of_states(reduced),
    "in a list": of_states(lambda get, kind, value: value_state(
        get, list[kind], value, lambda v: [v], lambda v: v[0])),
    "in a tuple": of_states(lambda get, kind, value: value_state(
        get, tuple[kind, int], value, lambda v: (v, 1), lambda v: v[0])),
    "a dict's key": of_states(lambda get, kind, value: value_state(
        get, dict[kind, int], value, lambda v: {v: 1}, lambda v: next(iter(v)))),
    "key": as_key,
    "composite key": lambda kind, value: as_key(tuple[kind, int], (value, 1))[0],
    "operator state": in_operator_state,
    "broadcast state": in_broadcast_state,
}  # fmt: skip
OPTIONAL = {
    "optional value": of_states(lambda get, kind, value: value_state(get, kind | None, value)),
    "optional with TTL": of_states(lambda get, kind, value: with_ttl(get, kind | None, value)),
    "optional map value": of_states(lambda get, kind, value: map_value(get, kind | None, value)),
    "optional in a list": of_states(lambda get, kind, value: value_state(
        get, list[kind | None], value, lambda v: [v], lambda v: v[0])),
    "in a union": of_states(lambda get, kind, value: value_state(
        get, kind | dict[str, int] | None, value)),
    "optional in a key": lambda kind, value: as_key(tuple[kind | None, int], (value, 1))[0],
}  # fmt: skip

# ---------------------------------------------------------------- columns and frames

SPARK = {
    int: LongType(), float: DoubleType(), Decimal: DecimalType(20, 0), bool: BooleanType(),
    str: StringType(), bytes: BinaryType(), dt.date: DateType(), dt.timedelta: DayTimeIntervalType(),
}  # fmt: skip


def spark_type(kind, value):
    zoned = getattr(value, "tzinfo", None) is not None
    return SPARK.get(kind) or (TimestampType() if zoned else TimestampNTZType())


def column(declared, make):
    """Return a place in an output column: a function that returns the encoded value."""

    def place(kind, value, wanted):
        codec = OutputCodec.from_schema(StructType().add("c", declared(spark_type(kind, wanted))))
        row = (make(value),)
        codec.check(row, "uid")
        return codec.columns([row], "uid")[0].to_pylist()

    return place


COLUMNS = {
    "column": column(lambda kind: kind, lambda value: value),
    "array": column(ArrayType, lambda value: [value]),
    "struct": column(lambda kind: StructType().add("f", kind), lambda value: (value,)),
    "map value": column(lambda kind: MapType(StringType(), kind), lambda value: {"a": value}),
}
MAP_KEYS = {"map key": column(lambda kind: MapType(kind, LongType()), lambda value: {value: 1})}


KEYED = {"key", "composite key", "map key", "optional in a key"}


def expected_in(place, wanted):
    """Return the expected result of a place; a key's moment is in UTC."""
    naive = isinstance(wanted, dt.datetime) and wanted.tzinfo is None
    return wanted.replace(tzinfo=dt.UTC) if naive and place in KEYED else wanted


def fits(value, place):
    """Return whether a place can hold a value: a dict needs hashable keys."""
    if "key" in place:
        try:
            hash(value)
        except (TypeError, ValueError):
            return False
    return True


def named(table):
    return [f"{type(value).__name__} {value!r} as {kind.__name__}" for value, kind, *_ in table]


every_scalar = pytest.mark.parametrize(("value", "kind", "wanted"), SCALARS, ids=named(SCALARS))


@every_scalar
def test_state_takes_the_value_that_a_scalar_equals(value, kind, wanted):
    """Reads return values with Python's type, in each place; a null is refused like None."""
    for place, read in REQUIRED.items():
        if not fits(value, place):
            continue
        if wanted is REFUSED or wanted is MISSING:
            with pytest.raises(errors.MillpondError):
                pytest.fail(f"{place}: {read(kind, value)!r}")
            continue
        found = read(kind, value)
        assert (place, found, type(found)) == (place, expected_in(place, wanted), kind)


@every_scalar
def test_a_missing_scalar_is_none_where_the_type_has_none(value, kind, wanted):
    """In a nullable type, NaT and NA are None in each place; other scalars have the same result."""
    for place, read in OPTIONAL.items():
        if not fits(value, place):
            continue
        if place == "in a union" and (kind is Decimal or kind is float):
            continue  # a union does not convert ints to floats
        if wanted is REFUSED:
            with pytest.raises(errors.MillpondError):
                pytest.fail(f"{place}: {read(kind, value)!r}")
            continue
        found = read(kind, value)
        expected = (None, type(None)) if wanted is MISSING else (expected_in(place, wanted), kind)
        assert (place, found, type(found)) == (place, *expected)


@every_scalar
def test_columns_carry_the_value_that_a_scalar_equals(value, kind, wanted):
    """A yielded scalar is encoded like Python's value, at each depth; NaT and NA as null."""
    for place, carry in {**COLUMNS, **MAP_KEYS}.items():
        if not fits(value, place):
            continue
        if wanted is REFUSED or (wanted is MISSING and place in MAP_KEYS):
            with pytest.raises(errors.OutputTypeError):
                pytest.fail(f"{place}: {carry(kind, value, wanted)!r}")
            continue
        plain = None if wanted is MISSING else wanted
        assert (place, carry(kind, value, wanted)) == (place, carry(kind, plain, wanted))


@every_scalar
def test_first_keys_and_frames_know_the_same_values(value, kind, wanted):
    """A key whose type is inferred, and an object in a frame, give the same Python values."""
    if wanted in (REFUSED, MISSING) or type(wanted) is not kind:
        return
    natural_kind = type(python_values([value], "frame")[0])
    if natural_kind is not kind:
        return  # ints as floats and decimals: the target type is unknown here
    assert python_values([value], "frame") == [wanted]
    assert as_first_key(kind, value) == expected_in("key", wanted)


TIMES = {
    "event-time timer": lambda harness, ms: timer(harness, mp.TimeDomain.EVENT_TIME, ms),
    "processing-time timer": lambda harness, ms: timer(harness, mp.TimeDomain.PROCESSING_TIME, ms),
    "event time": lambda harness, ms: harness.process({"k": "a"}, timestamp=ms),
    "watermark": lambda harness, ms: harness.advance_watermark(ms),
    "processing time": lambda harness, ms: harness.advance_processing_time(ms),
    "clock": lambda harness, ms: harness.clock.advance(ms),
}


def timer(harness, domain, ms):
    service = harness._operator.timers
    harness._backend.set_current_key("a")
    service.register(domain, ms)
    assert service.next_due()[list(mp.TimeDomain).index(domain)] == 100
    service.delete(domain, ms)
    assert service.next_due() == (None, None)


@pytest.mark.parametrize("place", TIMES)
def test_times_are_whole_numbers(place):
    """Each integer of NumPy is a time in ms; all other scalars are refused."""
    for value, kind, wanted, *_ in SCALARS:
        if kind is not int or isinstance(value, np.ndarray):
            continue
        with mp.testing.KeyedOperatorHarness(Key(), key="k") as harness:
            if wanted == 100:
                TIMES[place](harness, value)
                continue
            with pytest.raises(errors.MillpondError):
                pytest.fail(f"{value!r}: {TIMES[place](harness, value)!r}")


def test_python_without_numpy_and_pandas_is_asked_nothing():
    """The module of the table imports neither NumPy nor pandas, because plain values do not need them."""
    source = sys.modules["millpond.types.foreign_scalars"]
    assert not {"numpy", "pandas", "np", "pd"} & set(vars(source))
