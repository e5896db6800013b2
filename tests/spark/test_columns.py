"""Columns on Spark: any names, keys as Spark resolves them, moments in any time zone."""

import datetime as dt
import json
import random
from contextlib import contextmanager
from zoneinfo import ZoneInfo

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond_spark.plan.column_arguments import choose
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import quoted
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from tests.spark.jvm_calls import heard_calls
from tests.spark.streaming import Files, output, run

pytestmark = pytest.mark.spark

ODD = ["order id", "1a", "class", "a.b", "`q`", "count", "asDict", "_1", "_fields", "k"]


class Told(mp.KeyedProcessFunction):
    """Function that yields a row's values by column names, and those of its struct by field names."""

    def process_element(self, row, context):
        by_name = [row[name] for name in row._fields if name != "s"]
        yield repr(context.current_key), repr(by_name), row["s"]["x y"], repr(row.asDict(True)["s"])


@pytest.fixture(scope="module")
def rows(spark):
    """Return two rows with odd column names and with structs."""
    schema = StructType()
    for name in ODD[:-1]:
        schema = schema.add(name, LongType())
    inner = StructType().add("x y", LongType()).add("K", StringType())
    schema = schema.add("k", StringType()).add("s", inner)
    values = tuple(range(9))
    return spark.createDataFrame([(*values, "A", (1, "u")), (*values, "a", (2, "v"))], schema)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["K"], {"'A'", "'a'"}),
        (["`order id`", "a.b"], {"Row(order id=0, a.b=3)"}),
        (["s.k"], {"'u'", "'v'"}),
        (
            lambda: [F.lower("k").alias("low"), "s.`x y`"],
            {"Row(low='a', x y=1)", "Row(low='a', x y=2)"},
        ),
    ],
)
def test_rows_and_keys_of_any_names(rows, job_conf, keys, expected):
    """Columns are found by name; keys are resolved as in Spark, and no other columns are added."""
    job_conf(state_backend="heap", parallelism=2)
    schema = "key string, row string, x bigint, s string"
    keys = keys() if callable(keys) else keys
    told = key_by(rows, *keys).process(Told(), output=schema, uid="told").collect()
    assert {row.key for row in told} == expected
    assert sorted((row.row, row.x, row.s) for row in told) == [
        ("[0, 1, 2, 3, 4, 5, 6, 7, 8, 'A']", 1, "{'x y': 1, 'K': 'u'}"),
        ("[0, 1, 2, 3, 4, 5, 6, 7, 8, 'a']", 2, "{'x y': 2, 'K': 'v'}"),
    ]


@contextmanager
def case_sensitive(spark, value):
    """Set the session's case sensitivity for a while."""
    spark.conf.set("spark.sql.caseSensitive", value)
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_names_are_resolved_as_spark_does(spark, rows):
    """Case follows the session's setting; back-quotes and fields of structs work."""
    quoted = {"`a.b`": "a.b", "```q```": "`q`", "`order id`": "order id"}
    for given, name in {
        **{name: name for name in ODD},
        **quoted,
        "K": "k",
        "COUNT": "count",
    }.items():
        (choice,) = choose(rows, "keys", given, "key_by")
        assert (choice.field.name, choice.position) == (name, rows.columns.index(name))
    for given in ["s.K", "S.k", F.col("k"), F.lower("k"), F.lit(1)]:
        (choice,) = choose(rows, "keys", given, "key_by")
        assert choice.position is None
    with case_sensitive(spark, "true"), pytest.raises(errors.ConfigError, match="mean 'k'"):
        choose(rows, "keys", "K", "key_by")
    both = spark.range(1).selectExpr("'a' AS k", "'b' AS K")
    with pytest.raises(errors.ConfigError, match="K: is ambiguous, .* the columns k, K"):
        key_by(both, "K")
    with case_sensitive(spark, "true"):
        assert choose(both, "keys", "K", "key_by")[0].position == 1


NAMES = ["k", "K", "a", "b", "x y", "a.b", "`q`", "1", "é", "É", "σ", "ς", "Σ"]


def drawn_frame(spark, draw):
    """Return a row with odd column names, some of them structs; each value occurs once."""
    columns, values = [], iter(range(100))
    for _ in range(draw.randint(1, 5)):
        fields = [f"{next(values)}L AS {quoted(name)}" for name in draw.sample(NAMES, 3)]
        value = f"struct({', '.join(fields)})" if draw.random() < 0.4 else f"{next(values)}L"
        columns.append(f"{value} AS {quoted(draw.choice(NAMES))}")
    return spark.sql(f"SELECT {', '.join(columns)}")


