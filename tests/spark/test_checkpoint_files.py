"""The way in which Spark writes a checkpoint's small files: a fast one on local disks, else the default."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from millpond.spark import configure, key_by
from millpond_spark.api.configure import FILES
from millpond_spark.session import internals
from millpond_spark.session.internals import FILE_MANAGER
from pyspark.sql import SparkSession

from tests.spark.streaming import RUNNING, Files, Running, output

LOCAL = {"spark.master": "local[2]"}


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        (LOCAL, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, True),
        ({**LOCAL, FILES: "org.apache.hadoop.fs.RawLocalFileSystem"}, False),
        ({**LOCAL, FILES: "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem"}, False),
        ({"spark.master": "spark://127.0.0.1:7077"}, False),
        ({}, False),
    ],
)
def test_chosen_for_what_is_local(monkeypatch, settings, chosen):
    """A builder uses the fast manager if the master is local and no local file system is set."""
    monkeypatch.setattr("millpond_spark.session.internals.has_jvm", lambda: False)
    builder = SparkSession.Builder()
    for key, value in settings.items():
        builder.config(key, value)
    configure(builder, parallelism=1)
    name = builder._options.get(FILE_MANAGER, "")
    assert name.endswith(".FileSystemBasedCheckpointFileManager") == chosen
    expected = "org.apache.hadoop.fs.LocalFileSystem" if chosen else settings.get(FILES)
    assert builder._options.get(FILES) == expected


def test_the_users_choice_stays(monkeypatch):
    """A manager that the user has set is not changed."""
    monkeypatch.setattr("millpond_spark.session.internals.has_jvm", lambda: False)
    builder = SparkSession.Builder().master("local").config(FILE_MANAGER, "com.example.Manager")
    configure(builder, parallelism=1)
    assert builder._options[FILE_MANAGER] == "com.example.Manager"


@pytest.mark.long
@pytest.mark.sample(3, of="Spark processes")
@pytest.mark.spark
def test_a_batch_that_is_run_again_replaces_what_its_first_attempt_committed(tmp_path):
    """With `configure`, a batch that is repeated with another division replaces the first attempt's files.

    With Hive's file system a part was lost.
    """
    job = Path(__file__).with_name("rerun_job.py")
    done = subprocess.run(
        [sys.executable, str(job), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["manager"] == "FileSystemBasedCheckpointFileManager"
    assert len(found["sums"]) == 12
    assert set(found["sums"].values()) == {3}


@pytest.mark.spark
def test_a_query_on_hives_files_is_written_as_ever(managed, tmp_path, monkeypatch):
    """A manager that would not replace a pointer on Hive's file system is not used."""
    session, manager = managed
    session.conf.set(FILE_MANAGER, manager)
    monkeypatch.setattr(internals, "HADOOPS_FILES", ())
    files = Files(session, tmp_path / "input")
    files.add(("a", 1), ("b", 1))
    start(files.stream(), (tmp_path / "checkpoint").as_uri(), tmp_path)
    assert output(session, tmp_path) == [("a", 1, 1), ("b", 1, 1)]
    assert "1" in checksums(tmp_path / "checkpoint" / "state" / "0" / "0")


@pytest.fixture
def managed(spark, job_conf):
    """The shared session with Spark's default manager, and a function that selects another manager."""
    tests_own = spark.conf.get(FILE_MANAGER)
    spark.conf.unset(FILE_MANAGER)
    session = spark.newSession()
    for key in ("spark.sql.shuffle.partitions", "spark.millpond.checkpoint.dir"):
        session.conf.set(key, spark.conf.get(key))
    session.conf.unset(FILE_MANAGER)
    configure(session, parallelism=2)
    assert FILE_MANAGER not in dict(session.conf.getAll)
    yield session, internals.quick_file_manager()
    spark.conf.set(FILE_MANAGER, tests_own)


def start(df, checkpoint, tmp_path):
    """Run a query to the end of its input, and return it."""
    job = key_by(df, "k").process(Running(), output=RUNNING, uid="totals")
    writer = job.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
    query = writer.format("parquet").option("path", str(tmp_path / "query" / "output")).start()
    query.awaitTermination()
    return query


def checksums(folder):
    """Return the batches whose file has a checksum; the tests' own file system writes none."""
    return {path.name.split(".")[1] for path in folder.glob(".*.crc")}


@pytest.mark.spark
def test_a_checkpoint_goes_on_under_either(managed, tmp_path):
    """A query may continue under the default manager, the fast one, and the default again."""
    session, manager = managed
    files = Files(session, tmp_path / "input")
    checkpoint = tmp_path / "checkpoint"
    for number, chosen in enumerate((None, manager, None), 1):
        session.conf.unset(FILE_MANAGER) if chosen is None else session.conf.set(
            FILE_MANAGER, chosen
        )
        files.add(("a", number), ("b", 1))
        start(files.stream(), checkpoint.as_uri(), tmp_path)
    assert output(session, tmp_path) == [
        ("a", 1, 1), ("a", 2, 3), ("a", 3, 6), ("b", 1, 1), ("b", 2, 2), ("b", 3, 3),
    ]  # fmt: skip
    assert checksums(checkpoint / "commits") == {"0", "2"}
    assert checksums(checkpoint / "state" / "0" / "0") >= {"1", "3"}
    assert "2" not in checksums(checkpoint / "state" / "0" / "0")


@pytest.mark.spark
def test_a_checkpoint_elsewhere_is_written_as_ever(managed, tmp_path):
    """On another file system, state files are written by Spark's default in spite of the setting."""
    session, manager = managed
    session.conf.set(FILE_MANAGER, manager)
    session.conf.set("fs.viewfs.mounttable.far.link./files", tmp_path.as_uri())
    files = Files(session, tmp_path / "input")
    files.add(("a", 1), ("b", 1))
    start(files.stream(), "viewfs://far/files/checkpoint", tmp_path)
    assert output(session, tmp_path) == [("a", 1, 1), ("b", 1, 1)]
    assert "1" in checksums(tmp_path / "checkpoint" / "state" / "0" / "0")


@pytest.mark.spark
def test_the_users_manager_stays_elsewhere_too(managed, tmp_path):
    """On another file system, the user's own manager is used."""
    session, manager = managed
    chosen = manager.replace("FileSystemBased", "FileContextBased")
    session.conf.set(FILE_MANAGER, chosen)
    session.conf.set("fs.viewfs.mounttable.farther.link./files", tmp_path.as_uri())
    files = Files(session, tmp_path / "input")
    files.add(("a", 1), ("b", 1))
    query = start(files.stream(), "viewfs://farther/files/checkpoint", tmp_path)
    of_query = query._jsq.streamingQuery().sparkSessionForStream().conf()
    assert of_query.get(FILE_MANAGER) == chosen
