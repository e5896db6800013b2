"""Errors keep their fields after pickling, and their messages are safe to print."""

import inspect
import pickle
import typing

import attrs
import pytest
from millpond import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.MillpondError)
]
SAMPLES = {"str": "x", "int": 1, "float": 1.5, "tuple[str, ...]": ("x", "y"), "str | None": "x"}


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_survive_pickling(cls):
    """Each error has the same fields and message after pickling."""
    hints = typing.get_type_hints(cls)
    names = {
        str: "str",
        int: "int",
        float: "float",
        tuple[str, ...]: "tuple[str, ...]",
        str | None: "str | None",
    }
    given = {field.name: SAMPLES[names[hints[field.name]]] for field in attrs.fields(cls)}
    late = {field.name: given.pop(field.name) for field in attrs.fields(cls) if not field.init}
    error = cls(**given)
    for name, value in late.items():
        setattr(error, name, value)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert attrs.asdict(again) == attrs.asdict(error)
    assert str(again) == str(error)
    assert str(error).endswith((".", "x", "y", "?"))


def test_brief_bounds_what_it_shows():
    """A huge or hostile value makes a short message."""

    class Hostile:
        def __repr__(self):
            raise WordlessError

    class WordlessError(Exception):
        def __str__(self):
            raise RuntimeError("no")

    assert len(errors.brief("x" * 10_000)) < 150
    assert "repr failed: <str failed: RuntimeError>" in errors.brief(Hostile())


def test_no_error_reaches_a_terminal_with_control_characters():
    """Control characters and marks that reverse text are shown as escapes; line ends remain."""
    error = errors.RestoreError("a\x1b[2J\x07b", ("c\u202ed\nnext", "\ud800"))
    assert str(error) == "Could not restore a\\x1b[2J\\x07b: c\\u202ed\nnext; \\ud800"
    assert errors.printable("plain é text") == "plain é text"