def drawn_name(draw):
    """Return a name of one or several parts, some of them in back-quotes."""
    parts = [draw.choice(NAMES) for _ in range(draw.choice([1, 1, 2, 3]))]
    return ".".join(quoted(part) if draw.random() < 0.5 else part for part in parts)


def value_of(df, column):
    """Return a column's value in the only row; None if Spark finds no such column."""
    try:
        return repr(df.select(column).collect()[0][0])
    except PySparkException:
        return None


def resolve_any(spark, seed, frames, names):
    """Choose generated names in generated rows, with and without case sensitivity."""
    draw = random.Random(seed)
    for number in range(frames):
        with case_sensitive(spark, str(number % 2 == 0).lower()):
            df = drawn_frame(spark, draw)
            for name in [drawn_name(draw) for _ in range(names)]:
                expected = value_of(df, F.col(name))
                if expected is None:
                    expected = value_of(df, F.col(quoted(name)))
                try:
                    (choice,) = choose(df, "keys", name, "key_by")
                    found = value_of(df, choice.column)
                    assert found is not None
                except errors.ConfigError:
                    found = None
                assert found == expected, (df.schema.simpleString(), name)


@pytest.mark.long
def test_any_name_is_resolved_as_spark_does(spark):
    """Names that Spark finds are found, and names that Spark refuses are refused."""
    resolve_any(spark, seed=1, frames=4, names=10)


@pytest.mark.soak
def test_any_name_is_resolved_as_spark_does_at_length(spark):
    """Many generated names are resolved as in Spark, or refused as in Spark."""
    resolve_any(spark, seed=2, frames=40, names=20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ordr id", "no such column.* Did you mean 'order id'"),
        ("s.z", "s.z: there is no such column"),
        ("a`b", "no such column"),
        ("s.", "no such column"),
        ("", "no such column"),
        ("*", "no such column"),
        (lambda: F.col("zz"), "not a column of these rows: .*zz"),
        (lambda: F.col("s.*"), "expected one column, got 2"),
        (lambda: F.sum("count"), "not a column of these rows"),
        (7, "expected a column's name or a Column, got int 7"),
        (["k"], "expected a column's name or a Column, got list"),
        ("s", "a struct.* column cannot be a key"),
    ],
)
def test_what_cannot_be_a_key(rows, given, message):
    """A column that cannot be a key is refused with its name and the reason."""
    with pytest.raises(errors.ConfigError, match=message):
        key_by(rows, given() if callable(given) else given)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (
            ["decimal(38,38)"],
            r"k0: a decimal\(38,38\) column cannot .* scale of at most 18; cast it",
        ),
        (
            ["decimal(19,19)"],
            r"k0: a decimal\(19,19\) column cannot .* scale of at most 18; cast it",
        ),
        (
            ["int", "decimal(19,2)"],
            r"k1: a decimal\(19,2\) .* next to others: .* at most 18 digits; cast",
        ),
    ],
)
def test_wide_decimals_that_cannot_be_keys(rows, types, message):
    """A decimal key that Python cannot hash like Spark is refused with its column and the limit."""
    keys = [F.lit(0).cast(each).alias(f"k{at}") for at, each in enumerate(types)]
    with pytest.raises(errors.ConfigError, match=message):
        key_by(rows, *keys)


def test_two_keys_of_one_name(rows):
    """Two keys of one name are refused, because names distinguish the parts in state and savepoints."""
    with pytest.raises(errors.ConfigError, match="K: two keys have this name: give one another"):
        key_by(rows, "s.K", F.upper("k").alias("K"))


ORDER = "k string, at bigint"


class Order(mp.KeyedProcessFunction):
    """Function that yields the rows' names in order of arrival, with their event time."""

    def process_element(self, row, context):
        yield row.k, context.timestamp


def test_order_and_event_time_by_columns(spark, job_conf):
    """Order and event time may be an expression or a field of a struct."""
    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame(
        [("a", 1, (5,)), ("b", 3, (6,)), ("c", 2, (7,))], "k string, n int, s struct<ms: bigint>"
    )
    out = key_by(df, F.lit(1).alias("one")).process(
        Order(),
        output="k string, at bigint",
        uid="order",
        order_by=[-F.col("n"), "s.ms"],
        event_time=F.timestamp_millis("s.ms"),
    )
    assert list(map(tuple, out.collect())) == [("b", 6), ("c", 7), ("a", 5)]
    with pytest.raises(errors.ConfigError, match="is not a timestamp column"):
        key_by(df, "k").process(Order(), output="k string", uid="order", event_time="s.ms")


