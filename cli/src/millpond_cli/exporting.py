"""Tables as files of other programs, by the file's ending."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from millpond.errors import PlaceError

from millpond_cli.new_files import open_new
from millpond_cli.output import dumps

__all__ = ["ENDINGS", "write_file"]

_FORMULA = "^[=+@\\t\\r-]"
"""The beginning of a text that spreadsheets run."""


def write_file(table: pa.Table, target: Path, *, escape_formulas: bool = False) -> None:
    """Write a table to a new file, in the format that the file's ending names.

    Args:
        table: the table.
        target: the file.
        escape_formulas: whether texts that a spreadsheet would run get an apostrophe before them.

    Raises:
        PlaceError: the file is there already, or cannot be written.
    """
    try:
        with open_new(target) as file:
            _WRITERS[target.suffix](_escaped(table) if escape_formulas else table, file)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlaceError(str(target), f"it cannot be written: {reason}") from error


def _escaped(table: pa.Table) -> pa.Table:
    """Put an apostrophe before each text that a spreadsheet would take for a formula."""
    for at, field in enumerate(table.schema):
        column = _textual(table.column(at))
        if pa.types.is_string(column.type):
            is_formula = pc.match_substring_regex(column, _FORMULA)
            quoted = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(at, field.name, pc.if_else(is_formula, quoted, column))
    return table


def _write_csv(table: pa.Table, target: BinaryIO) -> None:
    """Write nested columns and bytes, which CSV has no form for, as JSON and base64."""
    columns = [_textual(column) for column in table.columns]
    pyarrow.csv.write_csv(pa.table(columns, names=table.column_names), target)


def _textual(column: Any) -> Any:
    """Return a column as CSV can have it."""
    if not pa.types.is_nested(column.type) and not pa.types.is_binary(column.type):
        return column
    texts = [None if value is None else _text(value) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _text(value: object) -> str:
    text = dumps(value)
    return text.strip('"') if isinstance(value, bytes) else text


def _write_arrow(table: pa.Table, target: BinaryIO) -> None:
    with pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)


_WRITERS: dict[str, Callable[[pa.Table, BinaryIO], None]] = {
    ".parquet": pq.write_table,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
}
ENDINGS = tuple(sorted(_WRITERS))
