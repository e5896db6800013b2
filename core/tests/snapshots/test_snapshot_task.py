"""The asynchronous part of a snapshot."""

import gc
import weakref

import pytest
from millpond.snapshots.snapshot_task import run_snapshot


class Source:
    """An object that a snapshot reads, with a flag for its last reference."""


@pytest.mark.parametrize("background", [False, True])
def test_a_failed_snapshot_keeps_no_source(background):
    """The task of a failed snapshot keeps no reference to the objects that it has read."""
    kept = []

    def rows():
        source = Source()
        kept.append(weakref.ref(source))
        yield 1
        yield source

    def work(task):
        read = rows()
        for row in read:
            raise OSError(f"no room for row {row}")

    task = run_snapshot(work, lambda: None, background=background)
    with pytest.raises(OSError, match="no room for row 1"):
        task.result(30)
    gc.collect()
    assert kept[0]() is None
