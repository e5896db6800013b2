"""Savepoints that are created from a DataFrame, and jobs that start from them."""

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by
from pyspark.errors import PythonException

from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(40)]
COUNT = mp.ValueStateDescriptor("count", int)
SUM = mp.ValueStateDescriptor("sum", int)
GIVEN = "k string, count bigint, sum bigint"


class Alarm(Running):
    """Function that also yields when a timer of a key fires."""

    def on_timer(self, timestamp, context):
        yield context.current_key, -1, timestamp


class Timed(mp.KeyedStateBootstrapFunction):
    """Bootstrap function that sums a key's rows without overflow, and sets a timer for each key."""

    def open(self, context):
        self.sum = context.get_state(SUM)

    def process_element(self, row, context):
        self.sum.update((self.sum.value() or 0) + row.n * (1 << 40))
        context.timer_service().register_event_time_timer(row.n)


def bootstrapped(spark, place, parts=3):
    """Return a savepoint of operator ``running`` in which each key has ten rows and sum 100."""
    rows = spark.createDataFrame([(key, 10, 100) for key in KEYS], GIVEN).repartition(parts)
    writer = mp.SavepointWriter.new_savepoint()
    return writer.with_operator("running", key_by(rows, "k"), COUNT, SUM).write(place)


def files_in(place):
    """Return all files below a directory."""
    return [path for path in place.rglob("*") if path.is_file()]


def test_a_streaming_query_starts_from_a_dataframe(spark, job_conf, files, tmp_path):
    """Each subtask writes its files; a query with another parallelism and backend continues from them."""
    job_conf(state_backend="heap", parallelism=2)
    bootstrapped(spark, tmp_path / "saved")
    tables = [path for path in files_in(tmp_path / "saved") if path.suffix == ".parquet"]
    assert len(tables) == 4
    assert len(files_in(tmp_path / "saved")) == 5
    job_conf(state_backend="rocksdb", parallelism=3, checkpoint_restore=tmp_path / "saved")
    files.add(*((key, 1) for key in KEYS))
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
    run(out, tmp_path)
    assert output(spark, tmp_path) == sorted((key, 11, 101) for key in KEYS)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("backend", "parallelism"), [("heap", 3), ("lmdb", 11)])
def test_a_batch_starts_from_a_savepoint(spark, job_conf, tmp_path, backend, parallelism):
    """With any number of subtasks, each key's state exists once, and each timer fires once."""
    job_conf(state_backend="heap", parallelism=2)
    rows = spark.createDataFrame([("a", 7), ("b", 1), ("b", 2)], "k string, n bigint")
    writer = mp.SavepointWriter.new_savepoint(64)
    writer.with_operator("running", key_by(rows, "k"), function=Timed()).write(tmp_path / "saved")
    job_conf(state_backend=backend, parallelism=parallelism)
    spark.conf.set("spark.millpond.checkpoint.restore", str(tmp_path / "saved"))
    more = spark.createDataFrame([("a", 1), ("c", 1)], "k string, n bigint")
    done = key_by(more, "k").process(Alarm(), output=RUNNING, uid="running")
    expected = [("a", -1, 7), ("a", 1, 7 * (1 << 40) + 1), ("b", -1, 1), ("b", -1, 2), ("c", 1, 1)]
    assert sorted(map(tuple, done.collect())) == expected
    with pytest.raises(errors.ConfigError, match="state of one key at a time"):
        key_by(more, "k").process(Alarm(), output=RUNNING, uid="running", execution_mode="batch")
    with pytest.raises(errors.UnclaimedStateError, match="state of 'running'"):
        key_by(more, "k").process(Alarm(), output=RUNNING, uid="runing")
    for ending in ("@3", "@", "@last"):
        job_conf(checkpoint_restore=f"{tmp_path / 'query'}{ending}")
        kind = errors.ConfigError if ending == "@3" else errors.RestoreError
        with pytest.raises(kind, match="starts from savepoints only"):
            key_by(more, "k").process(Alarm(), output=RUNNING, uid="running")
    job_conf(checkpoint_restore=tmp_path / "nothing")
    with pytest.raises(errors.RestoreError, match="nothing/savepoint.json"):
        key_by(more, "k").process(Alarm(), output=RUNNING, uid="running")


def test_one_wide_value_makes_all_parts_exact(spark, job_conf, tmp_path):
    """If one subtask has a value beyond 64 bits, all write the exact form, and each row once."""
    job_conf(state_backend="heap", parallelism=2)
    rows = spark.createDataFrame(
        [(key, 1 << 30) for key in KEYS[:-1]] + [(KEYS[-1], 1)], "k string, n bigint"
    )
    place = (
        mp.SavepointWriter.new_savepoint()
        .with_operator("running", key_by(rows, "k"), function=Timed())
        .write(tmp_path / "saved")
    )
    assert len(files_in(tmp_path / "saved")) == 5
    with mp.open_keyed_backend("heap", key_type=str, restore=[place]) as backend:
        state = backend.get_partitioned_state(SUM)
        for key, expected in ((KEYS[0], 1 << 70), (KEYS[-1], 1 << 40)):
            backend.set_current_key(key)
            assert state.value() == expected


def test_no_rows_and_several_keys(spark, job_conf, tmp_path):
    """Without rows the states are empty; composite keys equal those of a local savepoint."""
    job_conf(state_backend="heap", parallelism=2)
    empty = spark.createDataFrame([], GIVEN)
    bare = mp.SavepointWriter.new_savepoint().with_operator("running", key_by(empty, "k"), COUNT)
    with mp.open_keyed_backend(
        "heap", key_type=str, restore=[bare.write(tmp_path / "e")]
    ) as opened:
        assert list(opened.keys("count")) == []
    pairs = spark.createDataFrame([("a", 1, 5)], "k string, day bigint, count bigint")
    both = mp.SavepointWriter.new_savepoint().with_operator(
        "running", key_by(pairs, "k", "day"), COUNT
    )
    both.write(tmp_path / "pairs")
    more = spark.createDataFrame([("a", 1, 2)], "k string, day bigint, n bigint")

    class Look(Running):
        def process_element(self, row, context):
            yield (*context.current_key, self.count.value())

    spark.conf.set("spark.millpond.checkpoint.restore", str(tmp_path / "pairs"))
    done = key_by(more, "k", "day").process(
        Look(), output="k string, day bigint, count bigint", uid="running"
    )
    assert [tuple(row) for row in done.collect()] == [("a", 1, 5)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["string", "decimal(9, 2)"])
def test_rows_that_cannot_be_state(spark, job_conf, files, tmp_path, kind):
    """Visible mistakes are refused at once; a failed job leaves no file."""
    job_conf(state_backend="heap", parallelism=2)
    new = mp.SavepointWriter.new_savepoint()
    rows = spark.createDataFrame([("1.5", 1), ("1.5", 2)], "k string, count bigint")
    rows = rows.selectExpr(f"cast(k as {kind}) as k", "count")
    with pytest.raises(errors.ConfigError, match="there is no such column; there are: k, count"):
        new.with_operator("running", key_by(rows, "k"), SUM)
    with pytest.raises(errors.ArgumentTypeError, match="a keyed DataFrame"):
        new.with_operator("running", rows, COUNT)
    with pytest.raises(errors.ConfigError, match="has no end"):
        new.with_operator("running", key_by(files.stream(), "k"), COUNT)
    new.with_operator("running", key_by(rows, "k"), COUNT)
    with pytest.raises(PythonException, match="give one row a key"):
        new.write(tmp_path / "saved")
    assert files_in(tmp_path / "saved") == []
