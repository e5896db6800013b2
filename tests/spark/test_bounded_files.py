"""The number of files is bounded by the retained checkpoints, in every course of a query."""

import json
import random
import shutil
from functools import reduce

import pytest
from click.testing import CliRunner
from millpond.spark import key_by, several_operators
from millpond_cli.main import commands
from pyspark.sql import DataFrame

from tests.spark.streaming import RUNNING, Files, Running

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(12)]


class Job:
    """A query whose batches are computed several times, once per action of `foreachBatch`."""

    def __init__(self, spark, tmp_path, job_conf):
        self.files, self.folder, self.set = Files(spark, tmp_path / "input"), tmp_path, job_conf
        self.seen, self.peak = [], 0
        job_conf(state_backend="heap", checkpoint_retained=2)

    def run(self, batches, actions=3, keys=KEYS, **settings):
        """Run the query over new batches, each with a row of each key."""
        self.set(**settings)
        for _ in range(batches):
            self.files.add(*((key, 1) for key in keys))

        def write(rows, _):
            for _ in range(actions):
                found = rows.collect()
            self.seen += [tuple(row) for row in found]
            self.peak = max(self.peak, self.number)

        out = key_by(self.files.stream(), "k").process(Running(), output=RUNNING, uid="running")
        writer = out.writeStream.foreachBatch(write).trigger(availableNow=True)
        place = str(self.folder / "checkpoint")
        writer.option("checkpointLocation", place).start().awaitTermination()

    @property
    def snapshots(self):
        """Return the files of snapshots, by subtask."""
        found = {}
        for path in sorted((self.folder / "snapshots").rglob("kg-*/*")):
            found.setdefault(path.parent.name, []).append(path.name)
        return found

    @property
    def number(self):
        """Return the number of files."""
        return sum(path.is_file() for path in (self.folder / "snapshots").rglob("*"))

    def require(self, batches, keys=KEYS):
        """Fail unless each key was counted once in each batch."""
        expected = sorted((key, n, n) for key in keys for n in range(1, batches + 1))
        assert sorted(self.seen) == expected


@pytest.fixture
def job(spark, tmp_path, job_conf):
    """A job whose state is in files of a temporary directory."""
    return Job(spark, tmp_path, job_conf)


def gc(*arguments):
    """Return the rows of `millpond checkpoint gc`, by verdict."""
    call = ["checkpoint", "gc", *map(str, arguments), "--json"]
    result = CliRunner().invoke(commands, call)
    assert result.exit_code == 0, result.output
    found = {}
    for row in json.loads(result.stdout):
        found.setdefault(row["verdict"], []).append(row["file"])
    return found


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_repeated_actions(job, spark, backend):
    """With three actions per batch there are no more files after 14 batches than after 7."""
    spark.conf.set("spark.millpond.state.snapshot.max-deltas", "3")
    job.run(7, state_backend=backend, parallelism=2)
    first = job.peak
    job.run(7)
    job.require(14)
    assert job.peak <= first + 4


@pytest.mark.long
def test_a_rescale(job):
    """The files from before a rescale are deleted once all subtasks have written a checkpoint."""
    job.run(6, actions=1, parallelism=2)
    before = set(job.snapshots)
    job.run(8, actions=1, parallelism=3)
    job.require(14)
    assert len(before) == 2
    assert not before & job.snapshots.keys()
    assert len(list((job.folder / "snapshots").rglob("layout/*.json"))) == 1


@pytest.mark.long
def test_an_idle_subtask_keeps_what_it_would_restore(job, spark):
    """An idle subtask keeps the files that it would restore after the last rescale, also in `gc`."""
    job.run(6, actions=1, parallelism=2)
    one = [KEYS[0]]
    job.run(10, actions=1, keys=one, parallelism=3)
    kept = {name: len(job.snapshots[name]) for name in ("kg-0-63", "kg-64-127")}
    assert set(gc(job.folder / "snapshots")) <= {"not needed"}
    assert kept == {name: len(job.snapshots[name]) for name in kept}
    job.run(8, actions=1)
    assert not kept.keys() & job.snapshots.keys()
    assert sorted(job.seen) == sorted(
        (key, n, n) for key in KEYS for n in range(1, 25 if key in one else 15)
    )


@pytest.mark.long
def test_operators_that_are_dropped(job, spark):
    """The files of removed operators are deleted, except those of their last layout."""
    job.run(5, actions=1, parallelism=2)
    (folder,) = (job.folder / "snapshots").glob("*/running")
    spark.conf.set("spark.millpond.checkpoint.ignore-unclaimed-state", "true")
    for _ in range(9):
        job.files.add(*((key, 1) for key in KEYS))
    out = key_by(job.files.stream(), "k").process(Running(), output=RUNNING, uid="other")
    writer = out.writeStream.foreachBatch(lambda rows, _: rows.count()).trigger(availableNow=True)
    place = str(job.folder / "checkpoint")
    writer.option("checkpointLocation", place).start().awaitTermination()
    assert [path.name for path in folder.rglob("*.*") if path.is_file()] == ["00000001.json"]


def soak(job, batches, seed):
    """Run a query with rescales and repeated actions; return the largest number of files after each run."""
    drawn, done, peaks = random.Random(seed), 0, []
    while done < batches:
        parallelism = drawn.randint(1, 3)
        job.peak, number = 0, min(drawn.randint(6, 12), batches - done)
        job.run(number, actions=drawn.randint(1, 3), parallelism=parallelism)
        done += number
        peaks.append(job.peak)
    job.require(batches)
    return peaks


