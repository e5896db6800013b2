"""Rows keep their values exactly through an operator, and keys have Spark's hash."""

import datetime as dt
import enum
from decimal import Decimal

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond_spark.plan.plan import key_codec_of, key_group_column
from millpond_spark.values.carrier import TextCarrier
from pyspark.sql.types import StringType

from tests.spark.every_type import NESTED, SCALARS, TIMES, as_text, table

pytestmark = pytest.mark.spark


class Echo(mp.KeyedProcessFunction):
    """Function that yields each row unchanged, with Python's view of it."""

    def process_element(self, row, context):
        yield (*row, repr(tuple(row)))


@pytest.mark.parametrize("columns", [SCALARS | TIMES, NESTED], ids=["scalars", "nested"])
def test_every_type_passes_unchanged_in_a_batch(spark, job_conf, columns):
    """Each type comes out unchanged: nulls, extremes, NaN, years 1 and 9999, nested values."""
    passes_unchanged_in_a_batch(spark, job_conf, columns)


def passes_unchanged_in_a_batch(spark, job_conf, columns):
    """Run an operator that yields its rows, and compare."""
    job_conf(state_backend="heap")
    df = table(spark, columns)
    fields = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in df.schema)
    out = key_by(df, "id").process(Echo(), output=f"{fields}, seen string", uid="echo")
    assert as_text(out.drop("seen")) == as_text(df)


