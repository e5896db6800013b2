"""The inputs of a local run: rows, keys, event times and frames, and the order of the rows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments import check_type, event_time_ms
from millpond.backend.bulk_keys import checked_key
from millpond.config import Config
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.functions.functions import OperatorFunction, ProcessFunction
from millpond.functions.row_conversion import as_row, row_names, selector
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.operators import RowFrame
from millpond.plugins import get_registry
from millpond.spi.keys import CurrentKey
from millpond.types import (
    VOID_NAMESPACE,
    DeclaredKeyType,
    SerializerSnapshot,
    VoidNamespace,
    infer_key_type,
    key_codec_for,
)
from millpond.types.column_input import arrow_column, mixed_values
from millpond.types.infer import row_key_codec
from millpond.types.key_codecs import KeyCodec, TupleKeyCodec
from millpond.types.key_columns import codec_without_class, key_column
from millpond.types.rows import row_type

T = TypeVar("T")

KeyOfRow = str | Sequence[str] | Callable[[Any], Any]
"""A field's name, the names of several fields, or a function of the row."""


def key_selector(function: OperatorFunction, key: KeyOfRow | None) -> Callable[[Any], Any]:
    """Return the function that reads the key of a row; it is constant for a function without keys.

    Raises:
        ArgumentTypeError: a keyed function has no key.
        ArgumentValueError: a function without keys has one.
    """
    name = type(function).__name__
    if not isinstance(function, ProcessFunction):
        if key is None:
            what = "a field's name, a list of them, or a function of the row"
            expected = f"{what}, for {name} is a keyed function"
            raise ArgumentTypeError("key", expected, "None")
        return key_reader(key, "key")
    if key is not None:
        raise ArgumentValueError("key", f"none, for {name} is a function without keys", brief(key))
    return lambda _: VOID_NAMESPACE


def key_reader(key: KeyOfRow, what: str) -> Callable[[Any], Any]:
    """Return the function that reads the key of a row; a key of several fields is a row.

    Args:
        key: one or more fields, or the function itself.
        what: the argument's name, for errors.

    Raises:
        ArgumentTypeError: it is neither.
        ArgumentValueError: it names no field, or one twice.
    """
    if isinstance(key, str) or callable(key):
        return selector(key, what)
    check_type(what, key, KeyOfRow)
    for name in key:
        check_type(what, name, str)
    if not key or len(set(key)) < len(key):
        raise ArgumentValueError(what, "at least one field's name, each once", brief(key))
    readers = [selector(name, what) for name in key]
    if len(readers) == 1:
        return readers[0]
    make = row_type(key)
    return lambda row: make(*[read(row) for read in readers])


def declared_key_type(
    function: OperatorFunction, key: KeyOfRow | None, declared: T, config: Config | None
) -> T | KeyCodec | type[VoidNamespace]:
    """Return the type of a function's keys; a key of several fields is a row, as on Spark.

    Raises:
        ArgumentValueError: the type is not a tuple of as many parts as the key has fields.
    """
    if isinstance(function, ProcessFunction):
        return VoidNamespace
    if declared is None or key is None or isinstance(key, str) or callable(key) or len(key) == 1:
        return declared
    codec = key_codec_for(declared, get_registry((config or Config()).plugins).serializer)
    if not isinstance(codec, TupleKeyCodec) or len(codec.parts) != len(key):
        expected = f"a tuple of the types of {', '.join(key)}, as tuple[str, int]"
        raise ArgumentValueError("key_type", expected, brief(declared))
    return codec if codec.names else row_key_codec(codec.parts, key)


# ---------------------------------------------------------------- inputs

Keyed = tuple[Any, Any, int | None, str]
"""A key, its row, the row's event time in ms, and the method that processes the row."""


