"""After a kill at any time the state recovers exactly: the crash matrix and its table in the docs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import crash_matrix

PAGE = Path(__file__).parents[2] / "docs" / "quality" / "crash-matrix.md"


def run(*words):
    """Run the crash matrix, and fail if a case does not recover."""
    command = [sys.executable, "-m", "tests.crash.crash_matrix", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_in_the_docs_has_every_case():
    """The page contains all points, faults, backends and strategies, each with the result "exact"."""
    assert crash_matrix.markdown(dict.fromkeys(crash_matrix.cases(), "exact")) == PAGE.read_text()


@pytest.mark.long
@pytest.mark.slow
def test_a_sample_of_cases_recovers_exactly(sample_seed):
    """A sample of cases, chosen by the commit, recovers exactly."""
    run("--sample", "40", "--seed", sample_seed)


@pytest.mark.soak
def test_every_case_recovers_exactly(tmp_path):
    """All points, faults, backends and strategies recover exactly."""
    table = tmp_path / "crash-matrix.md"
    run("--markdown", str(table))
    assert table.read_text() == PAGE.read_text()
