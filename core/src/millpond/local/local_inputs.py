"""The rows of local runs: their keys, and their form as rows or as batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from millpond.arguments import check_type, event_time_ms
from millpond.backend.bulk_keys import checked_key
from millpond.config import Config
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.functions.functions import KeylessFunction, OperatorFunction
from millpond.functions.row_conversion import as_row, row_names, selector
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.operators import RowFrame
from millpond.plugins import get_registry
from millpond.spi.keys import CurrentKey
from millpond.types import (
    VOID_NAMESPACE,
    VoidNamespace,
    key_codec_for,
)
from millpond.types.column_input import arrow_column, mixed_values
from millpond.types.key_codecs import KeyCodec, TupleKeyCodec
from millpond.types.key_columns import key_column
from millpond.types.rows import row_type
from millpond.types.serializer_lookup import row_key_codec

T = TypeVar("T")

KeyOfRow = str | Sequence[str] | Callable[[Any], Any]
"""A field's name, the names of several fields, or a function that takes a row and returns a key."""


def key_selector(function: OperatorFunction, key: KeyOfRow | None) -> Callable[[Any], Any]:
    """Return a function that takes a row and returns its key.

    A ProcessFunction or an AsyncFunction has no keys. For such a function, all rows get one special
    object as key.

    Raises:
        ArgumentTypeError: ``function`` is keyed, and ``key`` is None.
        ArgumentValueError: ``function`` has no keys, and ``key`` is not None.
    """
    name = type(function).__name__
    if not isinstance(function, KeylessFunction):
        if key is None:
            what = "a field's name, a list of them, or a function of the row"
            expected = f"{what}, for {name} is a keyed function"
            raise ArgumentTypeError("key", expected, "None")
        return key_reader(key, "key")
    if key is not None:
        raise ArgumentValueError("key", f"none, for {name} is a function without keys", brief(key))
    return lambda _: VOID_NAMESPACE


def second_key_reader(key: KeyOfRow | None, second: KeyOfRow) -> Callable[[Any], Any]:
    """Return a function that takes a row of the second input and returns its key.

    A key of several fields has the names of the first input's fields, as on Spark.

    Args:
        key: the key of the first input.
        second: the key of the second input.

    Raises:
        ArgumentTypeError, ArgumentValueError: as ``key_reader``.
    """
    return key_reader(second, "second_key", _several_names(key))


def _several_names(key: KeyOfRow | None) -> Sequence[str]:
    """Return the names of the key's fields if it has several fields; else no names."""
    if key is None or isinstance(key, str) or callable(key) or len(key) == 1:
        return ()
    return key