@attrs.frozen
class Input:
    """An input of a local run.

    Attributes:
        rows: the rows, or batches of them.
        key: returns the key of a row.
        event_time: returns the event time of a row.
        method: the function's method that processes the rows.
        is_timed: whether the rows have event times.
    """

    rows: Iterable[Any]
    key: Callable[[Any], Any]
    event_time: Callable[[Any], int | None]
    method: str
    is_timed: bool

    def keyed(self, highest: dict[str, int]) -> Iterator[Keyed]:
        """Yield the rows with their keys; then stop holding the watermark back."""
        for row in map(as_row, self.rows):
            yield self.key(row), row, self.event_time(row), self.method
        highest.pop(self.method, None)


def time_reader(
    field: str | Callable[[Any], Any] | None, argument: str
) -> Callable[[Any], int | None]:
    """Return the function that reads a row's event time in ms; without a field it returns None."""
    if field is None:
        return lambda _: None
    read = selector(field, argument)
    return lambda row: event_time_ms(argument, read(row))


def merge_inputs(inputs: Sequence[Input], highest: dict[str, int]) -> Iterator[Keyed]:
    """Yield the rows of all inputs, by event time if all inputs have one, else input by input."""
    keyed = [each.keyed(highest) for each in inputs]
    if not all(each.is_timed for each in inputs):
        return chain.from_iterable(keyed)
    return heapq.merge(*keyed, key=lambda row: MIN_TIMESTAMP if row[2] is None else row[2])


def inferred_key_type(
    inputs: Sequence[Input], stored: SerializerSnapshot | None
) -> tuple[DeclaredKeyType[Any], list[Input]]:
    """Infer the type of the keys from the first row, or without rows from the stored keys.

    Returns:
        The type, and the inputs with all of their rows.

    Raises:
        ArgumentTypeError: there is no row, and the stored keys are of a class.
    """
    found = list(inputs)
    for at, each in enumerate(found):
        rows = iter(each.rows)
        first = list(islice(rows, 1))
        found[at] = attrs.evolve(each, rows=chain(first, rows))
        if first:
            return infer_key_type(each.key(_first_row(first[0]))), found
    if stored is None:
        return str, found  # there are no keys, so any type fits
    codec = codec_without_class(stored)
    if codec is None:
        expected = f"the type of the stored keys ({stored}), as there is no row to infer it from"
        raise ArgumentTypeError("key_type", expected, "None")
    return codec, found


def _first_row(given: Any) -> Any:
    """Return a row in the form that functions get, from a row or a batch of rows."""
    table = table_of(given)
    if table is None:
        return as_row(given)
    if not table.num_rows:  # batches that this module makes have rows
        raise ArgumentTypeError("rows", "rows, or one table of them", "an empty table among rows")
    return next(iter(rows_of_table(table.slice(0, 1))))


# ---------------------------------------------------------------- frames

FRAME_ROWS = 10_000
"""The default number of rows in a frame of a local run."""


