"""Conversions of NumPy and pandas scalars to equal Python values.

Whenever a user's value is not of the declared type, Millpond calls this module, so all states
convert scalars in the same way. docs/reference/types.md has the table.
"""

from __future__ import annotations

import sys
from typing import Any

_FINER = "Python cannot represent parts of a microsecond"
_BEYOND = "it is outside the range of Python's datetime and timedelta"


def python_scalar(value: Any) -> Any:
    """Return a scalar of NumPy or pandas as a Python value; return None for NaT, NA and masked.

    Return any other value unchanged. This includes scalars without an equal Python value: complex
    numbers, long doubles, records, periods, intervals, and durations in months or without a unit.

    Raises:
        ValueError: `value` is a time that Python's datetime or timedelta cannot represent.
    """
    library = type(value).__module__.partition(".")[0]
    if library == "numpy":
        return _from_numpy(value, sys.modules["numpy"])
    return _from_pandas(value, sys.modules["pandas"]) if library == "pandas" else value


def is_missing(value: Any) -> bool:
    """Return whether `value` is NaT, NA or masked. Millpond treats all three as None."""
    try:
        return value is not None and python_scalar(value) is None
    except ValueError:
        return False


def _from_numpy(value: Any, numpy: Any) -> Any:
    if value is numpy.ma.masked:
        return None
    if isinstance(value, numpy.ndarray):
        return value if value.ndim else python_scalar(value[()])
    if not isinstance(value, numpy.generic):
        return value
    if isinstance(value, (str, bytes)):
        return value[:]  # ``item`` would remove zeros at the end
    kind = value.dtype.kind
    if kind in "mM":
        return _from_time(value, numpy)
    plain = value.item() if kind in "biuf" else value
    return plain if type(plain) in (bool, int, float) else value


def _from_time(value: Any, numpy: Any) -> Any:
    """Return a datetime64 or timedelta64 as a Python value. A datetime64[D] becomes a date."""
    if numpy.isnat(value):
        return None
    kind = value.dtype.kind
    unit, step = numpy.datetime_data(value.dtype)
    if unit == "generic" or (kind == "m" and unit in "YM"):
        return value
    wanted = f"{kind}8[{'D' if (kind, unit, step) == ('M', 'D', 1) else 'us'}]"
    made = value.astype(wanted)
    if made.astype(value.dtype) != value:
        raise ValueError(_FINER if unit in ("ns", "ps", "fs", "as") else _BEYOND)
    plain = made.item()
    if isinstance(plain, int):
        raise ValueError(_BEYOND)  # noqa: TRY004 - the value is wrong, its type is not
    return plain


def _from_pandas(value: Any, pandas: Any) -> Any:
    if value is pandas.NaT or value is pandas.NA:
        return None
    if not isinstance(value, (pandas.Timestamp, pandas.Timedelta)):
        return value
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise ValueError(_FINER)
    is_moment = isinstance(value, pandas.Timestamp)
    try:
        return value.to_pydatetime() if is_moment else value.to_pytimedelta()
    except OverflowError:
        raise ValueError(_BEYOND) from None
