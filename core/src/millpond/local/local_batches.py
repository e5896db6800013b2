"""Frames of rows without Spark: grouped by key as a worker groups them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments import check_type, event_time_ms
from millpond.backend.bulk_keys import checked_key
from millpond.errors import ArgumentTypeError, brief
from millpond.functions.row_conversion import as_row, names_of
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.operators import RowFrame
from millpond.spi.keys import CurrentKey
from millpond.types.column_input import arrow_column, mixture
from millpond.types.key_columns import key_column

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
        table = _table_of_rows(list(map(_named, _several(rows))))
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
        mixed = {name: mixture((row[name] for row in rows), kinds[name]) for name in names}
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        mixed = {"": str(error)}
    faults = [f"{name}: {fault}".removeprefix(": ") for name, fault in mixed.items() if fault]
    if faults:
        reason = f"rows whose values make columns of one type each ({faults[0]})"
        raise ArgumentTypeError("rows", reason, brief(rows[0]))
    return table


def each_row(rows: Any, parameter: str = "rows") -> Iterable[Any]:
    """Rows of a caller's one by one, as they are; those of a table have names.

    Raises:
        ArgumentTypeError: they are no rows, or a single one.
    """
    table = table_of(rows)
    return _several(rows, parameter) if table is None else rows_of_table(table)


def _several(rows: Any, parameter: str = "rows") -> Iterable[Any]:
    """Rows that are given one after the other; a single dict would pass for its keys."""
    check_type(parameter, rows, Iterable)
    if isinstance(rows, Mapping):
        raise ArgumentTypeError(parameter, "several rows, as a list of dicts", brief(rows))
    return rows  # type: ignore[no-any-return]  # checked above


def _sortable(table: pa.Table) -> pa.Table:
    """A table of columns that Arrow can put into another order, by key.

    Raises:
        ArgumentTypeError: it cannot, as of a list of a view, nor unpack the column before.
    """
    for at, field in enumerate(table.schema):
        column = table.column(at)
        try:
            column.slice(0, 0).take(pa.array([], pa.int64()))
        except pa.ArrowNotImplementedError:
            unpacked = _unpacked(column, field)
            table = table.set_column(at, field.with_type(unpacked.type), unpacked)
    return table


def _unpacked(column: Any, field: pa.Field) -> Any:
    """A column of views or of runs as one of the values themselves."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    try:
        if pa.types.is_run_end_encoded(field.type):
            column = pc.run_end_decode(column)
        if column.type in plain:
            return column.cast(plain[column.type])
        if column.type != field.type:
            return column
    except pa.ArrowNotImplementedError:
        pass
    expected = "a type whose rows Arrow can put into the order of keys: cast it"
    raise ArgumentTypeError(f"column {field.name!r}", expected, str(field.type))


def _named(row: Any) -> dict[str, Any]:
    names = names_of(row)
    if names is None:
        raise ArgumentTypeError("rows", "rows with names, a Table or a DataFrame", brief(row))
    return dict(zip(names, as_row(row), strict=True))


def frame_of(
    current: CurrentKey,
    rows: pa.RecordBatch,
    select: Callable[[Any], Any],
    times: Callable[[Any], Any] | Sequence[int | None] | None = None,
) -> RowFrame:
    """A batch as a frame: its rows sorted by key group and key, each key's in their order.

    Args:
        current: of the backend.
        rows: the rows.
        select: what takes the key out of a row.
        times: the event time of each row in ms, or what takes it out of a row; None for none.
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
    stamps = None if moments is None else _times([moments[at] for at in order])
    return RowFrame(
        rows.take(pa.array(order, pa.int64())),
        keys,
        [pairs[order[at]][1] for at in starts],
        starts,
        _column(current, keys),
        stamps,
    )


def _times(moments: list[Any]) -> Any:
    return pa.array([event_time_ms("event_time", moment) for moment in moments], pa.int64())


def _column(current: CurrentKey, keys: list[Any]) -> Any:
    """Keys as functions see them."""
    snapshot = current.codec.snapshot()
    scalar = snapshot.id in ("int", "float", "bool", "str", "bytes", "date", "datetime")
    return arrow_column(keys, key_column(snapshot).arrow_type) if scalar else keys
