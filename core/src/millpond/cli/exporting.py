"""Tables as files of other programs, by the file's ending."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from millpond.cli.output import dumps
from millpond.errors import PlaceError

__all__ = ["ENDINGS", "write_file"]


def write_file(table: pa.Table, target: Path) -> None:
    """Write a table in the format that the file's ending names.

    Raises:
        PlaceError: the file cannot be written.
    """
    if target.exists() and not target.is_file():
        raise PlaceError(str(target), "it exists and is not a regular file")
    try:
        _WRITERS[target.suffix](table, target)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlaceError(str(target), f"it cannot be written: {reason}") from error


def _write_csv(table: pa.Table, target: Path) -> None:
    """Nested columns and bytes, which CSV has no form for, as JSON and base64."""
    odd = [f.name for f in table.schema if pa.types.is_nested(f.type) or pa.types.is_binary(f.type)]
    for column in odd:
        values = table.column(column).to_pylist()
        texts = [None if value is None else _text(value) for value in values]
        at = table.schema.get_field_index(column)
        table = table.set_column(at, column, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(table, target)


def _text(value: object) -> str:
    text = dumps(value)
    return text.strip('"') if isinstance(value, bytes) else text


def _write_arrow(table: pa.Table, target: Path) -> None:
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": pq.write_table,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
}
ENDINGS = tuple(sorted(_WRITERS))
