"""Conversions of columns: from Arrow, NumPy and pandas to Python, and from Python to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from datetime import MAXYEAR, MINYEAR, date, datetime
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments import check_type
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.types.base import TypeSerializer
from millpond.types.key_codecs import KeyCodec
from millpond.types.scalar_tables import SCALAR_KEYS, SCALARS

_UTC = pa.timestamp("us", "UTC")
_TYPES: dict[type, pa.DataType] = {
    kind: SCALARS[kind].column.arrow_type for kind in (int, float, bool, str, bytes, date, datetime)
}
_NO_LISTS = frozenset({*_TYPES, type(None)})


def scalar_type(scalar: TypeSerializer[Any] | KeyCodec | None) -> type | None:
    """Return the Python type of a built-in scalar's serializer or codec, or None for others."""
    known = (*SCALARS.items(), *SCALAR_KEYS.items())
    return next((kind for kind, each in known if each is scalar), None)


def arrow_type_of(kind: Any) -> pa.DataType | None:
    """Return the Arrow type for a column of the Python type `kind`, or None if there is none."""
    return _TYPES.get(kind) if isinstance(kind, type) else None


def arrow_column(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return `values` as an Arrow array of type `kind`, with null for None.

    Raises:
        ValueError: the array cannot store a value: an int needs more than 64 bits, or some
            datetimes have a time zone and others have none.
    """
    if kind == _UTC:
        aware = {value.tzinfo is not None for value in values if value is not None}
        if len(aware) > 1:
            raise ValueError("datetimes with and without time zone do not fit one column")
        kind = pa.timestamp("us") if aware == {False} else _UTC
    try:
        return pa.array(values, kind)
    except (OverflowError, pa.ArrowException) as error:
        raise ValueError(f"a value does not fit a column of {kind} ({error})") from None


def column_values(given: Any, name: str) -> list[Any]:
    """Return the values of a column as a list of Python values, with None for null.

    NaN remains NaN.

    Args:
        given: an Arrow or NumPy array, a pandas Series, a list or another iterable.
        name: the name of the argument, for errors.

    Raises:
        ArgumentTypeError: `given` is not a column.
        ArgumentValueError: a timestamp or duration has nanoseconds, which Python cannot represent.
    """
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return _plain(given, name)
    library = library_of(given)
    if library:
        dimensions = getattr(given, "ndim", 0)  # a scalar of pandas has no ndim
        if dimensions != 1:
            raise ArgumentTypeError(name, "an array of one dimension", f"one of {dimensions}")
        if library == "pandas" and not _is_plain(given):
            return _pandas_values(given, name)
        return _numpy_values(given, name)
    check_type(name, given, Iterable)
    if isinstance(given, (str, bytes, Mapping, set, frozenset)):  # a set has no order
        raise ArgumentTypeError(name, "a column: an array or a list", brief(given))
    return list(given)


def row_values(given: Any, name: str) -> list[Any]:
    """Return the values of a column as in rows of Spark: like `column_values`, but maps are dicts.

    Args:
        given: a column, see `column_values`.
        name: the name of the column, for errors.

    Raises:
        ArgumentTypeError: `given` is not a column.
        ArgumentValueError: Python cannot represent a time, or a map has a key twice.
    """
    values = column_values(given, name)
    if not isinstance(given, (pa.Array, pa.ChunkedArray)) or not _has_maps(given.type):
        return values
    return [_with_dicts(value, given.type, name) for value in values]


def _has_maps(kind: Any) -> bool:
    """Return whether the Arrow type `kind` is or contains a map."""
    if pa.types.is_map(kind) or not pa.types.is_nested(kind):
        return bool(pa.types.is_map(kind))
    return any(_has_maps(kind.field(at).type) for at in range(kind.num_fields))


def _with_dicts(value: Any, kind: Any, name: str) -> Any:
    """Return `value`, of the Arrow type `kind`, with maps as dicts instead of lists of pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        pairs = [
            (_with_dicts(key, kind.key_type, name), _with_dicts(item, kind.item_type, name))
            for key, item in value
        ]
        made = {_hashable(key): item for key, item in pairs}
        if len(made) < len(pairs):
            reason = f"a map has a key twice: {brief(value)}"
            raise ArgumentValueError(name, "maps with distinct keys", reason)
        return made
    if pa.types.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type, name) for field in kind}
    return [_with_dicts(item, kind.value_type, name) for item in value]


def _hashable(key: Any) -> Any:
    """Return `key`, a key of a map, with structs and arrays in it replaced by tuples."""
    if isinstance(key, dict):
        return tuple(map(_hashable, key.values()))
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _numpy_values(given: Any, name: str) -> list[Any]:
    """Return the values of a one-dimensional NumPy array.

    Times are converted by Arrow, because NumPy returns some of them as ints. Arrow has only the
    units from seconds to nanoseconds, so times in longer units are converted to seconds first.
    """
    kind = given.dtype.kind
    if kind not in "mM":
        return list(given.tolist())
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # Arrow lacks the unit
        return _plain(pa.array(given), name)
    with suppress(TypeError):  # seconds cannot express months or picoseconds
        seconds = given.astype(f"{kind}8[s]", casting="safe")
        changes = (seconds.astype(given.dtype).view("i8") != given.view("i8")).any()
        if "[" in given.dtype.str and not changes:
            return _plain(pa.array(seconds), name)
    expected = "moments or durations in whole microseconds"
    raise ArgumentValueError(name, expected, str(given.dtype))


