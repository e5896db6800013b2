"""How commands show rows: tables for people, plain lines for pipes, JSON for programs."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond_cli.terminal import draw, emit, safe, say

__all__ = ["as_json_option", "dumps", "plain", "show"]

Row = dict[str, Any]

_GAP = 2
_NARROWEST = 16

as_json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


def show(rows: Sequence[Row], *, as_json: bool, empty: str, by: tuple[str, ...] = ()) -> None:
    """Print rows of equal keys.

    On a terminal they are tables that fit its width, or one line per value where there are too
    many columns for that; elsewhere one line per row, in full and in columns.

    Args:
        rows: what to print.
        as_json: as a JSON array instead.
        empty: what to say if there are no rows.
        by: on a terminal, a table for all rows that are equal in these columns, beneath their
            values; paths are shown as they are below the first of them.
    """
    if as_json:
        emit(dumps(rows, indent=2))
    elif not rows:
        say(empty)
    elif not Console().is_terminal:
        for line in _lines(rows):
            say(line)
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
            _print_table([_below(f"{values[0]}/", row, by) for row in group])


def _below(folder: str, row: Row, by: tuple[str, ...]) -> Row:
    return {
        name: value.removeprefix(folder) if isinstance(value, str) else value
        for name, value in row.items()
        if name not in by
    }


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    table = [[name.replace("_", " ") for name in rows[0]]]
    table += [[_cell(value, grouped=False) or "-" for value in row.values()] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = (c + " " * (w - cell_len(c)) for c, w in zip(cells, widths, strict=True))
        yield "  ".join(padded).rstrip()


def _print_table(rows: Sequence[Row]) -> None:
    console = Console()
    names = [name for name in rows[0] if any(row[name] != "" for row in rows)]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    heads = [name.replace("_", " ") for name in names]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    numbers = [all(_is_number(row[name]) for row in rows) for name in names]
    fixed = zip(widths, numbers, strict=True)
    narrowest = sum(w if number else min(w, _NARROWEST) for w, number in fixed)
    if narrowest + _GAP * (len(names) - 1) > console.width:
        _print_records(heads, cells)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for head, number in zip(heads, numbers, strict=True):
        justify: Any = "right" if number else "left"
        table.add_column(Text(head), justify=justify, no_wrap=number, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    draw(table)


def _print_records(heads: Sequence[str], cells: Sequence[list[str]]) -> None:
    """One line per value: for rows that are too wide for a table."""
    for number, row in enumerate(cells):
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for head, cell in zip(heads, row, strict=True):
            grid.add_row(Text(head), Text(cell))
        draw(*([""] if number else []), grid)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: Any, *, grouped: bool = True) -> str:
    if _is_number(value):
        return f"{value:,}" if grouped else str(value)
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return safe(", ".join(value))
    return safe(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes in base64, moments as ISO texts, NaN as a text."""
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
    """A value as strict JSON of ASCII characters."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)
