"""The page about taking over a query from Spark's own state runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import __version__

pytestmark = pytest.mark.spark


@pytest.mark.skipif(__version__ < "4.1", reason="transformWithState of rows is new in Spark 4.1")
def test_take_over(tmp_path):
    """After a take-over, each query has the rows of the query that never stopped."""
    command = [sys.executable, "-m", "tests.documentation.take_over_script"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
