"""Kill anything at any time: the crash matrix, and the table in the docs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import crash_matrix

PAGE = Path(__file__).parents[2] / "docs" / "quality" / "crash-matrix.md"


def run(*words):
    """Run the crash matrix; a case that does not recover fails the test."""
    command = [sys.executable, "-m", "tests.crash.crash_matrix", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_table_in_the_docs_has_every_case():
    """The page lists all points, faults, backends and strategies, each of them exact."""
    assert crash_matrix.markdown(dict.fromkeys(crash_matrix.cases(), "exact")) == PAGE.read_text()


@pytest.mark.slow
def test_a_sample_of_cases_recovers_exactly(sample_seed):
    """Cases of any point, fault, backend and strategy, chosen by the commit, recover exactly."""
    run("--sample", "40", "--seed", sample_seed)


@pytest.mark.soak
def test_every_case_recovers_exactly(tmp_path):
    """All points, faults, backends and strategies recover; the docs show this table."""
    table = tmp_path / "crash-matrix.md"
    run("--markdown", str(table))
    assert table.read_text() == PAGE.read_text()
