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


def test_a_second_task_gets_a_directory_of_its_own(tmp_path):
    """While a task has the copy, another task works in an empty directory, which is deleted afterwards."""
    with claimed_directory(tmp_path / "kg") as (_, outlives):
        assert outlives
        with claimed_directory(tmp_path / "kg") as (private, own):
            assert own is False
            assert list(private.iterdir()) == []
        assert not private.exists()


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
