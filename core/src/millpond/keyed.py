"""``millpond.keyed``: short forms of keyed functions, for ``mp.local.run`` and the harness.

On Spark the short forms are methods of ``key_by(…)``. Each turns a plain function, or an object
with ``open`` and ``close``, into a keyed function. Names are PyFlink's; the names with ``Rich``,
known from Flink's Java API, are aliases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Generic, TypeAlias, Union, get_args, get_origin

from typing_extensions import TypeVar, override

from millpond.arguments import check_type, nearest, unstarted_kind
from millpond.errors import ArgumentTypeError, ConfigError, NullValueError, brief
from millpond.functions.functions import (
    Context,
    KeyedProcessFunction,
    RuntimeContext,
    current_key_of,
)
from millpond.functions.row_conversion import field_reader, row_converter, row_fields, with_field
from millpond.functions.user_code import call_without_rows, result_error, rows_of
from millpond.state import ValueStateDescriptor
from millpond.state.reduce_functions import sum as exact_sum
from millpond.types import DeclaredType

IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)


class _Opened:
    """The base class of function objects; subclasses may override ``open`` and ``close``."""

    def open(self, context: RuntimeContext) -> None:
        """Prepare the function, and get states; called once per subtask, before the first row."""

    def close(self) -> None:
        """Release the resources of ``open``; called after the last row, also after a failure."""


class MapFunction(_Opened, ABC, Generic[IN, OUT]):
    """A function object for ``map``: it turns each row into one output row."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the output row for a row."""


class FlatMapFunction(_Opened, ABC, Generic[IN, OUT]):
    """A function object for ``flat_map``: it turns each row into any number of output rows."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT]:
        """Yield the output rows for a row, or return a list of them."""


class FilterFunction(_Opened, ABC, Generic[IN]):
    """A function object for ``filter``: it selects rows."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Return true to pass ``value`` on, false to drop it."""


