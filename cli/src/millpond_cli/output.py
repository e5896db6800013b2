"""The output of commands: tables, JSON, exported files and progress."""

from __future__ import annotations

import base64
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from millpond.errors import PlaceError
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from millpond_cli.terminal import draw, emit, safe, say


@contextmanager
def open_new(target: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing, and give it the name `target` when the block ends.

    Until then the file has a hidden temporary name in the same directory. If the block raises an
    error, the file is deleted. A symbolic link `target` counts as an existing file, and is not
    followed.

    Args:
        target: the name of the complete file.
        replace: whether to replace an existing file.

    Raises:
        PlaceError: the file exists already, and `replace` is not set.
        OSError: the file cannot be written.
    """
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
    with temporary.open("xb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if replace:
                temporary.replace(target)
            else:
                try:
                    os.link(temporary, target)
                except OSError:  # the file exists, or the file system has no hard links
                    if os.path.lexists(target):
                        reason = "it is there already; name another file"
                        raise PlaceError(str(target), reason) from None
                    temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write a text file. An existing file is replaced when the new one is complete."""
    with open_new(target, replace=True) as file:
        file.write(text.encode())


_TEXT_WIDTH = 40


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Callable[[float], None]]:
    """Show progress until the block ends, if standard error is a terminal.

    Yield a function. The block calls this function with the number of steps that it has finished.

    Args:
        text: the activity of the command, to be shown.
        total: the number of all steps; if it is None, no bar is shown.
    """
    console = Console(stderr=True)
    shown = safe(text)
    if len(shown) > _TEXT_WIDTH:
        shown = f"{shown[: _TEXT_WIDTH - 3]}..."
    columns = [SpinnerColumn("line"), TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns += [BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%")]
    progress = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(shown, total=total)
        yield lambda steps: progress.advance(task, steps)


_FORMULA = "^[=+@\\t\\r-]"
"""A pattern for the first character of a text that spreadsheets would run as a formula."""


def write_file(table: pa.Table, target: Path, *, escape_formulas: bool = False) -> None:
    """Write a table to a new file, in the format that the file's ending names.

    Args:
        table: the table.
        target: the file, with one of `ENDINGS`.
        escape_formulas: whether to put an apostrophe before texts that a spreadsheet would run as
            formulas.

    Raises:
        PlaceError: the file exists already, or cannot be written.
    """
    try:
        with open_new(target) as file:
            rows = _escaped(table) if escape_formulas else table
            if target.suffix == ".parquet":
                pq.write_table(rows, file)
            elif target.suffix == ".arrow":
                with pa.ipc.new_file(file, rows.schema) as writer:
                    writer.write_table(rows)
            else:
                columns = [_textual(column) for column in rows.columns]
                pyarrow.csv.write_csv(pa.table(columns, names=rows.column_names), file)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlaceError(str(target), f"it cannot be written: {reason}") from error


def _escaped(table: pa.Table) -> pa.Table:
    """Return a copy of `table` with an apostrophe before each text that looks like a formula."""
    for at, field in enumerate(table.schema):
        column = _textual(table.column(at))
        if pa.types.is_string(column.type):
            is_formula = pc.match_substring_regex(column, _FORMULA)
            quoted = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(at, field.name, pc.if_else(is_formula, quoted, column))
    return table


def _textual(column: Any) -> Any:
    """Return a column in a form that CSV can hold: bytes as base64, nested values as JSON."""
    if not pa.types.is_nested(column.type) and not pa.types.is_binary(column.type):
        return column
    texts = [
        value if value is None else dumps(value).strip('"' if isinstance(value, bytes) else "")
        for value in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


ENDINGS = (".arrow", ".csv", ".parquet")
Row = dict[str, Any]

_GAP = 2
_NARROWEST = 16

as_json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


def show(rows: Sequence[Row], *, as_json: bool, empty: str, by: tuple[str, ...] = ()) -> None:
    """Print rows, which must all have the same keys.

    On a terminal, print a table, or one line per value if the terminal is too narrow. Otherwise
    print one line per row with aligned columns.

    Args:
        rows: the rows.
        as_json: whether to print a JSON array instead.
        empty: the message if there are no rows.
        by: the columns by which rows are grouped on a terminal. Each group is shown as a table
            below its values in these columns. If the first value is a directory, paths in the table
            are relative to that directory.
    """
    if as_json:
        emit(dumps(rows, indent=2))
    elif not rows:
        say(empty)
    elif not Console().is_terminal:
        texts = [[name.replace("_", " ") for name in rows[0]]]
        texts += [[_cell(value, grouped=False) or "-" for value in row.values()] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
        for cells in texts:
            padded = (c + " " * (w - cell_len(c)) for c, w in zip(cells, widths, strict=True))
            say("  ".join(padded).rstrip())
    elif not by:
        _print_table(rows)
    else:
        for number, (values, group) in enumerate(
            groupby(rows, key=lambda row: tuple(row[name] for name in by))
        ):
            title = ", ".join(f"{n.replace('_', ' ')} {v}" for n, v in zip(by, values, strict=True))
            if number:
                say("")
            say(title)
            folder = f"{values[0]}/"
            _print_table(
                [
                    {
                        name: value.removeprefix(folder) if isinstance(value, str) else value
                        for name, value in row.items()
                        if name not in by
                    }
                    for row in group
                ]
            )


def _print_table(rows: Sequence[Row]) -> None:
    """Print rows as a table, or one line per value if the terminal is too narrow for a table."""
    console = Console()
    names = [name for name in rows[0] if any(row[name] != "" for row in rows)]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    heads = [name.replace("_", " ") for name in names]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    numbers = [all(_is_number(row[name]) for row in rows) for name in names]
    fixed = zip(widths, numbers, strict=True)
    narrowest = sum(w if number else min(w, _NARROWEST) for w, number in fixed)
    if narrowest + _GAP * (len(names) - 1) > console.width:
        for number, row in enumerate(cells):
            grid = Table.grid(padding=(0, _GAP, 0, 0))
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
            for head, cell in zip(heads, row, strict=True):
                grid.add_row(Text(head), Text(cell))
            draw(*([""] if number else []), grid)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for head, number in zip(heads, numbers, strict=True):
        justify: Any = "right" if number else "left"
        table.add_column(Text(head), justify=justify, no_wrap=number, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    draw(table)


def _is_number(value: Any) -> bool:
    """Return whether `value` is an integer. Columns of integers are aligned to the right."""
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: Any, *, grouped: bool = True) -> str:
    """Return a value as the text of a cell.

    If `grouped` is set, integers have separators between thousands.
    """
    if _is_number(value):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return safe(", ".join(value))
    return safe(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has.

    Bytes become base64, timestamps become ISO strings, and NaN and infinity become strings.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def dumps(value: Any, indent: int | None = None) -> str:
    """Return a value as strict JSON in ASCII, converted by `plain`."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def size_text(size: float) -> str:
    """Return a number of bytes in decimal units, with three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:  # noqa: PLR2004 - then three digits are enough
            return f"{size:,.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
