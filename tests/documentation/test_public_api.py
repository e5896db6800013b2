"""The signatures of public names, compared with those of the last release."""

import griffe
import pytest

from tools import public_api

RELEASED = {path.stem: path.read_text() for path in public_api.FOLDER.glob("*.pyi")}


def parsed(path, code):
    """Return the module of a stub, whose classes inherit the members of its other classes."""
    modules = griffe.ModulesCollection()
    modules["stub"] = griffe.visit("stub", filepath=path, code=code, modules_collection=modules)
    return modules["stub"]


def breakages(before, after, tmp_path):
    """Return the changes between two sets of stubs that break a caller."""
    found = []
    for module in before.keys() | after.keys():
        path = tmp_path / f"{module}.pyi"
        old, new = (parsed(path, each.get(module, "")) for each in (before, after))
        found += [
            f"{module}: {each.explain(griffe.ExplanationStyle.ONE_LINE)}"
            for each in griffe.find_breaking_changes(old, new)
        ]
    return found


def test_nothing_public_is_broken(tmp_path):
    """A program for the last release works with the present sources.

    If you break a public name on purpose, which needs a new minor version, write the stubs with
    `python tools/public_api.py`, and a fragment in `changelog/`.
    """
    assert RELEASED
    assert breakages(RELEASED, public_api.stubs(), tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def set_name(self, name: str) -> None: ...", ""),
        ("(self, name: str)", "(self, title: str)"),
        ("(self, name: str)", "(self, name: str, size: int)"),
        ("class Known(Base):", "class Known:"),
    ],
)
def test_a_broken_name_is_found(tmp_path, old, new):
    """A removed method, a renamed or an added parameter, and a removed base are found."""
    stub = "class Known(Base):\n    ...\n    def set_name(self, name: str) -> None: ...\n"
    assert old in stub
    assert breakages({"m": stub}, {"m": stub}, tmp_path) == []
    assert len(breakages({"m": stub}, {"m": stub.replace(old, new)}, tmp_path)) >= 1


def test_a_member_may_move_to_a_base(tmp_path):
    """A method that a class inherits from a base in the same stub counts as its own."""
    base, method = "class Base:\n    ...\n", "    def set_name(self, name: str) -> None: ...\n"
    before = f"{base}class Known(Base):\n    ...\n{method}"
    after = f"{base}{method}class Known(Base):\n    ...\n"
    assert breakages({"m": before}, {"m": after}, tmp_path) == []


def test_stubs_have_the_bases_that_callers_rely_on():
    """A stub names built-in bases, and public ones behind a private class or with parameters."""
    stubs = public_api.stubs()
    assert "class NullKeyError(NullValueError):" in stubs["millpond.errors"]
    assert "class NullValueError(MillpondError, ValueError):" in stubs["millpond.errors"]
    assert "class CountEvictor(Evictor):" in stubs["millpond.windows"]
    assert "class ValueStateDescriptor(StateDescriptor):" in stubs["millpond"]
