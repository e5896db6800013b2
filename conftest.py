"""Settings of all test processes, the order of files, and samples that depend on the commit."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

# The tests start hundreds of processes, and imports are most of what these cost: twice as much
# without compiled modules. PYTHONPYCACHEPREFIX keeps them out of the sources.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "pycache"))
sys.dont_write_bytecode = False
sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"]

SEED = "TEST_SAMPLE"
"""The environment variable with the seed of the samples: the commit by default, or `all`."""
LONG_TESTS = 15
"""How many of the tests that are marked `long` one run contains."""


def pytest_addoption(parser):
    """Accept the kit's setting in pyproject.toml where the kit is not installed."""
    if find_spec("millpond_conformance") is None:
        parser.addini("millpond_conformance", "settings of the conformance kit", type="args")


def pytest_configure(config):
    """Let workers and child processes import the helpers, and choose the seed of the samples."""
    paths = [str(path) for path in config.getini("pythonpath")]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in given if path and path not in paths]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *others])
    os.environ.setdefault(SEED, _commit(config.rootpath))


def _commit(root):
    """Return the current commit, or "none" outside of a repository."""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "none"
    return done.stdout.strip()[:12] or "none"


def pytest_report_header():
    """Name the seed of the samples."""
    seed = os.environ[SEED]
    return f"samples: {seed}; {SEED}={seed} repeats them, {SEED}=all runs all cases"


@pytest.fixture(scope="session")
def sample_seed():
    """The seed of this run's samples, a string that depends on the commit."""
    return os.environ[SEED]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what uses the Spark session, choose the samples, and start slow files first.

    The files that start last must be short, or one process waits for another at the end.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: has another name in each process")
    _leave_to_soak(items)
    yield
    if hasattr(config, "workerinput"):
        first = {item.path: _rank(item) for item in sorted(items, key=_rank, reverse=True)}
        items.sort(key=lambda item: first[item.path])


def _leave_to_soak(items):
    """Mark the cases of sampled tests and of long tests as soak, except for the chosen ones."""
    if os.environ[SEED] == "all":
        return
    pools = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("sample"):
            pools[marker.kwargs.get("of") or f"{item.path.name} {item.originalname}"].append(item)
    for pool, cases in pools.items():
        _choose(cases, pool, *cases[0].get_closest_marker("sample").args)
    long = [item for item in items if item.get_closest_marker("long")]
    remaining = [item for item in long if not item.get_closest_marker("soak")]
    _choose(remaining, "long", LONG_TESTS)


def _choose(cases, pool, count):
    """Mark all cases as soak except for `count` of them, which the seed chooses."""
    random = Random(f"{os.environ[SEED]} {pool}")
    chosen = random.sample(cases, min(count, len(cases)))
    for item in cases:
        if item not in chosen:
            item.add_marker(pytest.mark.soak)


def _rank(item):
    """Return when a test's file would start for this test alone."""
    return 0 if item.get_closest_marker("slow") else 1 if item.get_closest_marker("spark") else 2


def pytest_collection_finish():
    """Exclude everything loaded by now from garbage collection, which tests run often."""
    gc.collect()
    gc.freeze()
