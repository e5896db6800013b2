"""Exact comparison of a backend's results with stored values, because `==` is too lenient."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from functools import cache
from typing import Any

import attrs

_LONGEST = 300
_SINGLE = (int, str, bytes, bytearray, float, type(None), Decimal, enum.Enum)
_BY_REPR = (float, complex, date, time)
"""Types whose values are compared by ``repr`` instead of ``==``.

``==`` ignores the sign of zero, some differences of time zones, and the fold of times. And a NaN is
not equal to itself.
"""


def shown(value: Any) -> str:
    """Return the ``repr`` of `value`, shortened if it is long."""
    text = repr(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:150]} … {text[-100:]} ({len(text):,} characters)"


def assert_same(found: Any, expected: Any, what: Any = "") -> None:
    """Raise an AssertionError if `found` and `expected` differ by the rules of `difference`.

    Args:
        found: the value that a backend has returned.
        expected: the value that was written.
        what: a description of the read, for the message.
    """
    if message := difference(found, expected):
        raise AssertionError(f"{what}: {message}" if what else message)


def difference(found: Any, expected: Any, path: str = "") -> str:
    """Return a description of the first difference of two values; an empty string if there is none.

    Two values differ if their types differ at any depth, or if only one of them has a null at some
    position. Decimals differ if their sign, digits or scale differ. The floats 0.0 and -0.0 differ.
    Sequences and dictionaries differ if their order differs. NaN does not differ from NaN.

    Args:
        found: the value that a backend has returned.
        expected: the value that was written.
        path: the position of the two values within outer values, such as ``.parts[0]``.
    """
    if type(found) is not type(expected):
        return _told(path, found, expected)
    theirs, ours = _parts(found), _parts(expected)
    if theirs is None or ours is None:
        return "" if _form(found) == _form(expected) else _told(path, found, expected)
    if len(theirs) != len(ours):
        return _told(path, found, expected)
    pairs = zip(theirs, ours, strict=True)
    differences = (difference(a, b, f"{path}{name}") for (name, a), (_, b) in pairs)
    return next(filter(None, differences), "")


def _form(value: Any) -> Any:
    """Return an object that represents `value` in a comparison by ``==``.

    The objects of two values are equal only if the values do not differ by the rules of
    `difference`. `value` is not a container.
    """
    if isinstance(value, Decimal):
        return value.as_tuple()
    return repr(value) if isinstance(value, _BY_REPR) else value


def _told(path: str, found: Any, expected: Any) -> str:
    if not path:
        return f"expected {shown(expected)}, got {shown(found)}"
    return f"at {path}: expected {shown(expected)}, got {shown(found)}"


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a container or object, each with its name; None for a single value."""
    if isinstance(value, _SINGLE):
        return None
    kind: Any = type(value)
    fields = _fields(kind)
    if fields:
        return [(f".{name}", getattr(value, name)) for name in fields]
    if isinstance(value, Mapping):
        value = list(value.items())
    elif isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, Collection):
        return [(f"[{number}]", each) for number, each in enumerate(value)]
    return None


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of an attrs class or a dataclass; empty for other classes."""
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return ()


def by_key(entries: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return `entries` as a dictionary sorted by the ``repr`` of the keys.

    A map state has no defined order, so its entries must be sorted before a comparison.
    """
    return dict(sorted(entries.items(), key=lambda entry: repr(entry[0])))


def mutate(value: Any) -> None:
    """Empty every container within `value`, and set every field of an object in it to None.

    Tests call this for a value that they have written or read. If the backend still uses this
    object, the content of the state changes, and a later read finds the fault.
    """
    inner = value.values() if isinstance(value, dict) else value
    kind: Any = type(value)
    names = _fields(kind)
    parts = [getattr(value, name) for name in names]
    for part in parts or (inner if isinstance(value, list | tuple | dict) else ()):
        mutate(part)
    for name in names:
        with suppress(AttributeError):  # the object is frozen
            setattr(value, name, None)
    if isinstance(value, list | dict | set):
        value.clear()
