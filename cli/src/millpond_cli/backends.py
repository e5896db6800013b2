"""``millpond backends``: the installed backends."""

from __future__ import annotations

from typing import Any

import click
from millpond.plugins import PluginRecord, PluginRegistry, Status

from millpond_cli.output import as_json_option, show
from millpond_cli.targets import tool_registry


@click.command()
@as_json_option
def backends(*, as_json: bool) -> None:
    """List the installed state backends. If one cannot be used, show the reason."""
    registry = tool_registry()
    rows = [describe(registry, record) for record in registry.records]
    none = "No state backend is installed: pip install millpond-heap"
    show(rows, as_json=as_json, empty=none)


def describe(registry: PluginRegistry, record: PluginRecord) -> dict[str, Any]:
    """Return the row of a plugin in the list of backends.

    A backend that cannot load its native library has the status `broken`.
    """
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
    }
