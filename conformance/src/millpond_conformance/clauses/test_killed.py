"""Clauses: killed processes.

The core deletes the store of a killed process, because it has no marker of a clean shutdown. A
backend must not rely on that. So these clauses open the store by the core, which deletes it, and
by the factory alone, which finds it unchanged.
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
    """Open a directory at one of the versions; return the backend's version and contents."""
    with OPENINGS[opening](backend_name, directory, versions) as backend:
        return backend.version, contents(backend)


@pytest.mark.clause("R4")
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_killed_process_leaves_a_whole_version_or_none(backend_name, tmp_path, opening):
    """After a kill a store reopens at its flushed version, with the state of that flush, or empty.

    This holds if the core opens the store, and if the factory finds its directory unchanged.
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
    """A store is at a version only while it holds exactly the state at the flush of that name.

    A full buffer, an enumeration and a migration may flush without a name. If the process is killed
    after a flush without a name, the store opens empty, even if the factory finds its directory
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
    """If the process is killed at any moment, the store holds all states of one flush, or nothing.

    This holds if the core opens the store, and if the factory finds its directory unchanged.
    """
    for at, seconds in enumerate(MOMENTS):
        place = tmp_path / str(at)
        with pytest.raises(ChildProcessError):
            fresh_processes(backend_name).call(restless, backend_name, str(place), seconds)
        flushes = Path(f"{place}.flushed").stat().st_size
        expect_one_flush(OPENINGS[opening], backend_name, place, flushes)


def expect_one_flush(opened, backend_name, place, last):
    """Check that a store holds the flush `last`, or the one after it, or nothing."""
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
    """A kill during a large flush leaves all of its changes, or none of them, or an empty store.

    This also holds if a factory opens the directory exactly as the killed process left it.
    """
    with pytest.raises(ChildProcessError):
        fresh_processes(backend_name).call(
            killed_in_a_large_flush, backend_name, str(tmp_path), share
        )
    with open_as_left(backend_name, tmp_path, ("v1", "v2")) as backend:
        total = backend.get_partitioned_state(mp.ValueStateDescriptor("total", int))
        found = set(total.get_many(CROWD).to_pylist())
        assert found == {{"v1": 1, "v2": 2}.get(backend.version or "")}
