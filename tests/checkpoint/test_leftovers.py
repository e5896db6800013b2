"""`gc` finds and deletes files that killed processes leave in a checkpoint directory, and no others."""

import json
import signal
import subprocess
import sys

import millpond as mp
import pytest
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import seal_metadata
from millpond.snapshots.catalog import read_catalog
from millpond.snapshots.paths import layout_path
from millpond_cli.inspection.orphans import orphans

from tests.checkpoint.stored import confirmed

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
    """A storage that renames complete files, and one that writes them in place."""
    return mp.checkpoint_storage(f"{request.param}://{tmp_path}/snapshots")


def killed_at(storage, *numbers):
    """Kill processes that write a snapshot of each id; return the files that they leave."""
    return killed(storage, *(f"q/op/kg-0-127/{n}-{n:032x}.snapshot" for n in numbers))


def killed(storage, *paths):
    """Kill a process that writes files; return the files that it leaves."""
    before = storage.list("")
    command = [sys.executable, "-c", KILLED, storage.uri, *paths]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    return [path for path in storage.list("") if path not in before]


def test_gc_deletes_what_killed_writers_have_left(storage):
    """Files older than the newest checkpoint are deleted; a running attempt may need the others."""
    given = {"backend": "heap", "place": "q/op"}
    last = confirmed(storage, GROUPS, (1, 2), **given)
    left = killed_at(storage, 2)
    assert len(left) == 1
    before = storage.list("")
    if storage.uri.startswith("local"):
        with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted"):
            orphans(read_catalog(storage), 100)
    else:
        assert orphans(read_catalog(storage), 100) == []
    confirmed(storage, GROUPS, (3,), restore=[last], **given)
    left += killed_at(storage, 1)
    assert read_catalog(storage).broken == {}
    assert orphans(read_catalog(storage), 100) == sorted(left)
    for path in left:
        storage.delete(path)
    assert set(before) - set(left) < set(storage.list(""))
    assert orphans(read_catalog(storage), 100) == []


def test_a_confirmed_snapshot_that_lacks_its_end_is_no_leftover(storage):
    """A truncated confirmed snapshot is damage, whether newer snapshots need it or have retired it."""
    config = mp.Config({"state.snapshot.strategy": "full"})
    confirmed(storage, GROUPS, (1, 2, 3), backend="heap", place="q/op", config=config)
    for path in storage.list("")[:2]:
        whole = storage.read_all(path)
        storage.write(path, [whole[:-1]])
        with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted") as caught:
            orphans(read_catalog(storage), 1)
        assert caught.value.file == path
        storage.write(path, [whole])


LAYOUT = seal_metadata(json.dumps({"sources": []}))


def two_queries(uri):
    """Return a storage with two queries, each with a layout, a file of a lost attempt and a second layout."""
    storage = mp.checkpoint_storage(uri)
    lost = {query: f"{query}/op/kg-0-127/1-{0:032x}_000012.sst" for query in "qr"}
    for query, path in lost.items():
        last = confirmed(storage, GROUPS, (1, 2), backend="heap", place=f"{query}/op")
        storage.write(path, [b"x"])
        storage.write(layout_path(OperatorId(query, "op"), 1), [LAYOUT])
    return storage, lost, last, layout_path(OperatorId("q", "op"), 2)


@pytest.mark.parametrize(
    ("scheme", "content"),
    [
        ("local", LAYOUT.replace(b"sources", b"sourcez")),
        ("local", b"[]"),
        ("local", LAYOUT[:50]),
        ("local", LAYOUT[:-1]),
        ("file", LAYOUT[:100]),
        ("file", b""),
    ],
)
def test_a_damaged_layout_holds_up_all(tmp_path, scheme, content):
    """A damaged or truncated layout blocks `gc` for all queries."""
    storage, _, _, second = two_queries(f"{scheme}://{tmp_path}/snapshots")
    storage.write(second, [content])
    with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted") as caught:
        orphans(read_catalog(storage), 1)
    assert caught.value.file == second


def test_layouts_that_a_killed_driver_has_begun(tmp_path):
    """A hidden file of a layout is deleted once a layout of the same number exists."""
    storage, lost, _, second = two_queries(f"file://{tmp_path}/snapshots")
    first = layout_path(OperatorId("q", "op"), 1)
    (begun,) = killed(storage, first)
    killed(storage, second)
    assert set(orphans(read_catalog(storage), 1)) == {*lost.values(), begun}
