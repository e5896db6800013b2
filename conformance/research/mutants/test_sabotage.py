"""The kit catches each mutant by the clauses that are named for it."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from conformance.research.mutants import sabotage

HERE = Path(__file__).parent
MATRIX = HERE.parents[2] / "docs" / "quality" / "kill-matrix.md"


def check_kills(names):
    """Run the kit against the named mutants; each must fail its clauses."""
    done = subprocess.run(
        [sys.executable, "-m", sabotage.NAME, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    kills = {row["name"]: row["killed_by"] for row in map(json.loads, done.stdout.splitlines())}
    assert set(kills) == set(names)
    for name, caught in kills.items():
        assert caught == sorted(caught, key=sabotage.GALLERY[name].clauses.index), name
        assert set(caught) == set(sabotage.GALLERY[name].clauses), name


@pytest.mark.long
@pytest.mark.slow
def test_a_sample_of_the_mutants_is_caught(sample_seed):
    """Each of 25 mutants, chosen by the commit, fails its clauses."""
    check_kills(Random(sample_seed).sample([*sabotage.GALLERY], 25))


@pytest.mark.soak
def test_every_mutant_is_caught():
    """There are at least 40 mutants, and each fails its clauses."""
    assert len(sabotage.GALLERY) >= 40
    check_kills([*sabotage.GALLERY])


def test_the_matrix_in_the_docs_is_of_this_gallery():
    """The page contains every mutant with a clause that caught it; each clause has caught at least one."""
    lines = MATRIX.read_text().splitlines()
    for each in sabotage.GALLERY.values():
        (row,) = (line for line in lines if line.startswith(f"| {each.wrong} |"))
        assert set(each.clauses) <= set(row.strip("| ").rpartition("|")[2].strip().split(", "))
    assert lines[-1] == "Clauses that have caught none yet: none."
