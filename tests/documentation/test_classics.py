"""The classic jobs have the expected results locally and on Spark, and the docs show their source."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    "sessions", "hot_items", "fraud", "dedup", "buffering", "enrichment", "interval_join",
)  # fmt: skip


@pytest.fixture(scope="module")
def runner():
    """The module that runs the jobs, with their folder on the path."""
    folder = str(ROOT / "examples" / "classics")
    sys.path.insert(0, folder)
    try:
        yield import_module("run")
    finally:
        sys.path.remove(folder)


@pytest.mark.parametrize("name", NAMES)
def test_locally(runner, name):
    """Each job's local result is the expected one."""
    job, rows = import_module(name), import_module("data").made_up(600)
    runner.check(job, rows, job.local(rows), "locally")


@pytest.mark.long
@pytest.mark.sample(3)
@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_on_spark(runner, spark, job_conf, tmp_path, name):
    """On Spark each job has the expected result, on one of the three backends in turn."""
    backend = ("heap", "rocksdb", "lmdb")[NAMES.index(name) % 3]
    job_conf(state_backend=backend, parallelism=2)
    job, rows = import_module(name), import_module("data").made_up(600)
    runner.check(job, rows, runner.run_on_spark(spark, job, rows, tmp_path / "job"), "on Spark")


@pytest.mark.parametrize("name", NAMES)
def test_the_docs_show_the_jobs(runner, name, tmp_path):
    """Each page contains the job's current source, and its picture can be drawn."""
    target = name.replace("_", "-")
    assert (ROOT / "docs" / "examples" / f"{target}.md").read_text() == runner.page(name)
    assert (ROOT / "docs" / "images" / f"classic-{target}.png").is_file()
    job, rows = import_module(name), import_module("data").made_up(300)
    runner.draw(job, job.local(rows), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000