def _pandas_values(given: Any, name: str) -> list[Any]:
    """Return the values of a pandas Series. Arrow converts all values except Python objects."""
    categories = getattr(given.dtype, "categories", None)
    kind = getattr(given.dtype, "subtype", given.dtype) if categories is None else categories.dtype
    if str(kind) != "object":
        try:
            return _plain(pa.Array.from_pandas(given), name)
        except (OverflowError, UnicodeError, pa.ArrowException):
            pass  # the state later reports the value that Arrow cannot convert
    if hasattr(given, "to_flat_index"):  # an Index of tuples is a MultiIndex
        given = given.to_flat_index()
    values = zip(given.tolist(), given.isna(), strict=True)
    found = [None if is_null else value for value, is_null in values]
    plain = set(map(type, found)) <= _NO_LISTS
    return found if plain else [_without_arrays(value, name) for value in found]


def _without_arrays(value: Any, name: str) -> Any:
    """Return `value` with lists instead of NumPy arrays, at any depth."""
    if library_of(value) == "numpy" and hasattr(value, "ndim") and value.ndim > 0:
        held = _numpy_values(value, name) if value.ndim == 1 else value
        return [_without_arrays(each, name) for each in held]
    if type(value) is dict:
        return {key: _without_arrays(held, name) for key, held in value.items()}
    return value


def has_nulls(column: Any) -> bool:
    """Return whether `column` may contain nulls.

    Return True if only a search through all values could find out. NaN in a NumPy array without a
    mask is not a null.
    """
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return bool(column.null_count) or not pa.types.is_primitive(column.type)
    library = library_of(column)
    if library == "pandas" and not _is_plain(column):
        kind = getattr(getattr(column, "dtype", None), "kind", "O")
        return kind not in "iuf" or bool(getattr(column, "hasnans", True))
    masked = library == "numpy" and hasattr(column, "mask")
    return masked or bool(getattr(column, "null_count", 0))


def library_of(column: Any) -> str:
    """Return 'numpy' or 'pandas' if the class of `column` comes from that library, else ''.

    A subclass counts as a class of the library.
    """
    modules = (kind.__module__.partition(".")[0] for kind in type(column).__mro__)
    return next((name for name in modules if name in ("numpy", "pandas")), "")


def _is_plain(series: Any) -> bool:
    """Return whether a Series has a NumPy dtype of numbers or text, which has no nulls."""
    kind: Any = getattr(series, "dtype", None)  # a DataFrame has no dtype
    return type(kind).__module__.startswith("numpy") and kind.kind in "biufSU"


def _plain(array: Any, name: str) -> list[Any]:
    """Return the values of an Arrow array as Python values, with times in microseconds.

    Raises:
        ArgumentValueError: Python cannot represent a time.
    """
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    kind = array.type
    exact = _in_micros(kind)
    if exact != kind:
        try:
            array = _cast(array, exact)
        except pa.ArrowInvalid as error:
            what = "durations" if pa.types.is_duration(kind) else "moments"
            what = "times of day" if pa.types.is_time64(kind) else what
            what = "moments, durations and times" if pa.types.is_nested(kind) else what
            raise ArgumentValueError(name, f"{what} in whole microseconds", str(error)) from None
    try:
        values: list[Any] = array.to_pylist()
    except OverflowError as error:
        in_utc = _in_micros(kind, in_utc=True)
        if in_utc != kind:  # the local time may be after the year 9999, but not the UTC time
            return _plain(array.cast(in_utc), name)
        raise ArgumentValueError(name, "moments of the years 1 to 9999", str(error)) from None
    return values


def _cast(array: Any, exact: Any) -> Any:
    """Return `array` as type `exact`; raise ArrowInvalid if a value would change."""
    try:
        return array.cast(exact)
    except pa.ArrowInvalid:  # perhaps for the bytes under a null, which Arrow checks too
        made = array.cast(exact, safe=False)
        if not made.cast(array.type, safe=False).equals(array):
            raise
        return made


def _in_micros(kind: Any, *, in_utc: bool = False) -> Any:
    """Return the Arrow type `kind` with microseconds as the unit of all times, at any depth.

    If `in_utc` is true, timestamps with a time zone get the zone UTC.
    """
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if in_utc and kind.tz else kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_time64(kind):
        return pa.time64("us")

    def exactly(field: Any) -> Any:
        return field.with_type(_in_micros(field.type, in_utc=in_utc))

    if pa.types.is_dictionary(kind):
        value_type = _in_micros(kind.value_type, in_utc=in_utc)
        return kind if value_type == kind.value_type else value_type
    for matches, make in _NESTED:
        if matches(kind):
            return make(kind, exactly)
    return kind


