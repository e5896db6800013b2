"""Mutated files and odd calls give equal results or are refused: a few of each target, or for an hour."""

import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tests.fuzz.__main__ import TARGETS, bounded, run_all
from tests.fuzz.mutate import HOSTILE, mutate_tree


def fuzz(*arguments):
    """Run mutants in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.sample(8)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_mutants_are_equal_or_refused(target):
    """A few mutants give no wrong value, raw exception, hang, crash or excessive memory."""
    given = Namespace(target=[target], first=0, count=30, seconds=None, jobs=1)
    _, bad = run_all(given)[target]
    assert bounded(target) or not bad


def test_lmdb_alone_has_a_bound():
    """Faults count for every target, except LMDB's copies with a forged marker."""
    assert [name for name in TARGETS if bounded(name)] == ["lmdb-forged-copies"]


def test_the_page_names_every_target():
    """The counts in the docs cover all targets."""
    page = Path(__file__).parents[2].joinpath("docs", "quality", "fuzz.md").read_text()
    assert [name for name in TARGETS if f"| {name} |" not in page] == []


def test_a_mutant_depends_on_its_seed_alone():
    """A mutant depends only on its seed, not on changes that an earlier mutant made to shared values."""
    before = repr(HOSTILE)
    for seed in range(300):
        mutate_tree(random.Random(seed), {"a": [1, {"b": []}], "c": {}})
    assert repr(HOSTILE) == before


@pytest.mark.soak
def test_an_hour_of_mutants():
    """Mutants for an hour, or the seconds in FUZZ_SECONDS, are equal or refused."""
    done = fuzz("--seconds", os.environ.get("FUZZ_SECONDS", "3600"), "--count", 10**9, "--jobs", 2)
    assert done.returncode == 0, done.stdout + done.stderr
