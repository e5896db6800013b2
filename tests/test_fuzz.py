"""Mutated files are equal or refused: a few mutants of each target, or very many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = (
    "handles",
    "metadata",
    "rows",
    "rocksdb-handles",
    "savepoints",
    "layouts",
    "operator-state",
)


def fuzz(target, count):
    """Run mutants in a process of their own."""
    command = [sys.executable, "-m", "fuzz", "--target", target, "--count", str(count)]
    return subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("target", TARGETS)
def test_mutants_are_equal_or_refused(target):
    """No wrong value, raw exception, hang, death or memory beyond bounds in a few mutants."""
    done = fuzz(target, 40)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_very_many_mutants_are_equal_or_refused(target):
    """The same for as many mutants as the environment says."""
    done = fuzz(target, int(os.environ.get("FUZZ_COUNT", "15000")))
    assert done.returncode == 0, done.stdout + done.stderr
