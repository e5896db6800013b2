"""Clauses: local copies that were replaced by other copies, or damaged while they were open."""

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
    """Leave a local copy at a version, whose values begin with `first`."""
    with open_at(backend_name, directory, {"v1"}) as backend:
        put(backend, **{key: first + number for key, number in RIGHT.items()})
        backend.flush(version)


def aged(backend_name, place):
    """Return the directory of a copy at v2, and a directory of the files that it had at v1."""
    copy, older = place / "copy", place / "older"
    written(backend_name, copy, "v1", 100)
    shutil.copytree(copy, older)
    written(backend_name, copy, "v2", 0)
    return copy, older


def replaced(backend_name, place, way):
    """Return the directory of a copy at v2, after another copy has replaced it."""
    copy, other = aged(backend_name, place)
    if way == WAYS[0]:
        other = place / "sibling"
        written(backend_name, other, "v2", 1000)
    shutil.rmtree(copy)
    return shutil.copytree(other, copy)


def mixed(backend_name, place):
    """Yield copies at v2 in which one file comes from v1; each copy has another such file."""
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
    """A local copy gives no wrong value if a sibling's or an older copy has replaced it.

    This includes a mixture of older and newer files. The directory opens empty, or with the state
    of the version that the backend reports, or one of Millpond's errors is raised.
    """
    if way == WAYS[2]:
        for copy in mixed(backend_name, tmp_path):
            expect_no_wrong_value(backend_name, copy)
    else:
        expect_no_wrong_value(backend_name, replaced(backend_name, tmp_path, way))


def expect_no_wrong_value(backend_name, copy):
    """Open a copy at v2; it must be empty, right, or raise an error of Millpond's."""
    try:
        with open_at(backend_name, copy, {"v2"}) as backend:
            # A read may flush without a name, and that ends the version.
            version = backend.version
            held = totals(backend)
    except MillpondError:
        return
    expected = {} if version is None else RIGHT
    assert held == expected, f"opened at {version}: expected {expected}, got {held}"


@pytest.mark.clause("F9")
def test_a_copy_that_was_found_damaged_is_given_up(backend_name, tmp_path):
    """A local copy in which a backend has found damage gives no wrong value later.

    The call that finds the damage raises one of Millpond's errors. If the directory is opened
    again, it is empty or complete.
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