def bound(deltas, retained, subtasks=3, attempts=3):
    """Return the maximum number of files: two layouts, and the attempts of twice the retained checkpoints."""
    chain = deltas + 1 + retained
    return 2 * subtasks * (chain + attempts * 2 * retained + 2) + 8


@pytest.mark.long
def test_rescales_and_repeated_actions(job, spark, sample_seed):
    """The number of files is bounded over 16 batches; the commit chooses rescales and actions."""
    spark.conf.set("spark.millpond.state.snapshot.max-deltas", "3")
    assert max(soak(job, 16, seed=sample_seed)) <= bound(deltas=3, retained=2)


@pytest.mark.soak
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_rescales_and_repeated_actions_for_long(job, spark, backend):
    """The number of files is bounded over 300 batches, and does not grow."""
    spark.conf.set("spark.millpond.state.snapshot.max-deltas", "3")
    job.set(state_backend=backend)
    peaks = soak(job, 300, seed=2)
    assert max(peaks) <= bound(deltas=3, retained=2)
    half = len(peaks) // 2
    assert max(peaks[half:]) <= 1.5 * max(peaks[:half])


@pytest.mark.long
def test_gc_goes_by_the_querys_own_retention(job):
    """`gc` uses the query's `checkpoint.retained`, and can be limited to one query."""
    job.run(5, actions=3, parallelism=2)
    snapshots, checkpoint = job.folder / "snapshots", job.folder / "checkpoint"
    (query,) = (path.name for path in snapshots.iterdir())
    would = gc(snapshots, "--dry-run")
    assert would == gc(snapshots, "--retained", 2, "--dry-run")
    assert would["not needed"]
    assert gc(snapshots, "--retained", 100, "--dry-run") == {}
    assert gc(snapshots, "--query", checkpoint) == would
    assert gc(snapshots) == {}
    job.run(5, actions=1)
    job.require(10)
    assert all(path.startswith(f"{query}/") for path in would["not needed"])


def test_gc_lists_queries_that_are_gone(job):
    """`gc` names the folder of a query whose checkpointLocation no longer exists, and deletes nothing."""
    job.run(2, actions=1, parallelism=2)
    snapshots, checkpoint = job.folder / "snapshots", job.folder / "checkpoint"
    (query,) = (path.name for path in snapshots.iterdir())
    assert gc(snapshots) == {}
    moved = checkpoint.rename(job.folder / "moved to")
    verdict = f"its query's checkpointLocation {checkpoint.as_uri()} no longer exists"
    before = job.number
    assert gc(snapshots) == {verdict: [f"{query}/"]}
    assert job.number == before
    shutil.copytree(moved, checkpoint)
    assert gc(snapshots) == {}
    (checkpoint / "metadata").write_text('{"id": "another"}')
    assert gc(snapshots) == {verdict: [f"{query}/"]}
    result = CliRunner().invoke(
        commands, ["checkpoint", "gc", str(snapshots), "--query", str(checkpoint)]
    )
    assert result.exit_code == 1
    assert "it holds no file of the query another" in result.output


def test_an_empty_subtask_is_not_a_lost_one(job, caplog):
    """Tools read a query with all keys in one subtask, and refuse it if that subtask's folder is lost."""
    job.run(2, actions=1, keys=KEYS[:1], parallelism=2)
    snapshots = job.folder / "snapshots"
    (folder,) = snapshots.glob("*/running/kg-*")
    call = ["state", "list", str(snapshots)]
    result = CliRunner().invoke(commands, call)
    assert (result.exit_code, result.stderr) == (0, "")
    assert not caplog.messages
    job.run(2, actions=1)
    shutil.rmtree(folder)
    lost = folder.name.removeprefix("kg-").replace("-", "..")
    result = CliRunner().invoke(commands, call)
    assert result.exit_code == 1
    assert f"no snapshot holds the key groups {lost}, though" in result.stderr
    result = CliRunner().invoke(commands, ["checkpoint", "verify", str(snapshots), "--json"])
    assert (result.exit_code, "it is missing" in result.stdout) == (1, True)


def test_a_lost_operator_is_missing(job, spark):
    """If all folders of one of two operators are deleted, ``verify`` names them, unless it was dropped."""

    def run(*uids, **settings):
        job.set(**settings)
        job.files.add(*((key, 1) for key in KEYS))
        rows = [key_by(job.files.stream(), "k") for _ in uids]
        each = [
            r.process(Running(), output=RUNNING, uid=uid) for r, uid in zip(rows, uids, strict=True)
        ]
        writer = reduce(DataFrame.union, each).writeStream.format("noop").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(job.folder / "checkpoint"))
        with several_operators():
            writer.start().awaitTermination()

    def verify(*arguments):
        call = ["checkpoint", "verify", str(job.folder / "snapshots"), "--json", *arguments]
        result = CliRunner().invoke(commands, call)
        found = json.loads(result.stdout) if result.stdout else []
        missing = sorted(row["file"] for row in found if row["verdict"] == "it is missing")
        return result.exit_code, missing

    run("first", "second", parallelism=2)
    assert verify() == (0, [])
    (first,) = (job.folder / "snapshots").glob("*/first")
    lost = sorted(str(path.relative_to(job.folder / "snapshots")) for path in first.glob("kg-*"))
    for path in first.glob("kg-*"):
        shutil.rmtree(path)
    assert len(lost) == 2
    assert verify() == (1, lost)
    assert verify("--operator", "second") == (0, [])
    assert verify("--operator", "first")[0] == 1
    spark.conf.set("spark.millpond.checkpoint.ignore-unclaimed-state", "true")
    run("third", "second")
    assert verify() == (0, [])
