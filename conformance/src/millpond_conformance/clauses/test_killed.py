"""Clauses: killed processes.

A killed process leaves no marker of a clean shutdown in the backend's directory. Therefore the core
deletes the files of the directory when it opens a backend there. A backend must not rely on that.
The clauses open the directory in two ways: by the core, which deletes the files, and by the
backend's factory alone, which finds the files unchanged.
"""

from pathlib import Path

import millpond as mp
import pytest

from millpond_conformance.killing import (
    CROWD,
    contents,
    killed,
    killed_in_a_large_flush,
    restless,
    restless_numbers,
    versions_of,
)
from millpond_conformance.opening import open_as_left, open_at
from millpond_conformance.processes import fresh_processes

OPENINGS = {"as left": open_as_left, "by the core": open_at}


def found_after(opening, backend_name, directory, versions):
    """Open `directory` by `opening` with `versions`; return the backend's version and contents."""
    with OPENINGS[opening](backend_name, directory, versions) as backend:
        return backend.version, contents(backend)


@pytest.mark.clause("R4")
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_killed_process_leaves_a_whole_version_or_none(backend_name, tmp_path, opening):
    """If a process is killed, its directory opens with the version and state of a flush, or empty.

    This holds if the core opens the directory, and if the factory finds its files unchanged.
    """
    steps = (1, "v1", 2)
    with pytest.raises(ChildProcessError):
        fresh_processes(backend_name).call(killed, backend_name, str(tmp_path), *steps)
    found = found_after(opening, backend_name, tmp_path, ("v1",))
    assert found in [*versions_of(steps).items(), (None, {})]


BUNDLES = (
    (1, "v1", 2, "flush"),
    (1, "v1", "fill"),
    (1, "v1", "clear", "flush"),
    (1, "v1", "clear", "count"),
    (1, "v1", 2, "list"),
    (1, "restore", "v1", "migrate"),
    (1, "restore", 2, "v1", "migrate", 3, "flush"),
    (1, "v1", "fill", "v2", "fill"),
    (1, "v1", 2, "v2", 3, "flush", 4),
    (1, "flush", 2, "v1", "fill", "clear", "v2"),
)


@pytest.mark.clause("R18")
def test_a_flush_without_a_name_ends_the_version_before(backend_name, tmp_path):
    """A directory has a version only while its state is exactly the state flushed as that version.

    A full buffer, an enumeration and a migration may flush without a version name. If the process
    is killed after such a flush, the directory opens empty, even if the factory finds its files
    unchanged.
    """
    wrong = []
    for number, steps in enumerate(BUNDLES):
        place = tmp_path / str(number)
        with pytest.raises(ChildProcessError):
            fresh_processes(backend_name).call(killed, backend_name, str(place), *steps)
        version, held = found_after("as left", backend_name, place, ("v1", "v2"))
        if held != versions_of(steps).get(version, {}):
            wrong.append((steps, version, held))
    assert wrong == []


MOMENTS = (0.0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.008, 0.013, 0.02, 0.05)
"""Seconds after the first flushes at which a process is killed."""


@pytest.mark.clause("R7")
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_process_killed_amid_flushes(backend_name, tmp_path, opening):
    """If a process is killed at any time, the directory has the states of one flush, or nothing.

    This holds if the core opens the directory, and if the factory finds its files unchanged.
    """
    for at, seconds in enumerate(MOMENTS):
        place = tmp_path / str(at)
        with pytest.raises(ChildProcessError):
            fresh_processes(backend_name).call(restless, backend_name, str(place), seconds)
        flushes = Path(f"{place}.flushed").stat().st_size
        expect_one_flush(OPENINGS[opening], backend_name, place, flushes)


def expect_one_flush(opened, backend_name, place, last):
    """Check that the directory `place` has the state of the flush `last`, the next, or nothing."""
    versions = [f"v{number}" for number in range(1, last + 2)]
    with opened(backend_name, place, versions) as backend:
        found = restless_numbers(backend)
        assert len(found) == 1
        (number,) = found
        assert backend.version == (None if number is None else f"v{number}")
        assert number is None or last <= number <= last + 1


@pytest.mark.clause("R25")
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_a_process_killed_amid_a_large_flush(backend_name, tmp_path, share):
    """If a process is killed in a large flush, its directory has all changes, none, or is empty.

    This also holds if the backend's factory finds the files as the killed process has left them.
    """
    with pytest.raises(ChildProcessError):
        fresh_processes(backend_name).call(
            killed_in_a_large_flush, backend_name, str(tmp_path), share
        )
    with open_as_left(backend_name, tmp_path, ("v1", "v2")) as backend:
        total = backend.get_partitioned_state(mp.ValueStateDescriptor("total", int))
        found = set(total.get_many(CROWD).to_pylist())
        assert found == {{"v1": 1, "v2": 2}.get(backend.version or "")}