class Timed(Order):
    """The function `Order` with a timer one millisecond after each row."""

    def process_element(self, row, context):
        context.timer_service().register_event_time_timer(context.timestamp + 1)
        yield context.current_key, context.timestamp

    def on_timer(self, timestamp, context):
        yield context.current_key, timestamp


def test_an_event_time_that_is_no_timestamp_is_told_as_that(spark, job_conf):
    """An event time that is no timestamp is refused by its type, also if there is no watermark."""
    job_conf(state_backend="heap", parallelism=1)
    df = spark.createDataFrame([("a", "2024-03-05", 3)], "`k.k` string, `at.at` string, n int")
    for name, kind in (("at.at", "string"), ("`at.at`", "string"), ("n", "int")):
        with pytest.raises(errors.ConfigError, match=f"not a timestamp column, but {kind}: cast"):
            key_by(df, "k.k").process(
                Timed(), output=ORDER, uid="timed", event_time=name, time_mode="event-time"
            )


@pytest.mark.long
def test_points_in_the_names_of_the_key_and_the_event_time(spark, job_conf, tmp_path):
    """The columns of key, order, event time and watermark may have dots in their names."""
    job_conf(state_backend="heap", parallelism=1)
    files = Files(spark, tmp_path / "in", "`k.k` string, `at.at` timestamp")
    for second in (1, 2, 3):
        (files.folder / f"{second}.json").write_text(
            json.dumps({"k.k": "a", "at.at": f"1970-01-01T00:00:0{second}Z"})
        )
    df = files.stream().withWatermark("`at.at`", "0 seconds")
    for name, given in (("by-watermark", {}), ("named", {"event_time": "at.at"})):
        timed = key_by(df, "k.k").process(
            Timed(), output=ORDER, uid="timed", order_by="at.at", **given
        )
        run(timed, tmp_path, name=name)
        rows = output(spark, tmp_path, name=name)
        assert set(rows) >= {("a", at) for at in (1000, 2000, 3000, 1001)}


def test_columns_cost_few_calls_of_the_jvm(spark, job_conf, monkeypatch):
    """An additional column costs about five calls of the JVM; with thirty, a thousand took seconds."""
    job_conf(state_backend="heap", parallelism=1)
    calls = heard_calls(spark, monkeypatch)

    def cost(width):
        columns = [(f"c{at}", ("bigint", "double", "string")[at % 3]) for at in range(width)]
        df = spark.range(1).selectExpr(*(f"cast(id as {kind}) {name}" for name, kind in columns))
        schema = ", ".join(f"{name} {kind}" for name, kind in columns)
        keyed = key_by(df, "c0")
        calls.clear()
        keyed.process(Told(), output=schema, uid="wide")
        return len(calls)

    cost(10)
    assert cost(130) - cost(30) < 100 * 6


