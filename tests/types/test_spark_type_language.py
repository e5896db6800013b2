"""Generated columns of any SQL type pass unchanged through frames, functions and states."""

import random

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond_spark.plan.plan import key_codec_of
from millpond_spark.values import nested as json_nodes
from millpond_spark.values.carrier import DecimalCarrier, DoubleCarrier
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.temporal import TimestampCarrier
from pyspark.sql import functions as F
from pyspark.sql import types as st
from pyspark.testing.objects import ExamplePointUDT

from tests.arriving import arriving
from tests.spark import streaming
from tests.types import spark_type_language as sl

DEPTH = 3
COLUMNS = 16


def same(found, given, declared):
    """Fail unless two values are equal and of the same type at each depth."""
    message = f"{declared.simpleString()}: {given!r} is {found!r}"
    assert sl.exactly(found) == sl.exactly(given), message


def through_frames(seed):
    """Encode rows like yielded ones, and decode them like a function's input; without a JVM."""
    schema = sl.Schema(random.Random(seed), columns=10, rows=4, depth=DEPTH)
    declared = st.StructType(schema.fields)
    codec, columns = (
        RowCodec.from_schema(declared),
        OutputCodec.from_schema(declared).columns(schema.rows, "op"),
    )
    decoded = codec.decode(arriving(codec, columns))
    for at, field in enumerate(schema.fields):
        for row, value in enumerate(decoded[at]):
            same(sl.seen(field.dataType, value), schema.rows[row][at], field.dataType)


def all_through_frames(seeds):
    """Run all seeds through frames."""
    for seed in seeds:
        through_frames(seed)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_rows_come_back_from_their_frames(start):
    """Encoded rows are decoded unchanged, for each of about 600 types."""
    all_through_frames(range(start, start + 20))


@pytest.mark.soak
def test_rows_come_back_from_their_frames_at_length():
    """Encoded rows of 50,000 types are decoded unchanged."""
    all_through_frames(range(1000, 6000))


GEOMETRIES = [
    getattr(st, each)(4326) for each in ("GeometryType", "GeographyType") if hasattr(st, each)
]
"""Spark has these types from 4.1 on."""


@pytest.mark.parametrize(
    "declared", [st.VariantType(), st.CalendarIntervalType(), *GEOMETRIES, ExamplePointUDT()]
)
def test_a_type_without_a_carrier_is_refused(declared):
    """An unsupported type is refused at any depth, with its place, before the first row."""
    inner = st.StructType().add("f", st.ArrayType(declared))
    for kind, place in (
        (declared, "c"),
        (inner, "c.f[]"),
        (st.MapType(inner, declared), "c.key.f"),
    ):
        with pytest.raises(errors.UnsupportedColumnError, match="without loss") as caught:
            RowCodec.from_schema(st.StructType().add("c", kind))
        assert caught.value.column.startswith(place)


def test_a_column_with_a_collation_is_not_a_key():
    """A column with a collation is refused as a key, because equal keys would have several states."""
    for collation in ("UTF8_LCASE", "UNICODE_CI", "UNICODE"):
        with pytest.raises(errors.ConfigError, match=f"collate {collation} column cannot be a key"):
            key_codec_of(["k"], [st.StringType(collation)])


class Kept(mp.KeyedProcessFunction):
    """Function that puts each column into a state of its type, and yields the content.

    In round 1 it reads the state of round 0. It checks that its rows and its reads are the
    generated values.
    """

    def __init__(self, schema):
        self.schema = schema

    def open(self, context):
        self.states = []
        for at, field in enumerate(self.schema.fields):
            kind = sl.state_type(field.dataType)
            descriptor = kind and mp.ValueStateDescriptor(f"s{at}", kind)
            self.states.append(descriptor and context.get_state(descriptor))

    def process_element(self, row, context):
        number, turn, *columns = row
        kept = []
        for at, (field, state) in enumerate(zip(self.schema.fields, self.states, strict=True)):
            value, expected = sl.seen(field.dataType, columns[at]), self.schema.rows[number][at]
            same(value, expected, field.dataType)
            if state is not None and value is not None:
                if turn == 0:
                    state.update(value)
                value = state.value()
                same(value, expected, field.dataType)
            kept.append(columns[at] if state is None else value)
        yield (number, turn, *kept)


ROUND = [("id", st.IntegerType()), ("turn", st.IntegerType())]


def generated(spark, seed, columns):
    """Return a schema, a DataFrame of its rows with ids, and the declared output."""
    schema = sl.Schema(random.Random(seed), columns, rows=4, depth=DEPTH)
    declared = st.StructType([st.StructField(*ROUND[0]), *schema.fields])
    df = sl.data_frame(spark, declared, [(at, *row) for at, row in enumerate(schema.rows)])
    output = st.StructType([*(st.StructField(*each) for each in ROUND), *schema.fields])
    return schema, df, output


def texts(df):
    """Return each row's columns as text with all digits, and their hashes, which distinguish bytes."""
    names = [f"x{at}" for at in range(len(df.columns) - 2)]
    df = df.toDF("id", "turn", *names)
    columns = [F.concat_ws("|", F.col(n).cast("string"), F.xxhash64(n)) for n in names]
    return df.select("id", "turn", F.array(*columns))


