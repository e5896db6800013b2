"""Local copies are spread over the executor's directories."""

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
