"""Keys, namespaces and map keys of enums, durations, times and declared columns, on all backends."""

import datetime as dt
import enum
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.types import key_codec_for
from millpond.types.rows import row_type
from millpond_spark.plan.plan import key_codec_of
from pyspark.sql import Row
from pyspark.sql.types import LongType, StringType, StructType

BACKENDS = ["heap", "rocksdb", "lmdb"]
DDL = "customer string, day bigint not null"


class Colour(enum.Enum):
    """An enum whose values cannot be keys."""

    RED = (1, 2)
    BLUE = (3, 4)


class Level(enum.IntEnum):
    """An enum whose members equal numbers, but not the members of the other enum."""

    LOW = 1
    HIGH = 2


@attrs.frozen
class Shift:
    """A key of several such parts."""

    colour: Colour
    begins: dt.time
    lasts: dt.timedelta | None


class Named(NamedTuple):
    """A named tuple with the declared columns."""

    customer: str
    day: int


KEYS = {
    "enum": (Colour, [Colour.RED, Colour.BLUE]),
    "int enum": (Level, [Level.LOW, Level.HIGH]),
    "duration": (dt.timedelta, [dt.timedelta(-1, 5), dt.timedelta(0), dt.timedelta(400)]),
    "time": (dt.time, [dt.time.min, dt.time(8, 30), dt.time.max]),
    "tuple": (tuple[Level, str], [(Level.LOW, "a"), (Level.HIGH, "")]),
    "class": (Shift, [Shift(Colour.RED, dt.time(8), None), Shift(Colour.BLUE, dt.time(9), dt.timedelta(1))]),
    "columns": (DDL, [("ann", 1), ("bob", 2)]),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", KEYS)
def test_keys_namespaces_and_map_keys(tmp_path, backend, name):
    """Such keys come back from state, snapshots, rescales and savepoints, equal and of the same type."""
    kind, keys = KEYS[name]
    counts = mp.MapStateDescriptor("counts", kind, int)
    total = mp.ValueStateDescriptor("total", int)
    halves = [mp.key_group_range(16, 2, index) for index in (0, 1)]
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())

    def opened(place, groups=None, restore=()):
        return mp.open_keyed_backend(
            backend, key_type=kind, max_parallelism=16, key_group_range=groups,
            directory=tmp_path / place, restore=restore,
        )  # fmt: skip

    def found(state):
        """Return the content of a backend's keys."""
        mapped = state.get_partitioned_state(counts)
        held = set()
        for key in list(state.keys("counts")):
            state.set_current_key(key)
            held.add((key, tuple(sorted(map(repr, mapped.items())))))
            inside = state.get_partitioned_state(total, key, kind).value()
            assert inside == keys.index(key)
        return held

    with opened("first") as state:
        for number, key in enumerate(keys):
            state.set_current_key(key)
            mapped = state.get_partitioned_state(counts)
            for each in keys:
                mapped.put(each, number)
            state.get_partitioned_state(total, key, kind).update(number)
        expected = found(state)
        handle = state.snapshot(1, storage).result().handle
        saved = state.savepoint(2, storage).result().handle
    assert len(expected) == len(keys)
    for number, source in enumerate((handle, saved)):
        parts = set()
        for index, half in enumerate(halves):
            with opened(f"half-{number}-{index}", half, [source]) as state:
                state.get_partitioned_state(counts)
                parts |= found(state)
        assert parts == expected


def test_columns_as_a_key_are_those_of_a_keyed_dataframe():
    """DDL, a StructType and ``key_by`` on Spark declare the same key type with the same hash; nulls are refused."""
    schema = StructType().add("customer", StringType()).add("day", LongType())
    of_spark = key_codec_of(["customer", "day"], [StringType(), LongType()])
    for declared in (DDL, schema, "struct<customer: string, day: bigint>"):
        codec = key_codec_for(declared)
        assert codec.snapshot() == of_spark.snapshot()
        assert codec.hash(codec.check(("ann", 1))) == of_spark.hash(("ann", 1))
        assert codec.check(("ann", 1)).customer == "ann"
        with pytest.raises(errors.NullValueError):
            codec.check(("ann", None))
    assert key_codec_for("day bigint").snapshot() == key_codec_for(int).snapshot()
    assert key_codec_for("bigint").snapshot() == key_codec_for(int).snapshot()
    with pytest.raises(errors.ConfigError, match="key"):
        key_codec_for("items array<string>, day bigint")


