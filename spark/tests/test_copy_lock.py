"""Directories of local copies: claimed by locks that end with their process."""

import os
import signal

import pytest
from millpond_spark.worker.local_copies import claimed_directory


def killed_at_work(place):
    """A process that is killed while it holds a directory of a copy; the directory's name."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with claimed_directory(place) as (directory, _):
            directory.mkdir(exist_ok=True)
            (directory / "state").write_bytes(b"rows")
            os.write(writing, directory.name.encode())
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    name = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    return name


def test_private_directories_of_killed_workers_are_removed(tmp_path):
    """The next task that gets the directory, or claims the shared copy, removes the files."""
    with claimed_directory(tmp_path / "kg") as (shared, outlives):
        assert outlives
        killed_at_work(tmp_path / "kg")
        with claimed_directory(tmp_path / "kg") as (private, own):
            assert own is False
            assert list(private.iterdir()) == []
        assert not private.exists()
        left = killed_at_work(tmp_path / "kg")
        assert (tmp_path / "kg" / left / "state").exists()
    with claimed_directory(tmp_path / "kg") as (again, _):
        assert again == shared
        assert not (tmp_path / "kg" / left).exists()


def test_a_private_directory_in_use_stays(tmp_path):
    """Its process holds it, whoever has the shared copy by now."""
    first = claimed_directory(tmp_path / "kg")
    first.__enter__()
    with claimed_directory(tmp_path / "kg") as (private, _):
        first.__exit__(None, None, None)
        with claimed_directory(tmp_path / "kg") as (_, outlives):
            assert outlives
            assert private.exists()


@pytest.mark.parametrize("times", [1, 3])
def test_a_killed_owner_frees_the_copy(tmp_path, times):
    """Its lock ends with its process, however often."""
    for _ in range(times):
        assert killed_at_work(tmp_path / "kg") == "copy"
    with claimed_directory(tmp_path / "kg") as (_, outlives):
        assert outlives