def key_reader(key: KeyOfRow, what: str, fields: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Return a function that takes a row and returns the row's key.

    Args:
        key: the name of the key field; or several names, for which the key is a row of these
            fields; or a function, which is returned unchanged.
        what: the argument's name, for errors.
        fields: the names of the fields in a key of several fields; by default those in ``key``.

    Raises:
        ArgumentTypeError: ``key`` has another type.
        ArgumentValueError: ``key`` names no field, or a field twice, or not as many as ``fields``.
    """
    if isinstance(key, str) or callable(key):
        return selector(key, what)
    check_type(what, key, KeyOfRow)
    for name in key:
        check_type(what, name, str)
    if not key or len(set(key)) < len(key):
        raise ArgumentValueError(what, "at least one field's name, each once", brief(key))
    if fields and len(key) != len(fields):
        raise ArgumentValueError(what, f"as many names as key has: {len(fields)}", brief(key))
    readers = [selector(name, what) for name in key]
    if len(readers) == 1:
        return readers[0]
    make = row_type(fields or key)
    return lambda row: make(*[read(row) for read in readers])


def declared_key_type(
    function: OperatorFunction, key: KeyOfRow | None, declared: T, config: Config | None
) -> T | KeyCodec | type[VoidNamespace]:
    """Return the type of the keys of ``function``; None if the type must be inferred.

    A key of several fields is a row, as on Spark.

    Args:
        function: the function. A ProcessFunction or AsyncFunction has no keys.
        key: the fields of the key, or a function of the row.
        declared: the type that the caller declared, or None.
        config: names the plugins that may provide types.

    Raises:
        ArgumentValueError: the key has several fields, and ``declared`` is not a tuple of as many
            types.
    """
    if isinstance(function, KeylessFunction):
        return VoidNamespace
    fields = _several_names(key)
    if declared is None or not fields:
        return declared
    codec = key_codec_for(declared, get_registry((config or Config()).plugins).serializer)
    if not isinstance(codec, TupleKeyCodec) or len(codec.parts) != len(fields):
        expected = f"a tuple of the types of {', '.join(fields)}, as tuple[str, int]"
        raise ArgumentValueError("key_type", expected, brief(declared))
    return codec if codec.names else row_key_codec(codec.parts, fields)


# ---------------------------------------------------------------- frames

FRAME_ROWS = 10_000
"""The default number of rows in a frame of a local run."""


def record_batches(rows: Any, size: int = FRAME_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield a caller's rows as batches of at most ``size`` rows.

    Args:
        rows: a RecordBatch, a Table or a DataFrame; or dicts, named tuples, attrs or dataclass
            instances, all with the same names. Arrow infers the types of their columns.
        size: the maximum number of rows in a batch.

    Raises:
        ArgumentTypeError: a row has no names, or other names than the first row; or the values of
            a column have no common type.
    """
    table = table_of(rows)
    if table is None:
        table = _table_of_rows(list(map(_named, _check_several(rows))))
    for start in range(0, table.num_rows, size):
        yield from table.slice(start, size).combine_chunks().to_batches()


def _table_of_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Return dicts as a table.

    Raises:
        ArgumentTypeError: the dicts have different keys, or a column's values no common type.
    """
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
    """Return ``rows`` as an iterable of rows; a table becomes rows with names.

    Raises:
        ArgumentTypeError: ``rows`` is not iterable, or is a single row. The error names
            ``parameter``.
    """
    table = table_of(rows)
    return _check_several(rows, parameter) if table is None else rows_of_table(table)


def _check_several(rows: Any, parameter: str = "rows") -> Iterable[Any]:
    """Return ``rows``; raise ArgumentTypeError for a dict, because its keys would count as rows."""
    check_type(parameter, rows, Iterable)
    if isinstance(rows, Mapping):
        raise ArgumentTypeError(parameter, "several rows, as a list of dicts", brief(rows))
    return rows  # type: ignore[no-any-return]  # checked above


def _named(row: Any) -> dict[str, Any]:
    """Return ``row`` as a dict; raise ArgumentTypeError if the row has no names."""
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
    """Return ``rows`` as a frame, i.e. sorted by key group and key.

    Args:
        current: the object that holds the backend's current key. It computes the key groups.
        rows: the rows. The rows of a key keep their order.
        select: takes a row and returns its key.
        times: the event time of each row in ms, or a function that takes a row and returns its
            event time; None if the rows have no event times.
    """
    plain = list(rows_of_table(pa.Table.from_batches([rows])))
    pairs = [checked_key(current, select(row)) for row in plain]
    for key, group in pairs:
        if group not in current.group_prefixes:
            current.select(key, group)  # raises KeyGroupRangeError
    codec, layout = current.codec, current.layout
    addresses = [layout.group_prefix(group) + codec.encode(key) for key, group in pairs]
    order = sorted(range(len(pairs)), key=addresses.__getitem__)
    starts = [
        at for at, row in enumerate(order) if not at or addresses[row] != addresses[order[at - 1]]
    ]
    keys = [pairs[order[at]][0] for at in starts]
    moments: Any = list(map(times, plain)) if callable(times) else times
    if moments is not None:
        moments = pa.array([event_time_ms("event_time", moments[at]) for at in order], pa.int64())
    scalar = codec.snapshot().id in ("int", "float", "bool", "str", "bytes", "date", "datetime")
    return RowFrame(
        rows.take(pa.array(order, pa.int64())),
        keys,
        [pairs[order[at]][1] for at in starts],
        starts,
        arrow_column(keys, key_column(codec.snapshot()).arrow_type) if scalar else keys,
        moments,
    )
