"""The Python that Spark starts as workers, which need not be the one that runs the job."""

import sys

import pytest
from millpond import errors
from millpond.spark import key_by

from tests.spark.streaming import RUNNING, Running

# Without a path of its own and without installed packages.
BARE = f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n'


def build(spark):
    rows = spark.createDataFrame([("a", 1)], "k string, n bigint")
    return key_by(rows, "k").process(Running(), output=RUNNING, uid="p")


@pytest.fixture
def script(tmp_path):
    """Makes an executable of the given text."""

    def make(text):
        path = tmp_path / "python3"
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return make


def test_workers_without_millpond(spark, script, monkeypatch):
    """A Python without Millpond is refused where the operator is made, with what to set."""
    bare = script(BARE)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    with pytest.raises(errors.ConfigError, match=f"PYSPARK_PYTHON.*run {bare}, .*{sys.executable}"):
        build(spark)


def test_workers_with_millpond(spark, script, monkeypatch):
    """Another Python is used if it has Millpond, and one that is not there is Spark's to report."""
    for executable in (script(BARE.replace(" -I -S", "")), "/nowhere/python3"):
        monkeypatch.setattr(spark.sparkContext, "pythonExec", executable)
        build(spark)
