"""``millpond backends``: which backends are installed, and whether they can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from millpond.config import Config
from millpond.plugins import PluginRecord, PluginRegistry, Status, get_registry

from millpond_cli.conformance_cache import last_verdict
from millpond_cli.loading import tool_registry
from millpond_cli.output import as_json_option, show


@click.command()
@as_json_option
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file with plugin rules.")
def backends(*, as_json: bool, config: Path | None) -> None:
    """List the installed state backends, and why one cannot be used."""
    registry = get_registry(Config.from_toml(config).plugins) if config else tool_registry()
    rows = [describe(registry, record) for record in registry.records]
    none = "No state backend is installed: pip install millpond-heap"
    show(rows, as_json=as_json, empty=none)


def describe(registry: PluginRegistry, record: PluginRecord) -> dict[str, Any]:
    """Return the row of a plugin; a missing native library makes it broken."""
    status, reason, native = record.status, record.reason, ""
    if status is Status.OK and record.name in registry.backend_names():
        try:
            native = registry.backend(record.name).native_version()
        except ImportError as error:
            status = Status.BROKEN
            cure = f"Install it; it belongs to the dependencies of {record.distribution}"
            reason = f"{error}. {cure}"
    return {
        "name": record.name,
        "distribution": record.distribution,
        "version": record.version,
        "capabilities": list(record.capabilities),
        "status": status.value,
        "reason": reason,
        "native": native,
        "conformance": last_verdict(record.name, registry),
    }
