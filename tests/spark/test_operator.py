"""The operator on Spark: streams and batches, order, null keys, errors, replays, metrics."""

import os
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import key_by, several_operators, subtask_metrics

from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
BACKENDS = ["heap", "rocksdb", "lmdb"]


class Collect(mp.KeyedProcessFunction):
    """Function that yields the rows of a key so far, in order of arrival."""

    def open(self, context):
        self.seen = context.get_list_state(mp.ListStateDescriptor("seen", int))

    def process_element(self, row, context):
        self.seen.add(row.n)
        return [(row.k, self.seen.get())]


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_state_lasts_over_batches_and_restarts(spark, job_conf, files, tmp_path, backend):
    """A restarted query continues, on every backend."""
    job_conf(state_backend=backend)
    keyed = key_by(files.stream(), "k")
    files.add(("a", 1), ("b", 10))
    files.add(("a", 2))
    run(keyed.process(Running(), output=RUNNING, uid="running"), tmp_path)
    files.add(("a", 3), ("c", 100))
    run(keyed.process(Running(), output=RUNNING, uid="running"), tmp_path)
    assert output(spark, tmp_path) == [
        ("a", 1, 1), ("a", 2, 3), ("a", 3, 6), ("b", 1, 10), ("c", 1, 100),
    ]  # fmt: skip


def test_a_restart_may_choose_another_backend(spark, job_conf, files, tmp_path):
    """The state continues on another backend, from changed rows and from RocksDB's own files."""
    for at, (backend, strategy) in enumerate(
        (("rocksdb", "incremental"), ("lmdb", "changelog"), ("heap", "changelog"), ("rocksdb", "full"))
    ):  # fmt: skip
        job_conf(state_backend=backend, state_snapshot_strategy=strategy)
        files.add(("a", 10**at))
        run(key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="r"), tmp_path)
    assert output(spark, tmp_path)[-1] == ("a", 4, 1111)


def test_plain_batch(spark, job_conf):
    """A plain DataFrame is processed with state that lasts for the job."""
    job_conf(state_backend="rocksdb")
    df = spark.createDataFrame([("a", 1), ("b", 5), ("a", 2)], "k string, n bigint")
    out = key_by(df, "k").process(Running(), output=RUNNING, uid="batch")
    totals = {row.k: row.sum for row in out.collect() if row.k == "b" or row.rows == 2}
    assert totals == {"a": 3, "b": 5}


def test_order_by(spark, job_conf, files, tmp_path):
    """Each micro-batch's rows of a key are processed in the given order, nulls first."""
    job_conf(state_backend="heap")
    files.add(("a", 3), ("a", 1), ("b", 9), ("a", 2), ("b", 8), ("a", -5))
    out = key_by(files.stream(), "k").process(
        Collect(), output="k string, seen array<bigint>", uid="ordered", order_by="n"
    )
    run(out, tmp_path)
    longest = dict(sorted(output(spark, tmp_path), key=lambda row: len(row[1])))
    assert longest == {"a": [-5, 1, 2, 3], "b": [8, 9]}


def test_null_keys_are_refused(spark, job_conf, files, tmp_path):
    """A row with a null key fails the query with an error that names operator, key and row."""
    job_conf(state_backend="heap")
    files.add(("a", 1), (None, 77))
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="strict")
    with pytest.raises(Exception, match="null") as caught:
        run(out, tmp_path)
    assert "Operator 'strict': the key (k) of this row is null: Row(k=None, n=77)" in str(
        caught.value
    ).replace("Row Row", "Row")


def test_null_keys_are_dropped_or_put_aside(spark, job_conf, files, tmp_path):
    """null_keys='drop' omits such rows; 'aside' returns them unchanged."""
    job_conf(state_backend="heap")
    files.add(("a", 1), (None, 77))
    dropped = key_by(files.stream(), "k", null_keys="drop")
    run(dropped.process(Running(), output=RUNNING, uid="drop"), tmp_path, name="drop")
    assert output(spark, tmp_path, "drop") == [("a", 1, 1)]
    aside = key_by(files.stream(), "k", null_keys="aside")
    run(aside.null_key_rows, tmp_path, name="aside")
    assert output(spark, tmp_path, "aside") == [(None, 77)]


