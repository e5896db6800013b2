"""Queries that are stopped, fail, share directories, or are started twice."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest
from millpond.spark import key_by
from pyspark.errors import StreamingQueryException

from tests.spark.retail_runs import PATIENCE_S
from tests.spark.streaming import RUNNING, Files, Running, output


class Waiting(Running):
    """Function that waits in the middle of a batch until its gate, a named pipe, is opened."""

    def __init__(self, reached, gate):
        self.reached, self.gate = reached, gate

    def process_element(self, row, context):
        yield from super().process_element(row, context)
        if row.n == 3:
            Path(self.reached).touch()
            if Path(self.gate).exists():
                Path(self.gate).open("rb").close()


class Failing(Running):
    def process_element(self, row, context):
        raise ValueError("a bad row")


def start(df, function, tmp_path, name="query", trigger=None):
    """Start a query that runs until it is stopped, or with a trigger to the end of its input."""
    job = key_by(df, "k").process(function, output=RUNNING, uid="totals")
    writer = job.writeStream.trigger(**(trigger or {"availableNow": True}))
    writer = writer.option("checkpointLocation", str(tmp_path / name / "checkpoint"))
    return writer.format("parquet").option("path", str(tmp_path / name / "output")).start()


ON = {"processingTime": "0 seconds"}


def closed_gate(tmp_path):
    """Return a closed gate."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    return gate


def opened(gate):
    """Open the gate for a waiting function; fail if none waits."""
    os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    gate.unlink()


def reached(query, path):
    """Wait until a query has created a file."""
    while not path.exists():
        assert not query.awaitTermination(0.1), "the query has ended"


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "lmdb"])
def test_a_query_stopped_in_the_middle_of_a_batch(spark, job_conf, files, tmp_path, backend):
    """An interrupted batch runs again, and each row counts once."""
    job_conf(state_backend=backend)
    files.add(("a", 1), ("b", 2))
    files.add(("a", 3), ("b", 4), ("a", 5))
    mark, gate = tmp_path / "mark", closed_gate(tmp_path)
    query = start(files.stream(), Waiting(str(mark), str(gate)), tmp_path, trigger=ON)
    reached(query, mark)
    query.stop()
    assert query.exception() is None
    assert output(spark, tmp_path) == [("a", 1, 1), ("b", 1, 2)]
    opened(gate)
    start(files.stream(), Waiting(str(mark), str(gate)), tmp_path).awaitTermination()
    assert {key: total for key, _, total in output(spark, tmp_path)} == {"a": 9, "b": 6}
    assert len(output(spark, tmp_path)) == 5


def test_a_query_started_again_while_it_runs(spark, job_conf, files, tmp_path):
    """Starting a running query again stops the earlier run, as in Spark, and each row counts once."""
    files.add(("a", 1))
    first = start(files.stream(), Running(), tmp_path, trigger=ON)
    first.processAllAvailable()
    files.add(("a", 2))
    second = start(files.stream(), Running(), tmp_path, trigger=ON)
    second.processAllAvailable()
    assert not first.isActive
    files.add(("a", 3))
    second.processAllAvailable()
    second.stop()
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3), ("a", 3, 6)]


def test_queries_that_share_a_directory_and_a_failure_among_them(spark, job_conf, files, tmp_path):
    """Operators of one uid in several queries are separate; awaitAnyTermination shows the failure's cause."""
    files.add(("a", 1))
    others = Files(spark, tmp_path / "others")
    others.add(("a", 10))
    good = start(files.stream(), Running(), tmp_path, "good", ON)
    better = start(others.stream(), Running(), tmp_path, "better", ON)
    good.processAllAvailable()
    better.processAllAvailable()
    spark.streams.resetTerminated()
    bad = start(others.stream(), Failing(), tmp_path, "bad")
    with pytest.raises(StreamingQueryException) as caught:
        spark.streams.awaitAnyTermination()
    said = str(caught.value).splitlines()[0]
    assert "Operator 'totals', subtask " in said
    assert "Failing.process_element failed (" + __file__ in said
    assert not bad.isActive
    files.add(("a", 2))
    others.add(("a", 20))
    good.processAllAvailable()
    better.processAllAvailable()
    good.stop()
    better.stop()
    assert output(spark, tmp_path, "good") == [("a", 1, 1), ("a", 2, 3)]
    assert output(spark, tmp_path, "better") == [("a", 1, 10), ("a", 2, 30)]


def test_a_checkpoint_directory_lost_in_the_middle(spark, job_conf, files, tmp_path):
    """If the checkpoint directory is lost during a run, the error names it, and the query continues once it is back."""
    files.add(("a", 1))
    query = start(files.stream(), Running(), tmp_path, trigger=ON)
    query.processAllAvailable()
    snapshots, aside = tmp_path / "snapshots", tmp_path / "aside"
    snapshots.rename(aside)
    snapshots.write_text("a file where the directory was")
    files.add(("a", 2))
    with pytest.raises(StreamingQueryException) as caught:
        query.processAllAvailable()
    said = "".join(str(caught.value).splitlines()[:3])
    assert str(snapshots) in said
    assert "Not a directory" in said
    assert f"(the operator is made at {__file__}, line " in said
    snapshots.unlink()
    aside.rename(snapshots)
    start(files.stream(), Running(), tmp_path).awaitTermination()
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3)]


