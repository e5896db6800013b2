"""The matrix of versions runs tests that exist."""

import os
import subprocess
import sys
from pathlib import Path

from tools import matrix

ROOT = Path(__file__).resolve().parents[2]


def test_each_test_of_the_short_run_exists():
    """Pytest collects every test that `make matrix` names for a short run."""
    named = [each for each in matrix.SHORT if "/" in each]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named],
        cwd=ROOT,
        env={**os.environ, "TEST_SAMPLE": "all"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