@pytest.mark.long
def test_several_operators_and_a_union_in_one_query(spark, job_conf, files, tmp_path):
    """Two operators, chained and side by side, have separate states."""
    job_conf(state_backend="lmdb")
    files.add(("a", 1), ("b", 2))
    files.add(("a", 3))
    rows = files.stream()
    first = key_by(rows, "k").process(Running(), output=RUNNING, uid="first")
    renamed = first.selectExpr("k", "sum as n")
    second = key_by(renamed, "k").process(Running(), output=RUNNING, uid="second")
    side = key_by(rows, "k").process(Running(), output=RUNNING, uid="side")
    with several_operators():
        run(second.union(side), tmp_path)
    chained = [("a", 1, 1), ("a", 2, 5), ("b", 1, 2)]
    beside = [("a", 1, 1), ("a", 2, 4), ("b", 1, 2)]
    assert output(spark, tmp_path) == sorted(chained + beside)
    found = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert {entry.operator_uid for entry in found} == {"first", "second", "side"}


def test_update_mode_and_foreach_batch(spark, job_conf, files, tmp_path):
    """The operator works in update mode and under foreachBatch."""
    job_conf(state_backend="rocksdb")
    files.add(("a", 1))
    files.add(("a", 2), ("b", 3))
    out = key_by(files.stream(), "k").process(
        Running(), output=RUNNING, uid="update", output_mode="update"
    )
    batches = {}

    def keep(df, batch_id):
        batches[batch_id] = sorted(map(tuple, df.collect()))

    query = (
        out.writeStream.outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert batches == {0: [("a", 1, 1)], 1: [("a", 2, 3), ("b", 1, 3)]}


def test_a_replayed_batch_counts_once(spark, job_conf, files, tmp_path):
    """A batch whose sink failed is computed again from the state before it."""
    job_conf(state_backend="rocksdb")
    files.add(("a", 1))
    files.add(("a", 2))
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="replayed")
    seen = []

    def start(fail):
        def sink(df, batch_id):
            rows = sorted(map(tuple, df.collect()))
            if fail and batch_id == 1:
                raise RuntimeError("the sink fails after the operator has run")
            seen.append((batch_id, rows))

        writer = out.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    with pytest.raises(Exception, match="sink fails"):
        start(fail=True).awaitTermination()
    start(fail=False).awaitTermination()
    assert seen == [(0, [("a", 1, 1)]), (1, [("a", 2, 3)])]


class Failing(mp.KeyedProcessFunction):
    """Function that fails for one key."""

    def process_element(self, row, context):
        if row.k == "bad":
            raise ZeroDivisionError("user's own trouble")
        yield (row.k,)


def test_errors_of_the_function_say_where(spark, job_conf, files, tmp_path):
    """A failing function's error names the operator uid, the subtask and the key."""
    job_conf(state_backend="heap")
    files.add(("good", 1), ("bad", 2))
    out = key_by(files.stream(), "k").process(Failing(), output="k string", uid="failing")
    subtask = mp.assign_to_key_group("bad", 128) * 2 // 128
    with pytest.raises(Exception, match="user's own trouble") as caught:
        run(out, tmp_path)
    expected = (
        f"Operator 'failing', subtask {subtask}, key 'bad', row Row(k='bad', n=2): "
        f"Failing.process_element failed ({__file__}, line "
    )
    assert expected in str(caught.value)


def test_event_time_reaches_the_function(spark, job_conf, files, tmp_path):
    """context.timestamp is the value of the watermarked or named column in ms."""

    class Stamp(mp.KeyedProcessFunction):
        def process_element(self, row, context):
            yield row.k, context.timestamp

    job_conf(state_backend="heap")
    files.add(("a", 1_700_000_000_123))
    rows = files.stream().selectExpr("k", "timestamp_millis(n) as at")
    out = key_by(rows.withWatermark("at", "1 minute"), "k").process(
        Stamp(), output="k string, ms bigint", uid="stamp"
    )
    run(out, tmp_path)
    assert output(spark, tmp_path) == [("a", 1_700_000_000_123)]
    named = key_by(rows, "k").process(
        Stamp(), output="k string, ms bigint", uid="named", event_time="at"
    )
    run(named, tmp_path, name="named")
    assert output(spark, tmp_path, "named") == [("a", 1_700_000_000_123)]


