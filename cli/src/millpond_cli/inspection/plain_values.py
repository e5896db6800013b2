"""Conversion of JSON and strings from the command line to a column's type, without loss."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeVar

import pyarrow as pa
from millpond.errors import MillpondError, StateTypeError, brief

T = TypeVar("T")

# fromisoformat cuts further digits off without a word.
_BELOW_MICROSECONDS = re.compile(r"[.,]\d{6}0*[1-9]")
_UNFIT = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    struct.error,
    MillpondError,
)
"""The errors that types and codecs raise for a value that they cannot store."""


def parse_exact_json(text: str) -> Any:
    """Parse a JSON value.

    Raises:
        ValueError: it is not JSON, a number is beyond a float's range, or a name appears twice.
    """
    try:
        return json.loads(text, parse_float=_finite, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is beyond a float's range")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice in an object")
    return found


def key_value(text: str, kind: pa.DataType, place: str) -> Any:
    """Convert a key to its column's type: a string if the column has strings, else JSON.

    Raises:
        StateTypeError: it is not a key of this type.
    """
    if pa.types.is_string(kind):
        return text
    try:
        plain = parse_exact_json(text)
    except ValueError:
        plain = text
    return column_value(plain, kind, place)


def stored_as(place: str, expected: str, given: str, make: Callable[[], T]) -> T:
    """Call a codec on a value from the command line; raise StateTypeError if it refuses it."""
    try:
        return make()
    except _UNFIT as error:
        reason = getattr(error, "reason", "") or str(error) or type(error).__name__
        raise StateTypeError(expected, given, place, reason) from error


def column_value(
    value: Any, kind: pa.DataType, place: str, exact: pa.DataType | None = None
) -> Any:
    """Convert a plain JSON value to a column's type; nothing is rounded, cut or guessed.

    Numbers are JSON numbers, bytes base64, timestamps ISO strings, structures objects (or lists of
    all their fields), maps objects or lists of pairs. The caller checks nulls.

    Args:
        value: the value.
        kind: the column's natural type.
        place: the state and part of the value, for the message.
        exact: the column's type in the exact form, if the result is for that form.

    Raises:
        StateTypeError: it is not a value of this type.
    """
    try:
        return _converted(value, kind, kind if exact is None else exact)
    except (ValueError, TypeError) as error:
        raise StateTypeError(str(kind), brief(value), place, str(error)) from error


def _converted(value: Any, kind: pa.DataType, exact: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        items = _typed(value, list, "a JSON array")
        return [_converted(item, kind.value_type, exact.value_type) for item in items]
    if pa.types.is_struct(kind):
        return _struct(value, kind, exact)
    if pa.types.is_map(kind):
        return _map(value, kind, exact)
    made = _SCALARS[str(kind)](value)
    if exact == kind:
        if pa.types.is_int64(kind) and not -(1 << 63) <= made < 1 << 63:
            raise ValueError("it does not fit 64 bits")
        return made
    return made.isoformat() if isinstance(made, datetime) else str(made)


def _struct(value: Any, kind: pa.DataType, exact: pa.DataType) -> dict[str, Any]:
    names = [field.name for field in kind]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != len(names):
            raise ValueError(f"it has {len(value)} fields, expected {len(names)}")
        value = dict(zip(names, value, strict=True))
    given = _typed(value, Mapping, "a JSON object")
    if set(given) != set(names):
        raise ValueError(f"its fields are {_listed(given)}, expected {_listed(names)}")
    pairs = zip(kind, exact, strict=True)
    return {own.name: _converted(given[own.name], own.type, other.type) for own, other in pairs}


def _map(value: Any, kind: pa.DataType, exact: pa.DataType) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else _typed(value, list, "an object")
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):  # noqa: PLR2004
        raise ValueError("expected an object, or an array of [key, value] pairs")
    made = [
        (
            _converted(key, kind.key_type, exact.key_type),
            _converted(item, kind.item_type, exact.item_type),
        )
        for key, item in pairs
    ]
    if any(key is None for key, _ in made):
        raise ValueError("a key is null")
    if len({repr(key) for key, _ in made}) != len(made):
        raise ValueError("a key appears twice")
    return made


def _listed(names: Any) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"


def _typed(value: Any, kind: type, words: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {words}")
    return value


def _float(value: Any) -> float:
    if value in ("nan", "inf", "-inf"):
        return float(value)
    number = _typed(value, (int, float), "a number")  # type: ignore[arg-type]
    try:
        made = float(number)
    except OverflowError as error:
        raise ValueError("it is beyond a float's range") from error
    if isinstance(number, int) and int(made) != number:
        raise ValueError("a float cannot hold it exactly")
    return made


def _moment(value: Any) -> datetime:
    text = _typed(value, str, "an ISO date and time")
    if _BELOW_MICROSECONDS.search(text):
        raise ValueError("it is finer than microseconds")
    return datetime.fromisoformat(text)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int32": lambda value: _typed(value, int, "a whole number"),
    "int64": lambda value: _typed(value, int, "a whole number"),
    "double": _float,
    "bool": lambda value: _typed(value, bool, "true or false"),
    "string": lambda value: _typed(value, str, "a JSON text"),
    "binary": lambda value: base64.b64decode(_typed(value, str, "base64"), validate=True),
    "timestamp[us, tz=UTC]": _moment,
    "date32[day]": lambda value: date.fromisoformat(_typed(value, str, "an ISO date")),
}
