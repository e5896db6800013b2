"""Local copies are spread over the executor's directories, and those of dead executors are deleted."""

import json
import os
import subprocess
import sys

import attrs
import pytest
from millpond_spark.worker import local_copies as copy_directories
from millpond_spark.worker.local_copies import claimed_directory, place_of_copy

from tests.crash.crash_faults import fill_up, small_disk

NAMES = [f"query/uid/kg-{number}-{number}-lmdb" for number in range(40)]


@pytest.fixture
def directories(tmp_path, monkeypatch):
    """Three directories of an executor."""
    made = [tmp_path / f"disk{number}" / "blockmgr-mine" for number in range(3)]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, made)))
    copy_directories._sign_and_clean.cache_clear()
    return made


def spread(directories):
    """Return the number of copies in each directory."""
    places = [place_of_copy(name) for name in NAMES]
    assert places == [place_of_copy(name) for name in NAMES]
    return [sum(place.is_relative_to(each) for place in places) for each in directories]


def test_all_directories_are_used(directories):
    """Each directory gets its share, and a copy is found again."""
    found = spread(directories)
    assert sum(found) == len(NAMES)
    assert min(found) >= 5


def test_a_directory_that_cannot_be_written_is_passed_over(directories):
    """The share of a directory that cannot be written goes to the others, where the copies remain."""
    directories[1].parent.mkdir()
    directories[1].write_text("in the way")
    found = spread(directories)
    assert found[1] == 0
    directories[1].unlink()
    assert spread(directories) == found


def test_a_full_directory_is_passed_over(directories, monkeypatch):
    """Copies on a full disk are deleted, except those in use."""
    monkeypatch.setattr(copy_directories, "_ROOM", 1 << 20)
    with small_disk(directories[0].parent):
        if not directories[0].parent.is_mount():
            pytest.skip("mounting is not allowed here")
        before = [place_of_copy(name) for name in NAMES]
        there = [place for place in before if place.is_relative_to(directories[0])]
        with claimed_directory(there[0]):
            fill_up(directories[0].parent)
            assert spread(directories)[0] == 0
            assert there[0].exists()
        assert not any(place.exists() for place in there[1:])


def test_a_copy_stays_where_no_disk_has_room(directories, monkeypatch):
    """If no disk has space, a copy remains in its directory."""
    before = [place_of_copy(name) for name in NAMES]
    monkeypatch.setattr(copy_directories, "_ROOM", 1 << 62)
    assert [place_of_copy(name) for name in NAMES] == before
    assert all(place.exists() for place in before)


def test_where_all_are_unusable_the_error_names_one(directories):
    """If no directory can be used, the task fails with the error of one."""
    for each in directories:
        each.parent.mkdir()
        each.write_text("in the way")
    with (
        pytest.raises(NotADirectoryError, match="blockmgr-mine"),
        claimed_directory(place_of_copy(NAMES[0])),
    ):
        pass


def left_by(owner, folder):
    """Return a directory with a copy of an executor."""
    root = folder / "millpond-0badb007"
    (root / "copy").mkdir(parents=True)
    (root / "copy" / "lock").touch()
    (root / "owner.json").write_text(json.dumps(attrs.asdict(owner)))
    return root / "copy"


@pytest.fixture
def dead():
    """Return an executor that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        me = copy_directories._Owner.of_this_executor()
        started = copy_directories._status(process.pid)[-1]
        return attrs.evolve(me, pid=process.pid, started=started)


def test_what_a_dead_executor_left_is_removed(directories, dead):
    """Copies of a dead executor are deleted, also if another process has its id, or after a reboot."""
    me = copy_directories._Owner.of_this_executor()
    owners = [dead, attrs.evolve(me, started="1"), attrs.evolve(me, boot="an earlier one")]
    left = [
        left_by(owner, directories[0].parent / f"blockmgr-{number}")
        for number, owner in enumerate(owners)
    ]
    place_of_copy(NAMES[0])
    for name in NAMES:
        place_of_copy(name)
    assert not [place for place in left if place.exists()]


def test_what_may_be_in_use_stays(directories, dead):
    """Copies of living, foreign or unknown executors, and locked ones, remain."""
    me = copy_directories._Owner.of_this_executor()
    alive = attrs.evolve(me, pid=os.getpid(), started=copy_directories._status(os.getpid())[-1])
    others = [attrs.evolve(dead, host="another"), attrs.evolve(dead, namespace="pid:[7]")]
    left = [
        left_by(owner, directories[0].parent / f"blockmgr-{number}")
        for number, owner in enumerate([alive, *others])
    ]
    unknown = left_by(dead, directories[0].parent / "blockmgr-x")
    (unknown.parent / "owner.json").write_text("{")
    locked = left_by(dead, directories[0].parent / "blockmgr-y")
    with claimed_directory(locked):
        for name in NAMES:
            place_of_copy(name)
        assert all(place.exists() for place in (*left, unknown, locked))


def test_applications_that_died_with_their_worker(tmp_path, monkeypatch, dead):
    """On a standalone cluster, directories of dead applications are next to the current one's."""
    mine = tmp_path / "spark-1" / "executor-1" / "blockmgr-mine"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(mine))
    copy_directories._sign_and_clean.cache_clear()
    left = left_by(dead, tmp_path / "spark-0" / "executor-0" / "blockmgr-theirs")
    place_of_copy(NAMES[0])
    assert not left.exists()