class Second(mp.KeyedProcessFunction):
    """Function that yields each row with its number within the key."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int))

    def process_element(self, row, context):
        self.count.update((self.count.value() or 0) + 1)
        yield (*row, self.count.value())


@pytest.mark.long
def test_a_wide_row_keeps_its_values(spark, job_conf):
    """Three hundred columns with nulls keep their values, by key and in order."""
    job_conf(state_backend="heap", parallelism=2)
    random_ = random.Random(5)
    kinds = {
        "bigint": lambda: random_.choice([2**63 - 1, -(2**63), 0]),
        "double": lambda: random_.choice([float("nan"), -0.0, 1.5]),
        "string": lambda: random_.choice(["", "é\0x", "text"]),
        "date": lambda: dt.date(2024, 1, random_.randint(1, 31)),
    }
    makers = list(kinds.values()) * 75
    schema = "k string, at bigint, " + ", ".join(
        f"c{at} {kind}" for at, kind in enumerate(list(kinds) * 75)
    )
    rows = [
        (f"k{at % 3}", at, *[make() if random_.random() < 0.9 else None for make in makers])
        for at in range(40)
    ]
    df = spark.createDataFrame(rows, schema).repartition(4, "at")
    out = key_by(df, "k").process(
        Second(), output=f"{schema}, seen bigint", uid="wide", order_by="at"
    )
    found = sorted(map(tuple, out.collect()), key=lambda row: row[1])
    assert repr(found) == repr([(*row, at // 3 + 1) for at, row in enumerate(rows)])
    late = df.withColumn("c3", F.date_add(F.to_date(F.lit("9999-12-31")), 5))
    failing = key_by(late, "k").process(Second(), output=f"{schema}, n int", uid="late")
    with pytest.raises(PySparkException, match="c3.*cannot be a Python"):
        failing.collect()


NEW_YORK = ZoneInfo("America/New_York")
MOMENTS = [
    dt.datetime(2024, 3, 10, 6, 59, 59, 999999, dt.UTC),  # the clock changes after it
    dt.datetime(2024, 3, 10, 7, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),  # half past one, the first time
    dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC),  # and the second time
]
WALLS = [
    dt.datetime(2024, 3, 10, 2, 30),  # this time does not exist in New York
    dt.datetime(2024, 11, 3, 1, 30),  # this time occurs twice in New York
]


class Moments(mp.KeyedProcessFunction):
    """Function that yields its moment columns unchanged, and the same moments in other zones and forms."""

    def process_element(self, row, context):
        t, wall = row.t, row.wall
        yield t, wall, f"{t!r} {wall!r} {context.current_key!r}"
        yield t.astimezone(NEW_YORK), wall, "in New York"
        yield t.replace(tzinfo=None), wall, "naive"


def test_moments_in_a_session_of_new_york(spark, job_conf):
    """A timestamp arrives in UTC, a yielded naive one means UTC, and timestamp_ntz keeps its reading."""
    assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    job_conf(state_backend="heap", parallelism=2)
    pairs = [(moment, wall) for moment in MOMENTS for wall in WALLS]
    df = spark.range(len(pairs)).select(
        F.element_at(
            F.array(*(F.timestamp_micros(F.lit(micros(m)).cast("bigint")) for m, _ in pairs)),
            (F.col("id") + 1).cast("int"),
        ).alias("t"),
        F.element_at(
            F.array(*(F.expr(f"timestamp_ntz'{w}'") for _, w in pairs)),
            (F.col("id") + 1).cast("int"),
        ).alias("wall"),
    )
    schema = "t timestamp, wall timestamp_ntz, told string"
    out = key_by(df, "t").process(Moments(), output=schema, uid="moments")
    read = out.select(F.unix_micros("t"), F.col("wall").cast("string"), "told").collect()
    forms = ["in New York", "naive"]
    expected = [
        (micros(moment), str(wall), told)
        for moment, wall in pairs
        for told in (f"{moment!r} {wall!r} {moment!r}", *forms)
    ]
    assert sorted(map(tuple, read)) == sorted(expected)


ZONES = ["UTC", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Africa/Monrovia", "+13:45"]


@pytest.mark.soak
@pytest.mark.parametrize("zone", ZONES)
def test_moments_in_sessions_of_any_zone(spark, zone):
    """Generated moments of all years arrive and return unchanged."""
    draw = random.Random(zone)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        spans = [(-62_135_596_800, 253_402_300_799), (1_690_000_000, 1_750_000_000)]
        given = [draw.randint(*spans[at % 2]) * 10**6 + draw.randrange(10**6) for at in range(200)]
        pairs = [(n, dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=n)) for n in given]
        rows = [f"(timestamp_micros({number}), timestamp_ntz'{clock}')" for number, clock in pairs]
        df = spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS rows(t, wall)")
        codec = RowCodec.from_schema(df.schema)
        found = list(codec.rows(codec.decode(codec.encoded(df).toPandas())))
        assert [(micros(row.t), row.wall) for row in found] == pairs
        out = OutputCodec.from_schema(df.schema)
        frame = out.frame(out.columns(found, "op"))
        packed = spark.createDataFrame(frame, out.schema())
        back = out.restored(packed).select(F.unix_micros("t"), F.col("wall").cast("string"))
        expected = [(number, spark_s_text(clock)) for number, clock in pairs]
        assert list(map(tuple, back.collect())) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def spark_s_text(clock):
    """Return a time like Spark's cast to string, without zeros at the end of the fraction."""
    whole, _, fraction = clock.isoformat(" ", "microseconds").partition(".")
    return f"{whole}.{fraction.rstrip('0')}".rstrip(".")


def micros(moment):
    """Return microseconds since 1970."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
