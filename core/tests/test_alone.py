"""The core needs no other distribution of Millpond, except the backend that its tests open."""

from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.skipif(find_spec("millpond_spark") is not None, reason="all distributions are here")
def test_no_library_of_another_distribution_is_installed():
    """The environment of `make core` has neither Spark nor the command line's libraries."""
    assert not [name for name in ("pyspark", "pandas", "click", "rich") if find_spec(name)]


def test_tests_of_the_core_import_the_core():
    """No test of the core imports another distribution."""
    others = ("millpond_spark", "millpond_cli", "millpond_rocksdb", "millpond_lmdb", "tests.spark")
    for path in Path(__file__).parent.rglob("*.py"):
        lines = path.read_text().splitlines()
        found = [line for line in lines if line.startswith(("import ", "from "))]
        assert not [line for line in found if line.split()[1].startswith(others)], path
