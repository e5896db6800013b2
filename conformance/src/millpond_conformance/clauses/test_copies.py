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
    """Write values from `first` on, flush them as `version`, and close the backend."""
    with open_at(backend_name, directory, {"v1"}) as backend:
        put(backend, **{key: first + number for key, number in RIGHT.items()})
        backend.flush(version)


def aged(backend_name, place):
    """Return a directory with a backend's files at v2, and a directory with its files at v1."""
    copy, older = place / "copy", place / "older"
    written(backend_name, copy, "v1", 100)
    shutil.copytree(copy, older)
    written(backend_name, copy, "v2", 0)
    return copy, older


def replaced(backend_name, place, way):
    """Return a directory whose files at v2 were replaced by the files of another directory."""
    copy, other = aged(backend_name, place)
    if way == WAYS[0]:
        other = place / "sibling"
        written(backend_name, other, "v2", 1000)
    shutil.rmtree(copy)
    return shutil.copytree(other, copy)


def mixed(backend_name, place):
    """Yield, for each file at v1, a directory with files at v2 and this one file from v1."""
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
    """If a directory's files were replaced by other files, the backend never reads a wrong value.

    The other files are those of another backend's directory, older files of this directory, or a
    mixture of older and newer files. The backend opens empty, or with the state of the version that
    it reports, or raises one of Millpond's errors.
    """
    if way == WAYS[2]:
        for copy in mixed(backend_name, tmp_path):
            expect_no_wrong_value(backend_name, copy)
    else:
        expect_no_wrong_value(backend_name, replaced(backend_name, tmp_path, way))


def expect_no_wrong_value(backend_name, copy):
    """Open `copy` at v2; it must be empty, have the right values, or raise a Millpond error."""
    try:
        with open_at(backend_name, copy, {"v2"}) as backend:
            # A read may flush without a version name, and the backend then has no version.
            version = backend.version
            held = totals(backend)
    except MillpondError:
        return
    expected = {} if version is None else RIGHT
    assert held == expected, f"opened at {version}: expected {expected}, got {held}"


@pytest.mark.clause("F9")
def test_a_copy_that_was_found_damaged_is_given_up(backend_name, tmp_path):
    """If an open backend finds damage in its files, the call raises one of Millpond's errors.

    If the directory is then opened again, it is empty or complete.
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