def same_rows(given, rows, fields, turns):
    """Compare a DataFrame with rows of texts, row by row and column by column."""
    expected = {row[0]: row[2] for row in texts(given).collect()}
    assert sorted((row[0], row[1]) for row in rows) == sorted(
        (number, turn) for number in expected for turn in range(turns)
    )
    for number, _, columns in rows:
        for field, one, other in zip(fields, expected[number], columns, strict=True):
            assert one == other, f"{field.dataType.simpleString()}: {one!r} is {other!r}"


def cast_schema(spark, declared):
    """Return the schema of casts to the declared types: Spark loses collations below a nameless field."""
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in declared]
    return spark.range(0).select(*nulls).schema


def in_batch(spark, seed, columns):
    """Run a batch job over generated columns, with each row twice."""
    schema, df, output = generated(spark, seed, columns)
    turns = spark.range(2).selectExpr("cast(id as int) as turn")
    rounds = _in_front(df, turns)
    out = key_by(rounds, "id").process(Kept(schema), output=output, uid="kept", order_by="turn")
    assert out.schema.simpleString() == cast_schema(spark, output).simpleString()
    same_rows(_in_front(df, turns.limit(1)), texts(out).collect(), schema.fields, 2)


def _in_front(df, turns):
    """Return the rows of a DataFrame for each round, with the round after the id."""
    names = [f"x{at}" for at in range(len(df.columns) - 1)]
    both = df.toDF("id", *names).crossJoin(F.broadcast(turns)).select("id", "turn", *names)
    return both.toDF("id", "turn", *df.columns[1:])


@pytest.fixture
def job(spark, job_conf):
    """Set a job's backend, and let Spark hash maps for the comparison."""
    spark.conf.set("spark.sql.legacy.allowHashOnMapType", "true")
    yield lambda backend: job_conf(state_backend=backend)
    spark.conf.unset("spark.sql.legacy.allowHashOnMapType")


@pytest.mark.long
@pytest.mark.spark
def test_columns_pass_through_states(spark, job):
    """Generated columns reach the function as documented, fit their states, and come out equal."""
    job("lmdb")
    in_batch(spark, 1, COLUMNS)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_columns_pass_through_states_at_length(spark, job, seed):
    """Columns of more than a thousand types pass through states of each backend unchanged."""
    job(["heap", "rocksdb", "lmdb"][seed % 3])
    in_batch(spark, seed, 40)


@pytest.mark.long
@pytest.mark.spark
def test_columns_pass_through_states_of_a_stream(spark, job, tmp_path):
    """In a stream, the second batch reads columns unchanged from the state of the first one."""
    job("rocksdb")
    schema, df, output = generated(spark, 2, COLUMNS)
    turns = streaming.Files(spark, tmp_path / "turns", "turn int, other int")
    turns.add((0, 0))
    turns.add((1, 0))
    rounds = _in_front(df, turns.stream().select("turn"))
    out = key_by(rounds, "id").process(Kept(schema), output=output, uid="kept")
    found = []

    def keep(batch, _):  # Spark 4.2's memory sink accepts no arrays of times below precision 6
        found.extend(texts(batch).collect())

    out.writeStream.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    same_rows(_in_front(df, spark.sql("select 0 as turn")), found, schema.fields, 2)


@pytest.mark.spark
def test_bytes_that_are_no_text_are_refused(spark):
    """A string that is not UTF-8 fails the query, because JSON would replace characters."""
    text = "cast(X'61FF62' as string)"
    for sql in (text, f"array({text})", f"map({text}, 1)", f"struct({text})"):
        df = spark.sql(f"select {sql} as s")
        codec = RowCodec.from_schema(df.schema)
        with pytest.raises(Exception, match="INVALID_UTF8_STRING"):
            codec.encoded(df.select("s")).collect()


def _whole_seconds(decode):
    return lambda carrier, value: decode(carrier, value).replace(microsecond=0)


def _no_sign(pack):
    return lambda carrier, value: pack(carrier, value) + 0.0


def _zero_for_null(decode):
    return lambda node, value: decode(node, {name: item or 0 for name, item in value.items()})


def _no_nulls(decode):
    return lambda node, value: decode(node, [item for item in value if item is not None])


def _28_digits(decode):
    return lambda carrier, value: +decode(carrier, value)


PLANTED = [
    (TimestampCarrier, "decode", _whole_seconds),
    (DoubleCarrier, "pack", _no_sign),
    (DecimalCarrier, "decode", _28_digits),
    (json_nodes._Struct, "decode", _zero_for_null),
    (json_nodes._Array, "decode", _no_nulls),
]


@pytest.mark.parametrize(("carrier", "method", "planted"), PLANTED)
def test_a_planted_defect_is_found(monkeypatch, carrier, method, planted):
    """An encoding that loses microseconds, a sign, digits or a null fails the seeds above."""
    monkeypatch.setattr(carrier, method, planted(getattr(carrier, method)))
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        all_through_frames(range(60))