def test_a_checkpoint_directory_moved_away_in_the_middle(spark, job_conf, files, tmp_path):
    """Without the checkpoint directory no query starts; once it is back, all continue exactly."""
    files.add(("a", 1), ("b", 1))
    query = start(files.stream(), Running(), tmp_path, trigger=ON)
    query.processAllAvailable()
    snapshots, aside = tmp_path / "snapshots", tmp_path / "aside"
    snapshots.rename(aside)
    files.add(("a", 2))
    with suppress(StreamingQueryException):  # a worker that knows its layout continues
        query.processAllAvailable()
    query.stop()
    with pytest.raises(StreamingQueryException, match=r"nothing is in spark\.millpond\.checkpoint"):
        start(files.stream(), Running(), tmp_path).awaitTermination()
    if snapshots.exists():
        shutil.copytree(snapshots, aside, dirs_exist_ok=True)
        shutil.rmtree(snapshots)
    aside.rename(snapshots)
    files.add(("b", 4))
    start(files.stream(), Running(), tmp_path).awaitTermination()
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3), ("b", 1, 1), ("b", 2, 5)]


@pytest.mark.long
def test_two_drivers_on_one_checkpoint(spark, job_conf, files, tmp_path):
    """Of two processes, one commits a batch and the other fails with the reason; each row counts once."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    files.add(("a", 3))
    mark, gate = tmp_path / "mark", closed_gate(tmp_path)
    first = start(files.stream(), Waiting(str(mark), str(gate)), tmp_path, trigger=ON)
    reached(first, mark)
    script = Path(__file__).with_name("second_driver.py")
    command = [sys.executable, str(script), str(tmp_path), str(files.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    opened(gate)
    with pytest.raises(StreamingQueryException, match="(?i)concurren|race while writing"):
        first.processAllAvailable()
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 4)]
    files.add(("a", 5))
    start(files.stream(), Running(), tmp_path).awaitTermination()
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 4), ("a", 3, 9)]


def test_a_job_group_of_the_users_is_no_run(spark, job_conf, files, tmp_path):
    """A user's job group in foreachBatch, which is the same in each run, is not taken for the run's id."""
    folder = str(tmp_path / "out")

    def write(batch, number):
        spark.sparkContext.setJobGroup("nightly", "what the dashboard shows")
        batch.write.mode("append").parquet(folder)

    for parallelism in (2, 3, 2):
        job_conf(state_backend="heap", parallelism=parallelism)
        files.add(("a", 1), ("b", 1))
        files.add(("a", 1), ("b", 1))
        job = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="totals")
        writer = job.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    rows = sorted(map(tuple, spark.read.parquet(folder).collect()))
    assert rows == [(key, n, n) for key in "ab" for n in range(1, 7)]


def run_and_rescale(job_conf, files, tmp_path):
    """Run the running sums twice, the second time with another parallelism."""
    for number, parallelism in enumerate((2, 3), start=1):
        job_conf(state_backend="heap", parallelism=parallelism)
        files.add(("a", number))
        start(files.stream(), Running(), tmp_path).awaitTermination()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("setting", "least"),
    [("spark.sql.maxPlanStringLength", "0"), ("spark.sql.debug.maxToStringFields", "0")],
)
def test_how_much_of_a_plan_is_written_does_not_matter(
    spark, job_conf, files, tmp_path, setting, least
):
    """An operator is found in its query's plan even if Spark truncates the plan's text."""
    spark.conf.set(setting, least)
    try:
        run_and_rescale(job_conf, files, tmp_path)
    finally:
        spark.conf.unset(setting)
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3)]


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("same_session", [True, False])
def test_a_query_within_another(spark, job_conf, files, tmp_path, same_session):
    """A query that foreachBatch starts has its own run, in its session or that of the batch."""
    job_conf(state_backend="heap")
    others, listeners = Files(spark, tmp_path / "others"), set()

    def write(batch, number):
        others.spark = spark if same_session else batch.sparkSession
        others.add(*((row.k, row.sum) for row in batch.collect()))
        start(others.stream(), Running(), tmp_path, "inner").awaitTermination()
        listeners.add(len(others.spark.streams._jsqm.listListeners()))

    for number in (1, 2):
        files.add(("a", number))
        files.add(("b", number))
        job = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="totals")
        writer = job.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "outer")).start().awaitTermination()
    expected = [(key, n, total) for key in "ab" for n, total in ((1, 1), (2, 4))]
    assert output(spark, tmp_path, "inner") == expected
    assert len(listeners) == 1


def test_a_query_with_job_tags(spark, job_conf, files, tmp_path):
    """A query that is started in a thread with job tags works as usual, and rescales."""
    spark.sparkContext.addJobTag("nightly")
    try:
        run_and_rescale(job_conf, files, tmp_path)
    finally:
        spark.sparkContext.removeJobTag("nightly")
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3)]


def test_operators_that_several_threads_build_at_once(spark, job_conf):
    """A session has one listener, even if several threads build operators at the same time."""
    job_conf(state_backend="heap")
    session, together = spark.newSession(), Barrier(4)
    for key in ("spark.millpond.checkpoint.dir", "spark.millpond.state.backend"):
        session.conf.set(key, spark.conf.get(key))
    rows = session.readStream.format("rate").load()

    def build(number):
        together.wait()
        key_by(rows, "value").process(Running(), output=RUNNING, uid=f"totals{number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(build, range(4)))
    assert len(session.streams._jsqm.listListeners()) == 1
