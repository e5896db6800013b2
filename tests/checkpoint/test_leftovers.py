"""What killed writers leave in a checkpoint directory is found and deleted, and nothing else is."""

import signal
import subprocess
import sys

import millpond as mp
import pytest
from millpond import errors
from millpond.checkpoint.inspection.catalog import read_catalog
from stored import confirmed

GROUPS = mp.KeyGroupRange(0, 127)
KILLED = """
import os, signal, sys
import millpond as mp
storage = mp.checkpoint_storage(sys.argv[1])
writers = [storage.open_writer(path) for path in sys.argv[2:]]
for writer in writers:
    writer.write(bytes(1 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["file", "local"])
def storage(request, tmp_path):
    """A storage that renames files when they are whole, and one that writes them in place."""
    return mp.checkpoint_storage(f"{request.param}://{tmp_path}/snapshots")


def killed_at(storage, *numbers):
    """Kill a process that writes a snapshot of each number; the files that it has left."""
    before = storage.list("")
    paths = [f"q/op/kg-0-127/{number}-{number:032x}.snapshot" for number in numbers]
    command = [sys.executable, "-c", KILLED, storage.uri, *paths]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    return [path for path in storage.list("") if path not in before]


def test_gc_deletes_what_killed_writers_have_left(storage):
    """What is older than the newest checkpoint goes; an attempt may still be at work on the rest."""
    given = {"backend": "heap", "place": "q/op"}
    last = confirmed(storage, GROUPS, (1, 2), **given)
    left = killed_at(storage, 2)
    assert len(left) == 1
    before = storage.list("")
    if storage.uri.startswith("local"):
        with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted"):
            read_catalog(storage).orphans(100)
    else:
        assert read_catalog(storage).orphans(100) == []
    confirmed(storage, GROUPS, (3,), restore=[last], **given)
    left += killed_at(storage, 1)
    assert read_catalog(storage).broken == {}
    assert read_catalog(storage).orphans(100) == sorted(left)
    for path in left:
        read_catalog(storage).delete(path)
    assert set(before) - set(left) < set(storage.list(""))
    assert read_catalog(storage).orphans(100) == []


def test_a_confirmed_snapshot_that_lacks_its_end_is_no_leftover(storage):
    """It is damage, whether newer snapshots need the file or have retired it."""
    config = mp.Config({"state.snapshot.strategy": "full"})
    confirmed(storage, GROUPS, (1, 2, 3), backend="heap", place="q/op", config=config)
    for path in storage.list("")[:2]:
        whole = storage.read_all(path)
        storage.write(path, [whole[:-1]])
        with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted") as caught:
            read_catalog(storage).orphans(1)
        assert caught.value.file == path
        storage.write(path, [whole])
