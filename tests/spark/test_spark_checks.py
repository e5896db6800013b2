"""Spark's own checks remain on, and results do not depend on Spark's settings."""

import json
import os
import tempfile
from collections import Counter

import millpond as mp
import pandas as pd
import pytest
from millpond import errors
from millpond.spark import configure, key_by, several_operators, subtask_metrics
from millpond_spark.api.configure import recommended_settings
from millpond_spark.plan.timing import TIMEOUTS, BatchTime, own_rows, sleeps_on, with_wake_ups
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN
from pyspark import SparkContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.state import GroupState

from tests.spark.streaming import RUNNING, Running, output, run

FOLDING = "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery"
LABELS = (70, 80, 90)


def test_what_configure_sets_is_known():
    """`configure` changes two of Spark's settings on any session, which only make it faster."""
    ours = {name for name in recommended_settings(2) if name.startswith("spark.millpond.")}
    assert set(recommended_settings(2)) - ours == {
        "spark.sql.shuffle.partitions",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }


def no_jvm_yet(monkeypatch):
    """Pretend that no JVM was started yet."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for name in ("PYSPARK_UDS_MODE", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("before", "temporary", "after"),
    [
        ({}, "/tmp", "true"),
        ({"PYSPARK_UDS_MODE": "false"}, "/tmp", "false"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "/tmp", None),
        ({"SPARK_REMOTE": "sc://localhost"}, "/tmp", None),
        ({}, "/" + "x" * 60, None),
    ],
)
def test_unix_sockets_where_this_process_starts_the_jvm(monkeypatch, before, temporary, after):
    """Without sockets: a JVM that runs already or elsewhere, a long path, and a user's setting."""
    no_jvm_yet(monkeypatch)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", temporary)
    builder = configure(SparkSession.Builder(), parallelism=1)
    assert os.environ.get("PYSPARK_UDS_MODE") == after
    placed = builder._options.get("spark.python.unix.domain.socket.dir")
    assert placed == (temporary if after else None)


def test_no_sockets_in_a_jvm_that_was_started_without(monkeypatch):
    """A JVM of this process that was started with TCP keeps TCP, because accumulators would be lost."""
    no_jvm_yet(monkeypatch)
    monkeypatch.setattr(SparkContext, "_gateway", "a gateway")
    builder = configure(SparkSession.Builder(), parallelism=1)
    assert "PYSPARK_UDS_MODE" not in os.environ
    assert "spark.python.unix.domain.socket.dir" not in builder._options


@pytest.mark.parametrize(("place", "used"), [("/run/sockets", "true"), ("/" + "x" * 60, None)])
def test_the_users_directory_for_sockets_stays(monkeypatch, place, used):
    """Sockets are in the user's directory; if their paths would be too long, TCP is used."""
    no_jvm_yet(monkeypatch)
    builder = SparkSession.Builder().config("spark.python.unix.domain.socket.dir", place)
    configure(builder, parallelism=1)
    assert builder._options["spark.python.unix.domain.socket.dir"] == place
    assert os.environ.get("PYSPARK_UDS_MODE") == used


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("excluded", [False, True])
def test_the_first_row_of_each_partition_wakes_all(spark, excluded):
    """Copies of each partition's first row go to all subtasks; if Spark's optimizer prevents this, those of each row."""
    before = spark.conf.get("spark.sql.optimizer.excludedRules", None)
    rows = spark.range(0, 9, 1, 3).selectExpr(
        "id", f"1 {GROUP_COLUMN}", f"70 {LABEL_COLUMN}", "spark_partition_id() part"
    )
    if excluded:
        spark.conf.set("spark.sql.optimizer.excludedRules", FOLDING)
    try:
        found = with_wake_ups(rows, LABELS).collect()
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")
    assert before is None
    own = [row for row in found if row[GROUP_COLUMN] == 1]
    assert sorted((row.id, row[LABEL_COLUMN]) for row in own) == [(n, 70) for n in range(9)]
    woken = Counter((row.id, row[LABEL_COLUMN]) for row in found if row[GROUP_COLUMN] != 1)
    wakers = range(9) if excluded else (0, 3, 6)
    assert woken == {(n, label): 1 for n in wakers for label in LABELS}


