"""Local copies that are not the one that is asked for, or were damaged while they were open."""

import shutil

import pytest
from millpond.errors import MillpondError

from millpond_conformance.clauses.test_ownership import put, totals
from millpond_conformance.opening import open_at
from millpond_conformance.processes import fresh_processes
from millpond_conformance.refused import blobs, damaged_while_open, rows_of

WAYS = ("a sibling's", "an older one", "older files beside newer ones")
RIGHT = {f"k{number}": number for number in range(50)}


def written(backend_name, directory, version, first):
    """Close a copy at a version, with its own values; the snapshot that it restored remains."""
    with open_at(backend_name, directory, {"v1"}) as backend:
        put(backend, **{key: first + number for key, number in RIGHT.items()})
        backend.flush(version)


def aged(backend_name, place):
    """Return a copy at v2, and the files that it had at v1."""
    copy, older = place / "copy", place / "older"
    written(backend_name, copy, "v1", 100)
    shutil.copytree(copy, older)
    written(backend_name, copy, "v2", 0)
    return copy, older


def replaced(backend_name, place, way):
    """Return a copy at v2 in whose place another one was put."""
    copy, other = aged(backend_name, place)
    if way == WAYS[0]:
        other = place / "sibling"
        written(backend_name, other, "v2", 1000)
    shutil.rmtree(copy)
    return shutil.copytree(other, copy)


def mixed(backend_name, place):
    """Yield copies at v2, each with a different file of v1."""
    _, older = aged(backend_name, place)
    for number, path in enumerate(sorted(path for path in older.rglob("*") if path.is_file())):
        copy, before = aged(backend_name, place / str(number))
        file = path.relative_to(older)
        if (before / file).exists():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(before / file, copy / file)
            yield copy


@pytest.mark.clause("F7")
@pytest.mark.parametrize("way", WAYS)
def test_another_copy_is_not_taken_for_this_one(backend_name, tmp_path, way):
    """A copy of a sibling, or an older copy, in the place of a copy gives no wrong value.

    This includes a mixture of older and newer files. The directory opens empty, or with the state
    of the version that it reports, or raises one of Millpond's errors.
    """
    if way == WAYS[2]:
        for copy in mixed(backend_name, tmp_path):
            expect_no_wrong_value(backend_name, copy)
    else:
        expect_no_wrong_value(backend_name, replaced(backend_name, tmp_path, way))


def expect_no_wrong_value(backend_name, copy):
    """Open a copy at v2, and compare its state."""
    try:
        with open_at(backend_name, copy, {"v2"}) as backend:
            version = backend.version  # a read may flush, and a flush ends a version
            held = totals(backend)
    except MillpondError:
        return
    expected = {} if version is None else RIGHT
    assert held == expected, f"opened at {version}: expected {expected}, got {held}"


@pytest.mark.clause("F9")
def test_a_copy_that_was_found_damaged_is_given_up(backend_name, tmp_path):
    """A copy in which a backend has found damage is not opened at its version again.

    The call that finds the damage raises an error of Millpond's. Opened again, the directory is
    empty or complete.
    """
    place, died = str(tmp_path), -1
    try:
        told = fresh_processes(backend_name).call(damaged_while_open, backend_name, place)
    except ChildProcessError as error:
        told, died = True, error.args[0]
    assert died < 0, "an error that is none of Millpond's"
    if told:
        with open_at(backend_name, tmp_path, {"v1"}) as again:
            assert rows_of(again) == ({} if again.version is None else blobs())