def test_a_run_by_declared_columns():
    """The current key is a row of the columns."""

    class Days(mp.KeyedProcessFunction):
        def open(self, context):
            self.spent = context.get_state(mp.ValueStateDescriptor("spent", dt.timedelta))

        def process_element(self, row, context):
            self.spent.update((self.spent.value() or dt.timedelta()) + row.lasted)
            yield context.current_key.customer, context.current_key.day, self.spent.value()

    rows = [{"customer": "ann", "day": 1, "lasted": dt.timedelta(minutes=n)} for n in (5, 10)]
    found = mp.local.run(Days(), rows, key=lambda row: (row.customer, row.day), key_type=DDL)
    assert found[-1] == ("ann", 1, dt.timedelta(minutes=15))


def test_rows_with_durations_and_times_are_state():
    """Spark's day-time intervals and times are timedelta and time."""
    descriptor = mp.ValueStateDescriptor("seen", "lasted interval day to second, since time(6)")
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("a")
        state = backend.get_partitioned_state(descriptor)
        state.update((dt.timedelta(1), dt.time(8)))
        assert state.value() == (dt.timedelta(1), dt.time(8))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_no_row_of_the_declared_columns_is_no_key(tmp_path, backend):
    """As a key, a list, a set, a dict, a string and a row of other columns are refused; a row of the columns is not."""
    row_of, other = row_type(("customer", "day")), row_type(("day", "customer"))
    with mp.open_keyed_backend(backend, key_type=DDL, directory=tmp_path) as opened:
        counts = mp.MapStateDescriptor("counts", DDL, int)
        spark_row = Row(customer="ann", day=1)
        for good in (("ann", 1), row_of("ann", 1), Named("ann", 1), spark_row, Row("ann", 1)):
            opened.set_current_key(good)
            state = opened.get_partitioned_state(counts, good, DDL)
            state.put(good, 1)
            assert list(state.items()) == [(("ann", 1), 1)]
        bad = (
            ["ann", 1],
            {"ann", 1},
            {"customer": "ann", "day": 1},
            "an",
            other(1, "ann"),
            Row(day=1, customer="ann"),
            5,
        )
        for each in bad:
            with pytest.raises(errors.StateTypeError, match="a row of customer, day, got"):
                opened.set_current_key(each)
            with pytest.raises(errors.StateTypeError, match="a row of customer, day, got"):
                opened.get_partitioned_state(counts, each, DDL)
            with pytest.raises(errors.StateTypeError, match="a row of customer, day, got"):
                state.get(each)


NEAR_MISSES = {
    "one more": (row_type(["customer", "day", "extra"])("ann", 1, 2), "not a column: extra"),
    "one more of Spark's": (Row(customer="ann", day=1, extra=2), "not a column: extra"),
    "one more of a dict": ({"customer": "ann", "day": 1, "extra": 2}, "not a column: extra"),
    "another name": (row_type(["customer", "date"])("ann", 1), "missing: day; not a column: date"),
    "another order": (row_type(["day", "customer"])(1, "ann"), "in another order"),
    "a dict": ({"customer": "ann", "day": 1}, "give a tuple of their values, or a row"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_row_that_is_nearly_one_of_the_columns_is_refused_by_name(name):
    """As a key, value, element or map key, a row with wrong columns is refused with these columns."""
    given, expected = NEAR_MISSES[name]
    with mp.open_keyed_backend("heap", key_type=DDL) as backend:
        backend.set_current_key(("ann", 1))
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("value", DDL))
        several = backend.get_partitioned_state(mp.ListStateDescriptor("list", DDL))
        mapped = backend.get_partitioned_state(mp.MapStateDescriptor("map", DDL, int))
        for take in (
            value.update,
            several.add,
            lambda row: mapped.put(row, 1),
            backend.set_current_key,
        ):
            with pytest.raises(errors.StateTypeError, match=expected):
                take(given)
