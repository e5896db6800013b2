"""How commands show rows: a table for people, JSON for programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table

__all__ = ["as_json_option", "plain", "show"]

as_json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


def show(rows: Sequence[dict[str, Any]], *, as_json: bool, empty: str) -> None:
    """Print rows of equal keys."""
    if as_json:
        click.echo(json.dumps([plain(row) for row in rows], indent=2))
        return
    if not rows:
        click.echo(empty)
        return
    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return value if isinstance(value, str) else str(plain(value))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes in base64, moments as ISO texts."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return value
