"""Rescaling: another parallelism at a restart, with the same checkpointLocation."""

import json
import shutil
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import create_savepoint, key_by, rescale, subtask_metrics
from pyspark.errors import StreamingQueryException

from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(40)]


def restart(stream, tmp_path):
    """Run the operator over new input with the session's parallelism."""
    out = key_by(stream, "k").process(Running(), output=RUNNING, uid="running")
    return run(out, tmp_path)


def expected(rounds):
    """Return the expected output after a number of rounds with one row for each key."""
    return sorted((key, n, n * (n + 1) // 2) for key in KEYS for n in range(1, rounds + 1))


@pytest.mark.long
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("backend", "strategy"),
    [("heap", "changelog"), ("lmdb", "full"), ("rocksdb", "changelog"), ("rocksdb", "incremental")],
)
def test_up_and_down(spark, job_conf, files, tmp_path, backend, strategy):
    """State follows its key groups from 2 to 5 to 3 to 5 subtasks."""
    job_conf(state_backend=backend)
    spark.conf.set("spark.millpond.state.snapshot.strategy", strategy)
    for round_number, parallelism in enumerate((2, 5, 3, 5), start=1):
        job_conf(parallelism=parallelism)
        files.add(*((key, round_number) for key in KEYS))
        query = restart(files.stream(), tmp_path)
        assert output(spark, tmp_path) == expected(round_number)
    checkpoint = str(tmp_path / "query" / "checkpoint")
    newest = [each for each in subtask_metrics(spark, checkpoint) if each.checkpoint_id == 4]
    assert len(newest) == 5
    assert {each.metrics["source"] for each in newest} == {"rescaled"}
    assert query.lastProgress is not None


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["a blank", "a%20b%zz", "a#b?[c]{d}"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_checkpoint_whose_path_a_uri_encodes(spark, job_conf, files, tmp_path, name, scheme):
    """A query whose path needs URI encoding is rescaled and saved, and its metrics are read."""
    place = scheme + str(tmp_path / name / "checkpoint")
    job_conf(state_backend="heap", parallelism=2)
    for round_number, parallelism in enumerate((2, 3), start=1):
        job_conf(parallelism=parallelism)
        files.add(*((key, round_number) for key in KEYS))
        out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
        writer = out.writeStream.format("parquet").option("checkpointLocation", place)
        writer = writer.option("path", str(tmp_path / "query" / "output"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert output(spark, tmp_path) == expected(2)
    create_savepoint(spark, place, str(tmp_path / "savepoint"))
    rescale(spark, place, 5)
    assert len(subtask_metrics(spark, place)) == 3


def test_subtasks_without_rows_are_taken_over_later(spark, job_conf, files, tmp_path):
    """A subtask without rows since a rescale gets its state when rows come."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    restart(files.stream(), tmp_path)
    job_conf(parallelism=4)
    files.add((KEYS[0], 2))
    restart(files.stream(), tmp_path)
    job_conf(parallelism=3)
    files.add((KEYS[0], 3))
    restart(files.stream(), tmp_path)
    files.add(*((key, 4) for key in KEYS[1:]))
    restart(files.stream(), tmp_path)
    rows = output(spark, tmp_path)
    assert (KEYS[0], 3, 6) in rows
    assert all((key, 2, 5) in rows for key in KEYS[1:])


class Kept(mp.KeyedProcessFunction):
    """Function with a running sum of a type, which may have a TTL."""

    def __init__(self, kind, days):
        self.kind, self.days = kind, days

    def open(self, context):
        descriptor = mp.ValueStateDescriptor("sum", self.kind)
        if self.days:
            descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(days=self.days)))
        self.sum = context.get_state(descriptor)

    def process_element(self, row, context):
        self.sum.update((self.sum.value() or 0) + row.n)
        yield context.current_key, float(self.sum.value())


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_declaration_that_an_idle_subtask_has_not_seen(spark, job_conf, files, tmp_path, backend):
    """With idle subtasks, another TTL allows a rescale or savepoint; another type is refused with a cure."""

    def sums(function, parallelism, *rows):
        job_conf(state_backend=backend, parallelism=parallelism)
        files.add(*rows)
        out = key_by(files.stream(), "k").process(
            function, output="k string, sum double", uid="kept"
        )
        run(out, tmp_path)

    sums(Kept(int, 0), 2, *((key, 1) for key in KEYS))
    sums(Kept(int, 1), 2, (KEYS[0], 1))
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    sums(Kept(int, 2), 3, *((key, 1) for key in KEYS))
    sums(Kept(float, 2), 3, (KEYS[0], 1))
    with pytest.raises(StreamingQueryException, match="of float in one .* by a row for each"):
        sums(Kept(float, 2), 2, *((key, 1) for key in KEYS))
    sums(Kept(float, 2), 3)
    sums(Kept(float, 2), 2, *((key, 1) for key in KEYS))
    rows = output(spark, tmp_path)
    assert [row for row in rows if row[0] == KEYS[0]] == [(KEYS[0], n) for n in range(1, 7)]
    assert [row for row in rows if row[0] == KEYS[1]] == [(KEYS[1], n) for n in range(1, 5)]


@pytest.mark.long
def test_a_checkpoint_of_before_a_rescale_is_refused(spark, job_conf, files, tmp_path):
    """A copy of the checkpointLocation from before a rescale is refused; a new query can start from its last batch."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    restart(files.stream(), tmp_path)
    checkpoint, copy = tmp_path / "query" / "checkpoint", tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    for parallelism in (2, 3):
        job_conf(parallelism=parallelism)
        files.add(("a", 1))
        restart(files.stream(), tmp_path)
    shutil.rmtree(checkpoint)
    shutil.copytree(copy, checkpoint)
    with pytest.raises(StreamingQueryException, match="ends with batch 0, but .* after batch 1"):
        restart(files.stream(), tmp_path)
    with pytest.raises(errors.RestoreError, match="restore = CHECKPOINT_LOCATION@0"):
        rescale(spark, str(copy), 4)
    job_conf(checkpoint_restore=f"{copy}@0")
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
    run(out, tmp_path, name="anew")
    assert output(spark, tmp_path, name="anew") == [("a", n, n) for n in (2, 3, 4)]


def test_max_parallelism_cannot_change(spark, job_conf, files, tmp_path):
    """Another number of key groups is refused, and the old one continues."""
    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    restart(files.stream(), tmp_path)
    files.add(("a", 2))
    spark.conf.set("spark.millpond.max-parallelism", "64")
    with pytest.raises(StreamingQueryException, match="max-parallelism 128, 64 was requested"):
        restart(files.stream(), tmp_path)
    spark.conf.set("spark.millpond.max-parallelism", "128")
    restart(files.stream(), tmp_path)
    assert output(spark, tmp_path) == [("a", 1, 1), ("a", 2, 3)]


def test_the_number_of_key_groups_where_nobody_sets_it(spark, job_conf, files, tmp_path):
    """The default number of key groups grows with a parallelism above 128, and is used at later starts."""
    job_conf(state_backend="heap", parallelism=200)
    files.add(("a", 1), ("b", 1))
    restart(files.stream(), tmp_path)
    job_conf(parallelism=2)
    files.add(("a", 1), ("b", 1))
    restart(files.stream(), tmp_path)
    assert output(spark, tmp_path) == [(key, n, n) for key in "ab" for n in (1, 2)]
    pointers = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert max(each.last_group for each in pointers) == 511
    files.add(("a", 1))
    spark.conf.set("spark.millpond.max-parallelism", "128")
    with pytest.raises(StreamingQueryException, match="max-parallelism 512, 128 was requested"):
        restart(files.stream(), tmp_path)


def test_a_damaged_layout_is_named(spark, job_conf, files, tmp_path):
    """A changed layout file stops the query with its name."""
    from millpond.operator_id import OperatorId
    from millpond_spark.plan.layout import current_layout

    job_conf(state_backend="heap", parallelism=2)
    files.add(("a", 1))
    query = restart(files.stream(), tmp_path)
    (layout,) = (tmp_path / "snapshots").glob("*/running/layout/*.json")
    sealed = json.loads(layout.read_text())
    sealed["content"] = sealed["content"].replace('"parallelism": 2', '"parallelism": 4')
    layout.write_text(json.dumps(sealed))
    storage = mp.checkpoint_storage((tmp_path / "snapshots").as_uri())
    with pytest.raises(errors.CorruptSnapshotError, match=r"00000000\.json"):
        current_layout(storage, OperatorId(query.id, "running"))


def test_a_directory_that_the_query_did_not_begin_with_is_named(spark, tmp_path):
    """A rescale with a directory that contains nothing of the query names it, and asks for the right one."""
    checkpoint, snapshots = tmp_path / "checkpoint", tmp_path / "snapshots"
    checkpoint.mkdir()
    snapshots.mkdir()
    (checkpoint / "metadata").write_text('{"id": "5f0f9a3e"}')
    with pytest.raises(errors.ConfigError) as caught:
        rescale(spark, str(checkpoint), 3, snapshots=snapshots.as_uri())
    assert str(caught.value) == (
        f"rescale(...): snapshots: the query 5f0f9a3e has left nothing in {snapshots.as_uri()}: "
        "name the directory that it began with, as spark.millpond.checkpoint.dir had it."
    )


def test_a_batch_that_the_sink_skips(spark, job_conf, files, tmp_path):
    """If the driver died after the file sink's commit and before Spark's, a rescale waits for a start without one."""
    for round_number in (1, 2):
        files.add(*((key, round_number) for key in KEYS))
        restart(files.stream(), tmp_path)
    (tmp_path / "query" / "checkpoint" / "commits" / "1").unlink()
    files.add(*((key, 3) for key in KEYS))
    job_conf(parallelism=3)
    with pytest.raises(StreamingQueryException, match="the sink has the files of batch 1, but"):
        restart(files.stream(), tmp_path)
    job_conf(parallelism=2)
    restart(files.stream(), tmp_path)
    job_conf(parallelism=3)
    files.add(*((key, 4) for key in KEYS))
    restart(files.stream(), tmp_path)
    assert output(spark, tmp_path) == expected(4)