class ReduceFunction(_Opened, ABC, Generic[IN]):
    """A function object for ``reduce``: it combines two rows of a key."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """Return the combination of ``value1``, the result so far, and ``value2``, the next row."""


RichMapFunction = MapFunction
RichFlatMapFunction = FlatMapFunction
RichFilterFunction = FilterFunction
RichReduceFunction = ReduceFunction

Mapping: TypeAlias = MapFunction[IN, OUT] | Callable[[IN], OUT]
FlatMapping: TypeAlias = FlatMapFunction[IN, OUT] | Callable[[IN], Iterable[OUT]]
Filtering: TypeAlias = FilterFunction[IN] | Callable[[IN], bool]
Reducing: TypeAlias = ReduceFunction[IN] | Callable[[IN, IN], IN]


class _ShortForm(KeyedProcessFunction):
    """A keyed function that calls a plain function, or the method of a function object.

    Args:
        function: the plain function, or an object of ``kind``.
        kind: the class of function objects, such as MapFunction.
        method: the method of ``kind`` to call for each row.
    """

    def __init__(self, function: Any, kind: type[_Opened], method: str) -> None:
        check_type("function", function, kind | Callable)
        if isinstance(function, type) and issubclass(function, kind):
            raise ArgumentTypeError("function", f"an instance of {kind.__name__}", brief(function))
        self._life = function if isinstance(function, kind) else None
        self._call = getattr(function, method) if isinstance(function, kind) else function

    @override
    def open(self, context: RuntimeContext) -> None:
        if self._life is not None:
            call_without_rows(self._life.open, context)

    @override
    def close(self) -> None:
        if self._life is not None:
            call_without_rows(self._life.close)


class _Map(_ShortForm):
    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any]:
        made = self._call(row)
        if unstarted_kind(made):
            raise result_error(self._call, made, "one row")
        yield made


class _FlatMap(_ShortForm):
    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any] | None:
        result = self._call(row)
        return None if result is None else rows_of(self._call, result)


class _Filter(_ShortForm):
    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any]:
        passes = self._call(row)
        if unstarted_kind(passes):
            raise result_error(self._call, passes, "whether the row passes")
        if passes:
            yield row


class _Reduce(_ShortForm):
    def __init__(self, function: Any, row_type: DeclaredType[Any]) -> None:
        super().__init__(function, ReduceFunction, "reduce")
        self._descriptor = ValueStateDescriptor("reduced", row_type)
        self._descriptor.value_serializer()  # raises now if the type cannot be stored
        self._made = row_converter(row_type)

    @override
    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        self._reduced = context.get_state(self._descriptor)
        self._current = current_key_of(context)

    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any]:
        held, mine = self._reduced.value(), self._made(row)
        current = self._current
        key, group = current.key_or_none, current.key_group
        reduced = mine if held is None else self._call(held, mine)
        if current.key_or_none is not key:  # the function selected another key by a state's ``at``
            current.return_to(key, group)
        if reduced is None:
            raise NullValueError("the result of the reduce function")
        self._reduced.update(reduced)
        yield self._reduced.value()


def map(function: Mapping[IN, OUT]) -> KeyedProcessFunction[Any, IN, OUT]:  # noqa: A001 - PyFlink's name
    """Return a keyed function that turns each row into one output row."""
    return _Map(function, MapFunction, "map")


def flat_map(function: FlatMapping[IN, OUT]) -> KeyedProcessFunction[Any, IN, OUT]:
    """Return a keyed function that turns each row into any number of output rows."""
    return _FlatMap(function, FlatMapFunction, "flat_map")


def filter(function: Filtering[IN]) -> KeyedProcessFunction[Any, IN, IN]:  # noqa: A001 - PyFlink's name
    """Return a keyed function that passes on the rows for which a function is true."""
    return _Filter(function, FilterFunction, "filter")


def reduce(function: Reducing[IN], row_type: DeclaredType[IN]) -> KeyedProcessFunction[Any, IN, IN]:
    """Return a keyed function that combines the rows of a key into one row.

    It yields the combined row after each row.

    Args:
        function: ``f(a, b)`` combines ``a``, the result so far, with ``b``, the next row.
        row_type: the type of the rows: DDL, a StructType, or any type that state can have. For a
            class with fields, a NamedTuple or a TypedDict, rows are converted to instances by the
            names of the fields; fields that the constructor does not take may be missing. ``X |
            None`` means ``X``.

    Raises:
        ConfigError: rows of that type cannot be stored.
    """
    return _Reduce(function, row_type)


def sum(field: str, row_type: DeclaredType[Any]) -> KeyedProcessFunction:  # noqa: A001 - PyFlink's name
    """Return a keyed function that sums a field over the rows of a key.

    After each row, it yields the key's first row with the sum so far in the field. The field is a
    number or a duration; sums of decimals are exact. Nulls are ignored.

    Raises:
        ConfigError: rows of ``row_type`` cannot be stored, or have no such field, or the field is
            neither a number nor a duration.
    """
    kind = _field_type(field, row_type)
    is_union = get_origin(kind) in (Union, UnionType)
    if kind is not None and not set(get_args(kind) if is_union else (kind,)) <= _SUMMABLE:
        reason = f"{brief(field)} is neither a number nor a duration, so it has no sum"
        raise ConfigError("field", reason, "short form")
    return _of_field(exact_sum, field, row_type)


_SUMMABLE = {int, float, Decimal, timedelta, NoneType}


def min(field: str, row_type: DeclaredType[Any]) -> KeyedProcessFunction:  # noqa: A001 - PyFlink's name
    """Return a keyed function that computes the minimum of a field over the rows of a key.

    After each row, it yields the key's first row with the minimum so far in the field. Nulls are
    ignored. NaN is greater than any number, as in Flink and Spark.

    Raises:
        ConfigError: rows of ``row_type`` cannot be stored, or have no such field.
    """
    return _of_field(lambda old, new: new if _is_less(new, old) else old, field, row_type)


def max(field: str, row_type: DeclaredType[Any]) -> KeyedProcessFunction:  # noqa: A001 - PyFlink's name
    """Return a keyed function that computes the maximum of a field over the rows of a key.

    After each row, it yields the key's first row with the maximum so far in the field. Nulls are
    ignored. NaN is greater than any number, as in Flink and Spark.

    Raises:
        ConfigError: rows of ``row_type`` cannot be stored, or have no such field.
    """
    return _of_field(lambda old, new: new if _is_less(old, new) else old, field, row_type)


def min_by(field: str, row_type: DeclaredType[Any]) -> KeyedProcessFunction:
    """Return a keyed function that yields, after each row, the key's row with the lowest field.

    If several rows have the lowest value, the function yields the first of these rows. It yields a
    row whose field is null only until a row with a value comes. NaN is greater than any number.

    Raises:
        ConfigError: rows of ``row_type`` cannot be stored, or have no such field.
    """
    return _by_field(_is_less, field, row_type)


def max_by(field: str, row_type: DeclaredType[Any]) -> KeyedProcessFunction:
    """Return a keyed function that yields, after each row, the key's row with the highest field.

    If several rows have the highest value, the function yields the first of these rows. It yields a
    row whose field is null only until a row with a value comes. NaN is greater than any number.

    Raises:
        ConfigError: rows of ``row_type`` cannot be stored, or have no such field.
    """
    return _by_field(lambda new, old: _is_less(old, new), field, row_type)


def _is_less(a: Any, b: Any) -> bool:
    """Return whether ``a`` is less than ``b``. NaN counts as greater than any number."""
    # Only NaN differs from itself.
    return bool(a == a and (b != b or a < b))  # noqa: PLR0124


def _field_type(field: str, row_type: DeclaredType[Any]) -> Any:
    """Return the type of ``field`` in ``row_type``; None if ``row_type`` does not define fields.

    Raises:
        ConfigError: ``row_type`` defines fields, but not this one.
    """
    check_type("field", field, str)
    fields = row_fields(row_type)
    if fields is None:
        return None
    if field not in fields:
        reason = f"there is no such column; there are: {', '.join(fields)}"
        raise ConfigError("field", reason, "short form", suggestion=nearest(field, fields))
    return fields[field]


def _of_field(
    combine: Callable[[Any, Any], Any], field: str, row_type: DeclaredType[Any]
) -> KeyedProcessFunction:
    """Return a keyed function that keeps a key's first row, and updates one field with each row.

    ``combine`` gets the values of the field in the kept row and in the next row, and returns the
    field's new value.
    """

    def merge(held: Any, _: Any, old: Any, new: Any) -> Any:
        return with_field(held, field, new if old is None else combine(old, new))

    return _reduced_by(merge, field, row_type)


def _by_field(
    better: Callable[[Any, Any], bool], field: str, row_type: DeclaredType[Any]
) -> KeyedProcessFunction:
    """Return a keyed function that keeps the row with the best value of a field.

    ``better(new, old)`` returns whether the next row's value is better than the kept row's value.
    """

    def choose(held: Any, row: Any, old: Any, new: Any) -> Any:
        return row if old is None or better(new, old) else held

    return _reduced_by(choose, field, row_type)


def _reduced_by(
    step: Callable[[Any, Any, Any, Any], Any], field: str, row_type: DeclaredType[Any]
) -> KeyedProcessFunction:
    """Return a keyed function that reduces rows by a field, and ignores rows whose field is null.

    ``step(kept, row, old, new)`` returns the row to keep. ``old`` is the value of the field in the
    kept row, ``new`` the value in the next row.
    """
    _field_type(field, row_type)
    select = field_reader(row_type, field)

    def reduced(held: Any, row: Any) -> Any:
        new = select(row)
        return held if new is None else step(held, row, select(held), new)

    return _Reduce(reduced, row_type)