CHECK = "spark.sql.streaming.unsupportedOperationCheck"


@pytest.fixture
def operators(job_conf, files):
    """Return an operator for each uid, side by side over one source."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    rows = files.stream()

    def make(*uids, **options):
        return [
            key_by(rows, "k").process(Running(), output=RUNNING, uid=uid, **options) for uid in uids
        ]

    return make


def chained(first, uid="second", **options):
    """Return an operator over the output of another one."""
    rows = first.selectExpr("k", "sum n")
    return key_by(rows, "k").process(Running(), output=RUNNING, uid=uid, **options)


@pytest.mark.spark
def test_several_operators_are_refused_in_our_words(spark, operators, tmp_path):
    """Several operators, chained or side by side, are refused before the query runs, with names and cure."""
    first, other = operators("first", "other")
    for query in (chained(first), first.union(other)):
        with pytest.raises(errors.SeveralOperatorsError, match=r"several_operators\(\)") as caught:
            run(query, tmp_path)
        assert "first" in caught.value.uids
        assert len(caught.value.uids) == 2
        assert isinstance(caught.value.__cause__, AnalysisException)
    assert spark.conf.get(CHECK) == "true"


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("explicit", [None, "true"])
def test_the_check_is_off_for_such_a_query_alone(spark, operators, tmp_path, explicit):
    """In the block Spark still refuses other queries; afterwards the setting is restored."""
    first, other = operators("first", "other")
    if explicit is not None:
        spark.conf.set(CHECK, explicit)
    try:
        with several_operators():
            with pytest.raises(AnalysisException, match="Sorting is not supported"):
                run(first.sort("k"), tmp_path, name="sorted")
            run(first.union(other), tmp_path)
            assert spark.conf.getAll.get(CHECK) == explicit
        with pytest.raises(errors.SeveralOperatorsError):
            run(first.union(other), tmp_path)
    finally:
        spark.conf.unset(CHECK)
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 1, 1)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "mode", "reason"),
    [
        (
            lambda first, other: first.union(other),
            "complete",
            r"outputMode\('complete'\).*outputs rows",
        ),
        (lambda first, other: first.union(other), "update", "made for 'append'"),
        (lambda first, other: first.union(other).sort("k"), "append", "Sorting"),
        (lambda first, other: first.sort("k").union(other), "append", "Sorting"),
        (lambda first, _: chained(first.sort("k")), "append", "Sorting"),
        (
            lambda first, _: chained(first, output_mode="update"),
            "update",
            "made for 'append'",
        ),
    ],
)
def test_what_is_refused_beside_one_operator_is_refused_beside_two(
    operators, tmp_path, make, mode, reason
):
    """A query that Spark refuses with one operator is refused with two, wherever the reason is."""
    query = make(*operators("first", "other"))
    with (
        several_operators(),
        pytest.raises(StreamingQueryException, match=reason),
    ):
        sink(query, tmp_path, mode)


def sink(df, tmp_path, mode):
    """Run a query in any output mode."""
    writer = df.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "noop")).start().awaitTermination()


@pytest.mark.sample(1)
@pytest.mark.spark
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_check_that_the_user_has_switched_off(spark, operators, tmp_path, mode):
    """If the user has switched Spark's check off, Millpond refuses an append operator in another mode."""
    (first,) = operators("first")
    spark.conf.set(CHECK, "false")
    try:
        with pytest.raises(
            StreamingQueryException, match=rf"outputMode\('{mode}'\), and .*'first'"
        ):
            sink(first, tmp_path, mode)
        with pytest.raises(StreamingQueryException, match="check of streaming queries"):
            sink(first.sort("k"), tmp_path, "append")
    finally:
        spark.conf.unset(CHECK)


