"""Directories of local copies are claimed by locks that end with their process."""

import os
import signal

import pytest
from millpond_spark.worker.local_copies import claimed_directory


def killed_at_work(place):
    """Kill a process that holds a copy's directory; return the directory's name."""
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
    """The private directories of killed workers are deleted by the next task that claims the copy."""
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
    """A private directory in use remains, also if another process has the shared copy."""
    first = claimed_directory(tmp_path / "kg")
    first.__enter__()
    with claimed_directory(tmp_path / "kg") as (private, _):
        first.__exit__(None, None, None)
        with claimed_directory(tmp_path / "kg") as (_, outlives):
            assert outlives
            assert private.exists()


@pytest.mark.parametrize("times", [1, 3])
def test_a_killed_owner_frees_the_copy(tmp_path, times):
    """A killed process frees its copy, each time."""
    for _ in range(times):
        assert killed_at_work(tmp_path / "kg") == "copy"
    with claimed_directory(tmp_path / "kg") as (_, outlives):
        assert outlives
