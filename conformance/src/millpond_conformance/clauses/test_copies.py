"""Local copies that are whole, but not the one that is asked for."""

import shutil

import pytest
from millpond.errors import MillpondError

from millpond_conformance.clauses.test_ownership import put, totals
from millpond_conformance.opening import open_at

WAYS = ("a sibling's", "an older one", "older files beside newer ones")
RIGHT = {f"k{number}": number for number in range(50)}


def written(backend_name, directory, version, first):
    """A copy that is closed at a version, with values of its own; what it took over stays."""
    with open_at(backend_name, directory, {"v1"}) as backend:
        put(backend, **{key: first + number for key, number in RIGHT.items()})
        backend.flush(version)


def replaced(place, other, *, only=None):
    """Put another copy's files in the place of a copy's, or only one of them."""
    if only is None:
        shutil.rmtree(place)
        shutil.copytree(other, place)
    elif (other / only).exists():
        shutil.copy2(other / only, place / only)


@pytest.mark.clause("F7")
@pytest.mark.parametrize("way", WAYS)
def test_another_copy_is_not_taken_for_this_one(backend_name, tmp_path, way):
    """A copy of a sibling, or an older one, put in the place of a copy gives no wrong value.

    So it is where older files stand beside newer ones. It opens empty, or as it was stored at the
    version that it says it is at, or raises one of Millpond's errors.
    """
    copy, sibling, older = tmp_path / "copy", tmp_path / "sibling", tmp_path / "older"
    written(backend_name, sibling, "v2", 1000)
    written(backend_name, copy, "v1", 100)
    shutil.copytree(copy, older)
    written(backend_name, copy, "v2", 0)
    whole = tmp_path / "whole"
    shutil.copytree(copy, whole)
    files = sorted(path.relative_to(copy) for path in copy.rglob("*") if path.is_file())
    spoiled = [(older, name) for name in files] if way == WAYS[2] else [(sibling, None)]
    if way == WAYS[1]:
        spoiled = [(older, None)]
    for other, only in spoiled:
        replaced(copy, other, only=only)
        expect_no_wrong_value(backend_name, copy)
        replaced(copy, whole)


def expect_no_wrong_value(backend_name, copy):
    """Open a copy at v2, and compare what it holds."""
    try:
        with open_at(backend_name, copy, {"v2"}) as backend:
            assert totals(backend) == ({} if backend.version is None else RIGHT)
    except MillpondError:
        return