@pytest.mark.spark
@pytest.mark.parametrize("query", ["append", "update", "complete"])
@pytest.mark.parametrize("own", ["default", "append", "update"])
def test_the_output_modes_of_query_and_operator(operators, tmp_path, own, query):
    """If the modes of query and operator differ, the message names the operator and both cures."""
    (made,) = operators("moded", **({} if own == "default" else {"output_mode": own}))
    own = "append" if own == "default" else own
    if own == query:
        sink(made, tmp_path, query)
        return
    with pytest.raises(errors.OutputModeError, match="operator 'moded'") as caught:
        sink(made, tmp_path, query)
    assert isinstance(caught.value.__cause__, AnalysisException)
    if query != "complete":
        assert f"process(..., output_mode='{query}')" in str(caught.value)
        assert f"outputMode('{own}')" in str(caught.value)


@pytest.mark.spark
def test_spark_s_own_settings(spark, operators, tmp_path):
    """With more state partitions than subtasks the result is correct."""
    (first,) = operators("first")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        run(first, tmp_path)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert output(spark, tmp_path) == [("a", 1, 1)]


@pytest.mark.soak
def test_a_job_with_spark_s_defaults(spark, operators, files, tmp_path):
    """With 200 state partitions and frames of Spark's size the rows are the same, but slower."""
    defaults = {
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
    before = {name: spark.conf.get(name) for name in defaults}
    (first,) = operators("first")
    files.add(("a", 2), ("b", 5))
    try:
        for name, value in defaults.items():
            spark.conf.set(name, value)
        run(first, tmp_path)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3), ("b", 1, 5)]


@pytest.mark.spark
def test_subtasks_are_woken_when_their_layout_is_new(spark, job_conf, files, tmp_path):
    """After a rescale to three subtasks, all run in the first batch, then only subtasks with rows."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((f"k{number}", 1) for number in range(20)))
    run(alarms(files), tmp_path)
    job_conf(parallelism=3)
    for number in (2, 3, 4):
        files.add(("k0", number))
    query = run(alarms(files), tmp_path)
    last = query.lastProgress["batchId"] + 1
    checkpoint = str(tmp_path / "query" / "checkpoint")
    found = {
        each.first_group: (each.checkpoint_id, each.metrics["rows_in"])
        for each in subtask_metrics(spark, checkpoint)
        if each.checkpoint_id > 1
    }
    assert sorted(found.values()) == [(last - 2, 0), (last - 2, 0), (last, 1)]


class Alarm(mp.KeyedProcessFunction):
    """Function that sets a timer a day after each row."""

    def process_element(self, row, context):
        service = context.timer_service()
        now = service.current_processing_time()
        service.register_processing_time_timer(now + 86_400_000)

    def on_timer(self, timestamp, context):
        yield (context.current_key,)


def alarms(files):
    return key_by(files.stream(), "k").process(Alarm(), output="k string", uid="alarms")


@pytest.mark.parametrize(
    ("mode", "timers", "timeout"),
    [
        (None, (None, None), -1),
        ("event-time", (None, None), -1),
        ("event-time", (500, None), None),
        ("event-time", (501, None), 500),
        ("event-time", (9_000, 100), 8_999),
        ("event-time", (9_000, 99), None),
        ("processing-time", (None, 100), 101),
        ("processing-time", (None, 700), 700),
        ("processing-time", (None, 99), None),
        ("processing-time", (9_000, 700), 101),
    ],
)
def test_who_was_woken_and_sleeps_on(mode, timers, timeout):
    """A subtask without a due timer keeps its timeout, which Spark's call has cleared."""
    state = GroupState(
        Row("pointer"), 100, 500, TIMEOUTS[mode], False, True, True, False, False, -1, b"", None
    )
    time = BatchTime.from_state(state, watermarked=True)
    assert sleeps_on(state, mode, time, timers) is (timeout is not None)
    assert json.loads(state.json())["timeoutTimestamp"] == (timeout or -1)
    assert not json.loads(state.json())["updated"]


def test_wake_ups_are_no_rows():
    """Copied rows are removed from the frames; a frame of nothing else is not passed on."""
    groups = [[-1, -1], [5, -1, -2], [6]]
    frames = [pd.DataFrame({GROUP_COLUMN: each, "n": 1}) for each in groups]
    found = [frame[GROUP_COLUMN].tolist() for frame in own_rows(iter(frames))]
    assert found == [[5, -2], [6]]