def test_metrics_of_the_last_batch(spark, job_conf, files, tmp_path):
    """The driver can read the metrics of each subtask's last batch."""
    job_conf(state_backend="heap")
    files.add(*[(f"k{number}", number) for number in range(100)])
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="figures")
    run(out, tmp_path)
    found = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert [(entry.first_group, entry.last_group) for entry in found] == [(0, 63), (64, 127)]
    assert sum(entry.metrics["rows_in"] for entry in found) == 100
    assert {entry.metrics["source"] for entry in found} == {"new"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_any_number_of_state_partitions_is_correct(spark, job_conf, files, tmp_path, partitions):
    """The result does not depend on the number of Spark's state partitions."""
    job_conf(state_backend="heap", parallelism=4)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        rows = [(f"k{number % 40}", number) for number in range(200)]
        files.add(*rows[:100])
        files.add(*rows[100:])
        run(key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="p"), tmp_path)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    finals = {row[0]: row[2] for row in output(spark, tmp_path) if row[1] == 5}
    assert finals == {f"k{k}": sum(range(k, 200, 40)) for k in range(40)}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda df: key_by(df), "at least one column"),
        (lambda df: key_by(df, "x"), "no such column"),
        (lambda df: key_by(df, "k", null_keys="ignore"), "expected one of refuse"),
        (lambda df: process(df, uid="../x"), "expected 1 to 100"),
        (lambda df: process(df, order_by="x"), "no such column"),
        (lambda df: process(df, event_time="n"), "not a timestamp"),
        (lambda df: process(df, function=object()), "expected a KeyedProcessFunction"),
        (lambda df: process(df, function=Running), "got the class Running: pass an instance"),
    ],
)
def test_wrong_arguments(spark, build, message):
    """Wrong arguments are refused immediately, with their name and a reason."""
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    with pytest.raises(errors.ConfigError, match=message):
        build(df)


def process(df, function=None, uid="uid", **options):
    """Return an operator with default arguments."""
    return key_by(df, "k").process(function or Running(), output=RUNNING, uid=uid, **options)


def test_wrong_configuration(spark, job_conf, files):
    """A misspelt key and an unknown backend are refused with the nearest spelling."""
    job_conf(state_backend="rocksbd")
    with pytest.raises(errors.PluginNotFoundError, match="Did you mean 'rocksdb'"):
        process(files.stream())
    job_conf(state_backend="heap", checkpiont_dir="x")
    with pytest.raises(errors.ConfigError, match="Did you mean 'spark.millpond.checkpoint.dir'"):
        process(files.stream())
    spark.conf.unset("spark.millpond.checkpiont.dir")
    spark.conf.unset("spark.millpond.checkpoint.dir")
    with pytest.raises(errors.ConfigError, match=r"spark.millpond.checkpoint.dir: a streaming"):
        process(files.stream())


def test_configure_knows_its_settings():
    """configure() accepts every key with underscores, and refuses others."""
    from millpond.spark import configure
    from pyspark.sql import SparkSession

    class Builder(SparkSession.Builder):
        def __init__(self):
            self.made = {}

        def config(self, key, value):
            self.made[key] = value

    builder = Builder()
    assert configure(builder, parallelism=11, max_parallelism=256, state_snapshot_max_deltas=5) is (
        builder
    )
    made = builder.made
    assert made["spark.millpond.max-parallelism"] == "256"
    assert made["spark.millpond.state.snapshot.max-deltas"] == "5"
    assert made["spark.sql.shuffle.partitions"] == "12"
    with pytest.raises(errors.ConfigError, match="Did you mean 'state_backend'"):
        configure(Builder(), parallelism=1, state_bakend="heap")


def test_labels_spread_over_partitions(spark):
    """By Spark's own hash, subtask i falls on partition i % n."""
    from millpond_spark.session.group_labels import group_labels
    from pyspark.sql import functions as F

    labels = group_labels(64)
    assert len(set(labels)) == 64
    df = spark.createDataFrame([(label,) for label in labels], "label int")
    for n in (1, 2, 5, 8, 10, 16, 64):
        found = df.select(F.pmod(F.hash("label"), F.lit(n)).alias("p")).collect()
        assert [row.p for row in found] == [index % n for index in range(64)]
    assert group_labels(3) == labels[:3]


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["rocksdb", "lmdb"])
def test_damaged_local_copies_are_replaced_and_counted(spark, job_conf, files, tmp_path, backend):
    """A query with damaged local copies continues from its snapshots, and counts the copies."""
    job_conf(state_backend=backend)
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="damaged")
    files.add(*[(f"k{number}", number) for number in range(100)])
    query = run(out, tmp_path)
    one = spark.sparkContext.parallelize([0], 1)
    (local,) = one.map(lambda _: os.environ["SPARK_LOCAL_DIRS"]).collect()
    damaged = list(Path(local).glob(f"millpond-*/{query.id}/damaged/kg-*/copy/{backend}/[d0-9]*"))
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :] = b"\xa5" * len(data[len(data) // 2 :])
        path.write_bytes(data)
    assert len(damaged) >= 2
    files.add(*[(f"k{number}", number) for number in range(100)])
    run(out, tmp_path)
    found = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert [entry.metrics["source"] for entry in found] == ["snapshot", "snapshot"]
    assert [entry.metrics["copies_discarded"] for entry in found] == [1, 1]
    second = {row for row in output(spark, tmp_path) if row[1] == 2}
    assert second == {(f"k{number}", 2, 2 * number) for number in range(100)}
