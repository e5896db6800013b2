"""A query moves between two environments: another Spark, and other versions of the dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import second_driver
from tests.spark.streaming import output

pytestmark = pytest.mark.spark
DEVELOPED = Path(__file__).parents[2] / ".venv" / "bin" / "python"


def drain(python, folder, files):
    """Run the query to the end of its input in an environment, without this environment's settings."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))
    }  # fmt: skip
    paths = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    done = subprocess.run(
        [str(python), second_driver.__file__, str(folder), str(files.folder)],
        env={**environment, **paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.skipif(
    DEVELOPED.parent.parent.samefile(sys.prefix) if DEVELOPED.exists() else True,
    reason="there is one environment: `make matrix` runs this test in others",
)
def test_upgraded_and_rolled_back(spark, files, tmp_path):
    """A query continues in the environment of development, and again in this one, without losing a row."""
    for round_number, python in enumerate((sys.executable, DEVELOPED, sys.executable), start=1):
        files.add(*((key, round_number) for key in "abc"))
        drain(python, tmp_path, files)
    expected = [(key, n, n * (n + 1) // 2) for key in "abc" for n in (1, 2, 3)]
    assert output(spark, tmp_path) == expected
