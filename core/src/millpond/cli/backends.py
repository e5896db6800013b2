"""``millpond backends``: which backends are installed, and whether they can be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from millpond.cli.plugins import tool_registry
from millpond.cli.verdicts import last_verdict
from millpond.config import Config
from millpond.plugins import PluginRecord, PluginRegistry, Status, get_registry

__all__ = ["backends"]

_COLOURS = {"ok": "green", "broken": "red", "blocked": "yellow"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file with plugin rules.")
def backends(as_json: bool, config: Path | None) -> None:  # noqa: FBT001 - click passes it so
    """List the installed state backends, and why one cannot be used."""
    registry = get_registry(Config.from_toml(config).plugins) if config else tool_registry()
    rows = [describe(registry, record) for record in registry.records]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_table(rows)


def describe(registry: PluginRegistry, record: PluginRecord) -> dict[str, Any]:
    """What is known of a plugin; a missing native library makes it broken."""
    status, reason, native = record.status, record.reason, ""
    if status is Status.OK and record.name in registry.backend_names():
        try:
            native = registry.backend(record.name).native_version()
        except ImportError as error:
            status = Status.BROKEN
            reason = f"{error}. Reinstall {record.distribution} with its dependencies"
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "capabilities": list(record.capabilities),
        "status": status.value,
        "reason": reason,
        "native": native,
        "conformance": last_verdict(record.name),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    headings = ("name", "distribution", "version", "native", "capabilities", "conformance")
    table = Table(*headings, "status", "reason")
    for row in rows:
        colour = _COLOURS.get(row["status"], "magenta")
        table.add_row(
            row["name"],
            row["distribution"],
            row["version"],
            row["native"],
            ", ".join(row["capabilities"]),
            row["conformance"],
            f"[{colour}]{row['status']}[/]",
            row["reason"],
        )
    console = Console()
    console.print(table if rows else "No state backend is installed: pip install millpond-heap")
