"""Changed key columns and map keys in restarted queries."""

from datetime import datetime
from decimal import Decimal

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from millpond_spark.plan.plan import key_codec_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    TimestampNTZType,
    TimestampType,
)

from tests.spark.streaming import Files, output, run


@attrs.frozen
class Old:
    """A map key."""

    n: int


@attrs.frozen
class New:
    """The map key `Old` with an additional field."""

    n: int
    note: str | None = None


COUNT = mp.ValueStateDescriptor("count", int)


class Seen(mp.KeyedProcessFunction):
    """Function that counts the numbers of a key in a map."""

    def __init__(self, kind):
        self.kind = kind

    def open(self, context):
        self.seen = context.get_map_state(mp.MapStateDescriptor("seen", self.kind, int))

    def process_element(self, row, context):
        key = self.kind(row.n)
        self.seen[key] = self.seen.get(key, 0) + 1
        yield context.current_key, self.seen[key], len(self.seen)


def test_an_int_key_becomes_a_bigint_and_a_map_key_grows(spark, job_conf, tmp_path):
    """A wider integer column keeps its keys, state and key groups, also at a rescale; a map key may grow."""
    for parallelism, column, kind in ((2, "int", Old), (3, "bigint", New)):
        job_conf(state_backend="rocksdb", parallelism=parallelism)
        files = Files(spark, tmp_path / "in", f"k {column}, n bigint")
        files.count = parallelism
        files.add(*((key, 7) for key in range(-5, 5)))
        df = key_by(files.stream(), "k").process(
            Seen(kind), output="k bigint, times bigint, held bigint", uid="seen"
        )
        run(df, tmp_path)
    expected = [(key, times, 1) for key in range(-5, 5) for times in (1, 2)]
    assert output(spark, tmp_path) == sorted(expected)


@pytest.mark.long
def test_a_decimal_key_of_another_scale_is_refused(spark, job_conf, files, tmp_path):
    """A decimal key of another scale is refused, also with a second column; more digits before the point are accepted."""
    job_conf(state_backend="heap", parallelism=2)
    for round_number, kind in enumerate(("decimal(10,2)", "decimal(12,2)", "decimal(12,4)"), 1):
        files.add(*((f"{n}.5", 1) for n in range(20)))
        for keys in (["k"], ["k", "n"]):
            df = files.stream().select(F.col("k").cast(kind).alias("k"), "n")
            out = key_by(df, *keys).process(Counts(), output="times bigint", uid="counts")
            name = "-".join(keys)
            if kind == "decimal(12,4)":
                with pytest.raises(
                    StreamingQueryException, match=r"Decimal.*scale: 2.*stored type"
                ):
                    run(out, tmp_path, name=name)
            else:
                run(out, tmp_path, name=name)
                times = [row[0] for row in output(spark, tmp_path, name=name)]
                assert times == sorted([*range(1, round_number + 1)] * 20)


class Counts(mp.KeyedProcessFunction):
    """Function that counts the rows of a key."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        yield (self.count.value(),)


def test_a_decimal_key_of_another_scale_in_a_subtask_without_state(
    spark, job_conf, files, tmp_path
):
    """The start refuses a decimal of another scale, even if a subtask without state cannot check it."""
    job_conf(state_backend="heap", parallelism=2)

    def count(kind):
        files.add(("1.10", 1))
        df = files.stream().select(F.col("k").cast(kind).alias("k"))
        out = key_by(df, "k").process(Counts(), output="times bigint", uid="counts")
        run(out, tmp_path)

    count("decimal(10,2)")
    with pytest.raises(StreamingQueryException, match=r"counts.*Decimal\(scale: 2\).*stored type"):
        count("decimal(12,4)")
    count("decimal(12,2)")
    assert output(spark, tmp_path) == [(1,), (2,), (3,)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("later", [2, 3])
def test_an_operator_without_any_state_may_get_other_keys(spark, job_conf, files, tmp_path, later):
    """If an operator has had no row, its key type may change, with the same or another parallelism."""

    def count(kind):
        files.add(("1", 1))
        df = files.stream().select(F.col("k").cast(kind).alias("k"))
        rows = df if kind == "bigint" else df.where("k = 'none'")
        out = key_by(rows, "k").process(Counts(), output="times bigint", uid="counts")
        run(out, tmp_path)

    job_conf(state_backend="heap", parallelism=2)
    count("string")
    job_conf(state_backend="heap", parallelism=later)
    count("bigint")
    count("bigint")
    assert output(spark, tmp_path) == [(1,), (2,)]


TIMES = [TimestampType(), TimestampNTZType()]


@pytest.mark.parametrize("beside", [[], ["n"]])
@pytest.mark.parametrize(
    ("key", "stored", "declared"),
    [
        (Decimal("1.10"), DecimalType(10, 2), DecimalType(12, 4)),
        (Decimal("1.10"), DecimalType(12, 4), DecimalType(10, 2)),
        (datetime(2024, 3, 5), *TIMES),
        (datetime(2024, 3, 5), *reversed(TIMES)),
        (1.5, FloatType(), DoubleType()),
    ],
)
def test_keys_of_another_column(tmp_path, key, stored, declared, beside):
    """Changed keys are refused, except for columns of unknown type."""
    names, numbers = ["k", *beside], [LongType()] * len(beside)
    codecs = [key_codec_of(names, [kind, *numbers]) for kind in (stored, declared)]
    python = tuple[type(key), int] if beside else type(key)
    key = (key, 7) if beside else key
    storage = mp.checkpoint_storage(tmp_path.as_uri())

    def then(codec, handle, number):
        with mp.open_keyed_backend(
            "heap", key_type=codec, restore=[handle] if handle else []
        ) as backend:
            backend.set_current_key(key)
            count = backend.get_partitioned_state(COUNT)
            count.update((count.value() or 0) + 1)
            return count.value(), backend.snapshot(number, storage).result().handle

    _, handle = then(codecs[0], None, 1)
    with pytest.raises(errors.StateMigrationError, match="cast the column to the stored type"):
        then(codecs[1], handle, 2)
    for number, codec in enumerate((codecs[0], python, codecs[1]), 2):
        times, handle = then(codec, handle, number)
        assert times == number