_NESTED: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_struct, lambda kind, made: pa.struct(map(made, kind))),
    (
        pa.types.is_map,
        lambda kind, made: pa.map_(made(kind.key_field), made(kind.item_field), kind.keys_sorted),
    ),
    (pa.types.is_list, lambda kind, made: pa.list_(made(kind.value_field))),
    (pa.types.is_large_list, lambda kind, made: pa.large_list(made(kind.value_field))),
    (
        pa.types.is_fixed_size_list,
        lambda kind, made: pa.list_(made(kind.value_field), kind.list_size),
    ),
)
"""For each kind of nested Arrow type: a test, and a function that rebuilds it."""


# ---------------------------------------------------------------- values that Arrow would change


def _is_zoned(value: Any) -> bool | None:
    """Return whether a datetime has a time zone, or None if `value` is null or NaT."""
    if not isinstance(value, datetime) or value != value:  # noqa: PLR0124 - only NaT differs
        return None
    return value.tzinfo is not None


_MIXTURES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool | None], str], ...] = (
    (pa.types.is_timestamp, _is_zoned, "datetimes with and without time zone"),
    (pa.types.is_date, lambda value: isinstance(value, datetime), "dates and datetimes"),
    (pa.types.is_binary, lambda value: isinstance(value, str), "texts and bytes"),
    (pa.types.is_floating, lambda value: isinstance(value, bool), "floats and bools"),
)
"""For each inferred Arrow type: a test that separates two kinds of values, and their names."""


_LOSSES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], bool], str], ...] = (
    (
        pa.types.is_timestamp,
        lambda value: getattr(value, "nanosecond", 0) > 0,  # for NaT, nanosecond is NaN
        "timestamps with nanoseconds; a column has microseconds",
    ),
    (
        pa.types.is_timestamp,
        lambda value: getattr(value, "year", 1) > MAXYEAR or getattr(value, "year", 1) < MINYEAR,
        "timestamps outside the years 1 to 9999",
    ),
    (
        pa.types.is_duration,
        lambda value: getattr(value, "nanoseconds", 0) > 0,
        "durations with nanoseconds; a column has microseconds",
    ),
    (
        pa.types.is_duration,
        lambda value: getattr(value, "unit", "us") in ("s", "ms"),
        "pandas durations in s or ms, which Arrow reads as 0: convert them by as_unit('us')",
    ),
    (
        pa.types.is_time,
        lambda value: getattr(value, "tzinfo", None) is not None,
        "times with a time zone; a column has none",
    ),
)
"""For each inferred Arrow type: a test for values that Arrow changes, and their description."""


def mixed_values(values: Iterable[Any], kind: pa.DataType) -> str:
    """Return a description of the values that Arrow changes in a column, or '' if there are none.

    Arrow changes values if it infers one type for values of several Python types:

    * A datetime in a column of dates loses its time of day.
    * In a column of datetimes with and without time zone, a naive datetime is taken as UTC, or an
      aware one is shifted by its offset.
    * A string in a column of bytes is encoded.
    * A bool in a column of floats becomes a float.

    Timestamps and durations of pandas lose their nanoseconds. Times of day lose their time zone.

    Args:
        values: the values of the column.
        kind: the type that Arrow has inferred for `values`.
    """
    if pa.types.is_struct(kind):
        return _mixed_in_dicts([value for value in values if isinstance(value, dict)], kind)
    if pa.types.is_list(kind):
        lists = [value for value in values if isinstance(value, Iterable)]
        if any(isinstance(each, AbstractSet) for each in lists):
            return "sets; a column has lists"
        return mixed_values(chain.from_iterable(map(_distinct_kinds, lists)), kind.value_type)
    losses = [each for each in _LOSSES if each[0](kind) and getattr(kind, "unit", "us") == "us"]
    values = list(values) if losses else values  # not if unneeded: arrays may be long
    for _, loses, words in losses:
        if any(map(loses, values)):
            return words
    for matches, is_first_kind, words in _MIXTURES:
        if matches(kind):
            return words if {True, False} <= set(map(is_first_kind, values)) else ""
    return ""


def _mixed_in_dicts(dicts: list[dict[str, Any]], kind: Any) -> str:
    if any(each.keys() != dicts[0].keys() for each in dicts):
        return "dicts with different keys, which a table would take for maps"
    fields = (mixed_values((each.get(field.name) for each in dicts), field.type) for field in kind)
    return next(filter(None, fields), "")


def _distinct_kinds(values: Iterable[Any]) -> Iterable[Any]:
    """Return `values`, but only the first one if a NumPy array stores them all with one type."""
    is_array = type(values).__module__ == "numpy" and getattr(values, "dtype", "object") != "object"
    return islice(values, 1) if is_array else values
