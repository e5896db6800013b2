"""Unlike values of which Arrow makes a column in silence, though that changes some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import MAXYEAR, MINYEAR, datetime
from itertools import chain, islice
from typing import Any

import pyarrow as pa


def _is_zoned(value: Any) -> bool | None:
    """Whether a datetime has a zone; None for a null, which pandas' NaT is: it equals nothing."""
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124 - as NaN does not
        return None
    return value.tzinfo is not None


_MIXTURES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool | None], str], ...] = (
    (pa.types.is_timestamp, _is_zoned, "datetimes with and without time zone"),
    (pa.types.is_date, lambda value: isinstance(value, datetime), "dates and datetimes"),
    (pa.types.is_binary, lambda value: isinstance(value, str), "texts and bytes"),
    (pa.types.is_floating, lambda value: isinstance(value, bool), "floats and bools"),
)
"""By the type that Arrow finds: what tells two kinds of values apart, and both in words."""


_LOSSES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool], str], ...] = (
    (
        pa.types.is_timestamp,
        lambda value: getattr(value, "nanosecond", 0) > 0,  # NaT has NaN of them
        "moments with nanoseconds, where a column has microseconds",
    ),
    (
        pa.types.is_timestamp,
        lambda value: getattr(value, "year", 1) > MAXYEAR or getattr(value, "year", 1) < MINYEAR,
        "moments outside of the years 1 to 9999",
    ),
    (
        pa.types.is_duration,
        lambda value: getattr(value, "nanoseconds", 0) > 0,
        "durations with nanoseconds, where a column has microseconds",
    ),
    (
        pa.types.is_duration,
        lambda value: getattr(value, "unit", "us") in ("s", "ms"),
        "durations of pandas' in s or ms, of which Arrow makes 0: give them as_unit('us')",
    ),
    (
        pa.types.is_time,
        lambda value: getattr(value, "tzinfo", None) is not None,
        "times with a zone, where a column has none",
    ),
)
"""By the type that Arrow finds: which values it cuts, all alike, and that in words."""


def mixture(values: Iterable[Any], kind: pa.DataType) -> str:
    """The kinds of values, in words, that Arrow has mixed in a column; empty where it changes none.

    A datetime beside dates loses its time of day, one without zone is taken as UTC's or one with
    a zone moved by its offset, a text beside bytes is encoded, and a bool becomes a float. Moments
    and durations of pandas' lose their nanoseconds, and times their zone, even where all have some;
    what Python's own moments cannot be becomes another moment.

    Args:
        values: those of the column.
        kind: the type that Arrow has found for them.
    """
    if pa.types.is_struct(kind):
        return _in_dicts([value for value in values if isinstance(value, dict)], kind)
    if pa.types.is_list(kind):
        return _in_lists([value for value in values if isinstance(value, Iterable)], kind)
    losses = [each for each in _LOSSES if each[0](kind) and getattr(kind, "unit", "us") == "us"]
    values = list(values) if losses else values  # a column of arrays has many numbers
    for _, loses, words in losses:
        if any(map(loses, values)):
            return words
    for is_such, tell, words in _MIXTURES:
        if is_such(kind):
            return words if {True, False} <= set(map(tell, values)) else ""
    return ""


def _in_dicts(dicts: list[dict[str, Any]], kind: Any) -> str:
    if any(each.keys() != dicts[0].keys() for each in dicts):
        return "dicts of unlike keys, of which a table would say that they are maps"
    fields = (mixture((each.get(field.name) for each in dicts), field.type) for field in kind)
    return next(filter(None, fields), "")


def _in_lists(lists: list[Iterable[Any]], kind: Any) -> str:
    if any(isinstance(each, AbstractSet) for each in lists):
        return "sets, where a column has lists"
    return mixture(chain.from_iterable(map(_unlike, lists)), kind.value_type)


def _unlike(values: Iterable[Any]) -> Iterable[Any]:
    """What is in a list; of an array of NumPy's, whose values are of one kind, the first."""
    is_array = type(values).__module__ == "numpy" and getattr(values, "dtype", "object") != "object"
    return islice(values, 1) if is_array else values
