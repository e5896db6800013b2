"""Kill anything at any time: the whole crash matrix, and the table in the docs."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def test_every_case_recovers_exactly(tmp_path):
    """All points, faults, backends and strategies recover; the docs show this table."""
    table = tmp_path / "crash-matrix.md"
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.crash_matrix", "--markdown", str(table)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        table.read_text() == (HERE.parents[1] / "docs" / "quality" / "crash-matrix.md").read_text()
    )
