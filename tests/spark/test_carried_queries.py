"""Queries with snapshots in Spark's pointers: restarts, rescales, savepoints, tools."""

import json
import subprocess
import sys
from pathlib import Path

import millpond as mp
import pytest
from millpond.spark import create_savepoint, key_by
from pyspark.errors import StreamingQueryException

from tests.spark.streaming import RUNNING, Running, output, run

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(20)]
TEXT = mp.ValueStateDescriptor("text", str)


@pytest.fixture
def carried(spark, job_conf):
    """Set the configuration, with a setting under which small snapshots are embedded in handles."""

    def configure(setting, value, **given):
        job_conf(**given)
        spark.conf.set(f"spark.millpond.checkpoint.{setting}", value)

    yield configure
    for setting in ("inline-threshold", "storage"):
        spark.conf.unset(f"spark.millpond.checkpoint.{setting}")


def go_on(files, tmp_path, name="query"):
    """Run the operator over new input."""
    out = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="running")
    return run(out, tmp_path, name=name)


def written(tmp_path):
    """Return the files of snapshots, without layouts."""
    files = (tmp_path / "snapshots").rglob("*")
    return [path for path in files if path.is_file() and path.parent.name != "layout"]


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("backend", "setting", "value"),
    [("heap", "inline-threshold", "20kb"), ("rocksdb", "storage", "pointer")],
)
def test_pointers_are_all_there_is(spark, carried, files, tmp_path, backend, setting, value):
    """Batches, a restart, a rescale, a savepoint and a start from a retained batch work without files."""
    carried(setting, value, state_backend=backend, parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    files.add(*((key, 2) for key in KEYS))
    go_on(files, tmp_path)
    files.add(*((key, 3) for key in KEYS))
    go_on(files, tmp_path)
    carried(setting, value, parallelism=3)
    files.add((KEYS[0], 4))
    go_on(files, tmp_path)
    assert written(tmp_path) == []
    expected = [(key, n, total) for key in KEYS for n, total in ((1, 1), (2, 3), (3, 6))]
    assert output(spark, tmp_path) == sorted([*expected, (KEYS[0], 4, 10)])
    checkpoint = str(tmp_path / "query" / "checkpoint")
    saved = create_savepoint(spark, checkpoint, tmp_path / "saved", batch_id=1)
    with mp.open_keyed_backend("heap", key_type=str, place="running", restore=[saved]) as opened:
        sums = opened.get_partitioned_state(mp.ValueStateDescriptor("sum", int))
        assert {(opened.set_current_key(key), sums.value())[1] for key in KEYS} == {3}
    for path in files.folder.iterdir():
        path.unlink()
    carried(setting, value, parallelism=1, checkpoint_restore=f"{checkpoint}@3")
    files.add((KEYS[0], 5))
    go_on(files, tmp_path, name="second")
    files.add((KEYS[1], 5))
    go_on(files, tmp_path, name="second")
    assert output(spark, tmp_path, name="second") == [(KEYS[0], 5, 15), (KEYS[1], 4, 11)]
    assert written(tmp_path) == []


@pytest.mark.long
def test_tools_read_the_pointers(spark, carried, files, tmp_path):
    """Tools read pointers if they get the checkpointLocation too; with the directory alone they say so."""
    carried("inline-threshold", "20kb", state_backend="heap", parallelism=2)
    files.add(*((key, 1) for key in KEYS))
    files.add(*((key, 2) for key in KEYS))
    go_on(files, tmp_path)
    checkpoint, snapshots = tmp_path / "query" / "checkpoint", tmp_path / "snapshots"

    def called(*words):
        command = [Path(sys.executable).with_name("millpond"), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    found = called("state", "get", checkpoint, "sum", KEYS[3], "--snapshots", snapshots, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)[0]["value"] == 3
    shown = called("report", checkpoint, "--snapshots", snapshots, "--json")
    assert shown.returncode == 0, shown.stderr
    (operator,) = json.loads(shown.stdout)["operators"]
    assert [each["batch"] for each in operator["batches"]] == [0, 1]
    assert [each["rows_in"] for each in operator["batches"]] == [len(KEYS)] * 2
    assert {each["name"]: each["keys"] for each in operator["figures"]["states"]}["sum"] == len(
        KEYS
    )
    alone = called("state", "list", snapshots)
    assert alone.returncode == 1
    assert "--snapshots" in alone.stderr
    elsewhere = called("state", "list", checkpoint, "--snapshots", tmp_path)
    assert elsewhere.returncode == 1
    assert f"spark.millpond.checkpoint.dir names for {checkpoint}." in elsewhere.stderr


class Keeps(mp.KeyedProcessFunction):
    """Function that keeps a text of the size in the row."""

    def open(self, context):
        self.text = context.get_state(TEXT)

    def process_element(self, row, context):
        self.text.update("".join(f"{row.n * at % 2**31:08x}" for at in range(row.n // 8)))
        yield (row.k,)


@pytest.mark.long
def test_what_pointers_cannot_hold_stops_the_query(carried, files, tmp_path):
    """If the state exceeds the pointer's limit, the error names operator, state and cure; with files the batch continues."""
    carried("storage", "pointer", state_backend="heap", parallelism=1)
    files.add(("a", 4_000_000), ("b", 8))
    kept = key_by(files.stream(), "k").process(Keeps(), output="k string", uid="keeps")
    run(kept, tmp_path)
    files.add(*((f"k{number}", 4_000_000 + number) for number in range(4)))
    with pytest.raises(StreamingQueryException, match=r"'text'.*checkpoint\.storage to files"):
        run(key_by(files.stream(), "k").process(Keeps(), output="k string", uid="keeps"), tmp_path)
    carried("storage", "files")
    run(key_by(files.stream(), "k").process(Keeps(), output="k string", uid="keeps"), tmp_path)
    assert written(tmp_path)
