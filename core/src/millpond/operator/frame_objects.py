"""The objects of a DataFrame's column as Python's own values."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.errors import ArgumentTypeError, MillpondError
from millpond.functions.named_rows import names_of
from millpond.types.listed import library_of, listed

__all__ = ["are_guessed", "natural"]

_PLAIN = frozenset(
    {type(None), bool, int, complex, str, bytes, Decimal, date, datetime, time, timedelta}
)
_FAILURES = (ArithmeticError, RecursionError, TypeError, ValueError, pa.ArrowException)


def are_guessed(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether Arrow has made structs of dicts, or lists of rows with names, at some depth.

    Args:
        values: those of the column.
        kind: the type that Arrow has found for them.
    """
    if _has_structs(kind):
        return True
    return pa.types.is_list(kind) and any(_has_names(value, kind) for value in values)


def _has_structs(kind: Any) -> bool:
    return pa.types.is_struct(kind) or (pa.types.is_list(kind) and _has_structs(kind.value_type))


def _has_names(value: Any, kind: Any) -> bool:
    """Whether what Arrow takes for a list is a row with names, or has one in it."""
    if isinstance(value, tuple) and names_of(value) is not None:
        return True
    inner = kind.value_type
    if not pa.types.is_list(inner) or not isinstance(value, Iterable):
        return False
    return any(_has_names(held, inner) for held in value)


def natural(values: Iterable[Any], what: str) -> list[Any]:
    """Objects, and what is in them, as Python's own: what is missing is None.

    A row with names is a dict, an array a list; what else Python does not know stays what it is.

    Args:
        values: the objects.
        what: how an error calls them.

    Raises:
        ArgumentTypeError: one cannot be read.
        ArgumentValueError: one has moments or durations that are no whole microseconds.
    """
    try:
        return [_natural(value, what) for value in values]
    except MillpondError:
        raise
    except _FAILURES as error:
        raise ArgumentTypeError(what, "values that can be read", str(error)) from None


def _natural(value: Any, what: str) -> Any:  # noqa: PLR0911 - a case a line
    if isinstance(value, float):
        return None if value != value else float(value)  # noqa: PLR0124 - as NaN does not
    if type(value) in _PLAIN:
        return None if isinstance(value, Decimal) and value.is_nan() else value
    names = names_of(value)
    if names is not None:
        return {name: _natural(held, what) for name, held in _named(value, names)}
    if isinstance(value, (list, tuple)):
        return [_natural(held, what) for held in value]
    pandas = sys.modules["pandas"]
    if value is pandas.NA or value is pandas.NaT:
        return None
    if hasattr(value, "ndim") and library_of(value):
        scalar = isinstance(value, sys.modules["numpy"].generic)
        return _of_scalar(value, what) if scalar else _of_array(value, what)
    exact = getattr(value, "to_pydatetime", None) or getattr(value, "to_pytimedelta", None)
    fine = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return value if exact is None or fine else exact()


def _named(row: Any, names: tuple[str, ...]) -> Iterable[tuple[str, Any]]:
    if isinstance(row, Mapping):
        return row.items()
    if isinstance(row, tuple):
        return zip(names, row, strict=True)
    return ((name, getattr(row, name)) for name in names)


def _of_scalar(value: Any, what: str) -> Any:
    """One of NumPy's scalars; a long double, and a record of fields, has no like in Python."""
    if isinstance(value, (str, bytes)):
        return value[:]  # all else cuts zeros at the end off
    if value.dtype.kind in "mM":
        return None if value != value else listed(value.reshape(1), what)[0]  # noqa: PLR0124 - NaT
    plain = value.item()
    return _natural(plain, what) if type(plain) in _PLAIN | {float} else value


def _of_array(array: Any, what: str) -> Any:
    """An array of NumPy's or pandas' as a list; one of no dimension as what is in it."""
    kind = getattr(getattr(array, "dtype", None), "kind", "O")
    if array.ndim == 0:
        return _natural(listed(array.reshape(1), what)[0], what)
    if kind == "V" or (array.ndim > 1 and library_of(array) == "numpy"):
        return [_natural(held, what) for held in array]
    held = listed(array, what)
    if kind == "f":
        return [None if value != value else value for value in held]  # noqa: PLR0124 - as above
    return held if kind in "biu" else [_natural(value, what) for value in held]