def record_batches(rows: Any, size: int = FRAME_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield a caller's rows as batches.

    Args:
        rows: a RecordBatch, a Table or a DataFrame; or dicts, named tuples, attrs or dataclass
            instances, all with the same names. Arrow infers the types of their columns.
        size: the maximum number of rows in a batch.

    Raises:
        ArgumentTypeError: a row has no names or other ones, or the values of a column do not fit
            together.
    """
    table = table_of(rows)
    if table is None:
        table = _table_of_rows(list(map(_named, _check_several(rows))))
    table = _sortable(table)
    for start in range(0, table.num_rows, size):
        yield from table.slice(start, size).combine_chunks().to_batches()


def _table_of_rows(rows: list[dict[str, Any]]) -> pa.Table:
    if not rows:
        return pa.table({})
    names = list(rows[0])
    for row in rows:
        if row.keys() != set(names):
            raise ArgumentTypeError("rows", f"rows of the columns {', '.join(names)}", brief(row))
    try:
        table = pa.Table.from_pylist(rows).select(names)
        kinds = {field.name: field.type for field in table.schema}
        mixed = {name: mixed_values((row[name] for row in rows), kinds[name]) for name in names}
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        mixed = {"": str(error)}
    faults = [f"{name}: {fault}".removeprefix(": ") for name, fault in mixed.items() if fault]
    if faults:
        reason = f"rows whose values make columns of one type each ({faults[0]})"
        raise ArgumentTypeError("rows", reason, brief(rows[0]))
    return table


def iterate_rows(rows: Any, parameter: str = "rows") -> Iterable[Any]:
    """Return a caller's rows as an iterable; the rows of a table have names.

    Raises:
        ArgumentTypeError: the argument is not iterable, or is a single row.
    """
    table = table_of(rows)
    return _check_several(rows, parameter) if table is None else rows_of_table(table)


def _check_several(rows: Any, parameter: str = "rows") -> Iterable[Any]:
    """Return rows; ArgumentTypeError for a single dict, whose keys would be taken for rows."""
    check_type(parameter, rows, Iterable)
    if isinstance(rows, Mapping):
        raise ArgumentTypeError(parameter, "several rows, as a list of dicts", brief(rows))
    return rows  # type: ignore[no-any-return]  # checked above


def _sortable(table: pa.Table) -> pa.Table:
    """Return a table whose rows Arrow can reorder, with views and runs as plain values.

    Raises:
        ArgumentTypeError: Arrow cannot reorder a column, such as one of lists of views.
    """
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    for at, field in enumerate(table.schema):
        column: Any = table.column(at)
        try:
            if pa.types.is_run_end_encoded(field.type):
                column = pc.run_end_decode(column)
            if column.type in plain:
                column = column.cast(plain[column.type])
            column.slice(0, 0).take(pa.array([], pa.int64()))
        except pa.ArrowNotImplementedError:
            expected = "a type whose rows Arrow can put into the order of keys: cast it"
            raise ArgumentTypeError(f"column {field.name!r}", expected, str(field.type)) from None
        table = table.set_column(at, field.with_type(column.type), column)
    return table


def _named(row: Any) -> dict[str, Any]:
    names = row_names(row)
    if names is None:
        raise ArgumentTypeError("rows", "rows with names, a Table or a DataFrame", brief(row))
    return dict(zip(names, as_row(row), strict=True))


def row_frame(
    current: CurrentKey,
    rows: pa.RecordBatch,
    select: Callable[[Any], Any],
    times: Callable[[Any], Any] | Sequence[int | None] | None = None,
) -> RowFrame:
    """Return a batch as a frame: its rows sorted by key group and key, stable for each key.

    Args:
        current: the current key of the backend.
        rows: the rows.
        select: returns the key of a row.
        times: the event time of each row in ms, or a function that returns it; None without times.
    """
    plain = list(rows_of_table(pa.Table.from_batches([rows])))
    pairs = [checked_key(current, select(row)) for row in plain]
    for key, group in pairs:
        if group not in current.group_prefixes:
            current.select(key, group)  # raises the error that names both
    codec, layout = current.codec, current.layout
    addresses = [layout.group_prefix(group) + codec.encode(key) for key, group in pairs]
    order = sorted(range(len(pairs)), key=addresses.__getitem__)
    starts = [
        at for at, row in enumerate(order) if not at or addresses[row] != addresses[order[at - 1]]
    ]
    keys = [pairs[order[at]][0] for at in starts]
    moments = list(map(times, plain)) if callable(times) else times
    stamps = None if moments is None else _time_column([moments[at] for at in order])
    return RowFrame(
        rows.take(pa.array(order, pa.int64())),
        keys,
        [pairs[order[at]][1] for at in starts],
        starts,
        _key_column(current, keys),
        stamps,
    )


def _time_column(moments: list[Any]) -> Any:
    return pa.array([event_time_ms("event_time", moment) for moment in moments], pa.int64())


def _key_column(current: CurrentKey, keys: list[Any]) -> Any:
    """Return keys in the form that functions get."""
    snapshot = current.codec.snapshot()
    scalar = snapshot.id in ("int", "float", "bool", "str", "bytes", "date", "datetime")
    return arrow_column(keys, key_column(snapshot).arrow_type) if scalar else keys