@pytest.mark.long
def test_every_type_passes_unchanged_in_a_stream(spark, job_conf, tmp_path):
    """In a stream, whose frames Spark creates differently, each type comes out unchanged."""
    job_conf(state_backend="heap")
    # Parquet files contain no void and, on all versions of Spark so far, no times.
    columns = {name: spec for name, spec in {**SCALARS, **NESTED}.items() if spec[0] != "void"}
    df = table(spark, columns)
    df.write.parquet(str(tmp_path / "input"))
    stream = spark.readStream.schema(df.schema).parquet(str(tmp_path / "input"))
    fields = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in df.schema)
    out = key_by(stream, "id").process(Echo(), output=f"{fields}, seen string", uid="echo")
    query = (
        out.writeStream.format("parquet")
        .option("path", str(tmp_path / "output"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = spark.read.schema(out.schema).parquet(str(tmp_path / "output"))
    assert as_text(found.drop("seen")) == as_text(df)


def test_what_python_sees(spark, job_conf):
    """Python sees int, float, None, aware datetime, date, Decimal, list, dict, named tuple."""
    job_conf(state_backend="heap")
    df = spark.sql(
        "select 1 as id, 9007199254740993 as n, cast(null as bigint) as nothing, "
        "double('NaN') as x, cast(1.50 as decimal(10,2)) as d, X'01' as b, "
        "timestamp'2024-01-01 00:00:00 UTC' as t, timestamp_ntz'2024-01-01 00:00:00' as ntz, "
        "date'2024-01-01' as day, array(1, null) as a, map('k', 2) as m, "
        "named_struct('p', 1, 'q', 'z') as s"
    )
    seen = key_by(df, "id").process(Repr(), output="seen string", uid="repr").collect()[0].seen
    utc = dt.UTC
    expected = (
        1, 9007199254740993, None, float("nan"), Decimal("1.50"), b"\x01",
        dt.datetime(2024, 1, 1, tzinfo=utc), dt.datetime(2024, 1, 1), dt.date(2024, 1, 1),
        [1, None], {"k": 2},
    )  # fmt: skip
    assert seen == repr(expected)[:-1] + ", Row(p=1, q='z'))"


STATE_TYPES = {
    "a_bool": bool, "a_byte": int, "a_long": int, "a_float": float, "a_double": float,
    "a_dec10": Decimal, "a_dec18": Decimal, "a_dec38": Decimal, "a_string": str,
    "a_binary": bytes, "a_date": dt.date, "a_ts": dt.datetime, "an_ntz": dt.datetime,
    "longs": list[int | None], "doubles": list[float | None],
    "times": list[dt.datetime | None], "bins": list[bytes | None],
    "a_map": dict[str, Decimal | None], "int_map": dict[int, list[dt.date | None] | None],
}  # fmt: skip


class Colour(str, enum.Enum):  # noqa: UP042 - its text is not its value
    """A str that is an enum."""

    RED = "red"


class Height(enum.IntEnum):
    """An int that is an enum."""

    LOW = 1


class Kept(mp.KeyedProcessFunction):
    """Function that puts each column into a state of its type, and yields the content."""

    def open(self, context):
        self.states = {
            name: context.get_state(mp.ValueStateDescriptor(name, kind))
            for name, kind in STATE_TYPES.items()
        }
        kinds = {"colour": Colour, "height": Height, "keyed": dict[tuple[int, str], Colour]}
        self.enums = {
            name: context.get_state(mp.ValueStateDescriptor(name, kind))
            for name, kind in kinds.items()
        }

    def process_element(self, row, context):
        found = []
        for name, state in self.states.items():
            state.update(getattr(row, name))
            found.append(state.value())
            assert repr(found[-1]) == repr(getattr(row, name))
        for state, value in zip(
            self.enums.values(), (Colour.RED, Height.LOW, {(1, "a"): Colour.RED}), strict=True
        ):
            state.update(value)
            assert state.value() == value
            assert type(state.value()) is type(value)
        yield (row.id, *found, self.enums["colour"].value(), self.enums["height"].value())


@pytest.mark.long
def test_columns_pass_through_states(spark, job_conf):
    """Each column type fits a state, and comes back equal and of the same type; enums become plain values."""
    job_conf(state_backend="lmdb")
    columns = {name: {**SCALARS, **NESTED}[name] for name in STATE_TYPES}
    df = table(spark, columns)
    fields = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in df.schema)
    out = key_by(df, "id").process(
        Kept(), output=f"{fields}, colour string, height int", uid="kept"
    )
    rows = out.collect()
    assert {(row.colour, row.height) for row in rows} == {("red", 1)}
    assert as_text(out.drop("colour", "height")) == as_text(df)


class Repr(mp.KeyedProcessFunction):
    """Function that yields Python's view of a row."""

    def process_element(self, row, context):
        yield (repr(tuple(row)),)


def test_a_type_that_would_lose_values_is_refused(spark):
    """A column that cannot be passed exactly is refused by name when the operator is built."""
    df = spark.sql("select 1 as id, parse_json('{}') as v")
    with pytest.raises(errors.UnsupportedColumnError, match="'v' of type variant"):
        key_by(df, "id").process(Echo(), output="x int", uid="x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("x", "one"), "declared int, the function yielded str 'one'"),
        (("x", 2**31), "out of range"),
        (("x", True), "declared int, the function yielded bool True"),
        (("x",), "a row of 2, the function yielded tuple .* .1 values for 2 columns"),
        ((1, 1), "declared str, the function yielded int 1"),
    ],
)
def test_output_of_another_type_is_refused(spark, job_conf, values, message):
    """A yielded value that does not fit the declared output names the operator and column."""
    job_conf(state_backend="heap")

    class Wrong(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            yield values

    out = key_by(spark.range(1), "id").process(Wrong(), output="s string, n int", uid="wrong")
    with pytest.raises(Exception, match=message) as caught:
        out.collect()
    assert "Operator 'wrong'" in str(caught.value)


KEYS = {
    "tinyint": ["-128", "7"],
    "smallint": ["-300"],
    "int": ["0", "-1", "2147483647"],
    "bigint": ["-9223372036854775808", "42"],
    "float": ["-0.0", "'NaN'", "1.5"],
    "double": ["-0.0D", "0.0D", "'NaN'", "1.1"],
    "boolean": ["true", "false"],
    "string": ["''", "'abc'", "'ünï'"],
    "binary": ["X''", "X'00FF'"],
    "date": ["'0001-01-01'", "'9999-12-31'"],
    "timestamp": ["'2024-01-01 12:34:56.789012 UTC'"],
    "timestamp_ntz": ["'1969-12-31 23:59:59.999999'"],
    "decimal(10,2)": ["12.30", "-0.01", "0"],
    "decimal(38,6)": ["12.300000", "-99999999999999999999999999.123456", "1e25"],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", KEYS)
def test_key_groups_equal_sparks(spark, kind):
    """For every key type, Python computes the key group that the JVM computes."""
    sql = " union all ".join(f"select cast({value} as {kind}) as k" for value in KEYS[kind])
    df = spark.sql(sql)
    field = df.schema["k"].dataType
    with_group = df.selectExpr("k", key_group_column(["k"], [field], 128) + " AS g")
    out = key_by(with_group, "k").process(SeesKey(), output="same boolean, why string", uid="keys")
    assert [row.why for row in out.collect() if not row.same] == []


class SeesKey(mp.KeyedProcessFunction):
    """Compares the key group of the JVM with Python's."""

    def process_element(self, row, context):
        key = context.current_key
        group = mp.assign_to_key_group(key, 128)
        yield group == row.g, f"{key!r}: {group} in Python, {row.g} in the JVM"


def test_composite_key_groups_equal_sparks(spark):
    """Several key columns have Spark's combined hash."""
    df = spark.sql(
        "select * from values (1, 'a', date'2024-01-01', 1.5D), (-7, '', date'1960-01-01', -0.0D) "
        "as t(n, s, d, x)"
    )
    names = ["n", "s", "d", "x"]
    types = [df.schema[name].dataType for name in names]
    rows = df.selectExpr("*", key_group_column(names, types, 100) + " AS g").collect()
    codec = key_codec_of(names, types)
    for row in rows:
        assert codec.check_with_group(tuple(row)[:4], 100) == (tuple(row)[:4], row.g)


def test_a_uuid_key_is_hashed_as_its_string(spark):
    """A UUID has the key group of its string."""
    import uuid

    key = uuid.UUID("12345678-1234-5678-1234-567812345678")
    group = spark.sql(f"select pmod(xxhash64('{key}'), 128) as g").collect()[0].g
    assert mp.assign_to_key_group(key, 128) == group


def test_a_text_goes_into_its_column_as_it_is():
    """An enum member that is a str is stored as its value, not as its name."""
    carrier = TextCarrier(StringType())
    assert type(carrier.pack(Colour.RED)) is str
    assert carrier.pack(Colour.RED) == Colour.RED == "red"
