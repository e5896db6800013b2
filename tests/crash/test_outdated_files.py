"""In generated queries, outdated files are deleted, and no file that a retained checkpoint needs."""

from random import Random

import pytest

from tests.crash.crash_faults import FaultyStorage
from tests.crash.crash_layouts import Course, Query
from tests.crash.crash_model import LAYOUTS, Case

pytestmark = pytest.mark.slow


def run(tmp_path, seeds, backend="heap", strategy="changelog"):
    """Run a query of each seed to its end."""
    case = Case(LAYOUTS[0], "none", backend, strategy)
    for seed in seeds:
        root = tmp_path / str(seed)
        root.mkdir()
        Query(case, root, FaultyStorage(root / "checkpoints", case), Course(seed)).run()


@pytest.mark.long
def test_every_retained_checkpoint_keeps_its_files(tmp_path, sample_seed):
    """After rescales, idle subtasks and lost attempts, exactly the needed files remain."""
    run(tmp_path, Random(sample_seed).sample(range(1000), 10))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("backend", "strategy"),
    [("heap", "full"), ("lmdb", "changelog"), ("rocksdb", "incremental"), ("heap", "carried")],
)
def test_many_queries(tmp_path, backend, strategy):
    """Many generated queries, on each backend and strategy, keep exactly the needed files."""
    run(tmp_path, range(1000, 1300), backend, strategy)
