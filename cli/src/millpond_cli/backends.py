"""``millpond backends``: the installed backends, and the last verdict of the kit on each."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from millpond.errors import MillpondError
from millpond.plugins import PluginRecord, PluginRegistry, Status, get_registry

from millpond_cli.output import as_json_option, show, write_text
from millpond_cli.targets import tool_registry
from millpond_cli.terminal import complain


def _file(backend: str) -> Path:
    """Return the file in the user's cache for the last conformance report about a backend."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = "".join(letter if letter.isalnum() else "_" for letter in backend)
    return Path(cache) / "millpond" / "conformance" / f"{name}.json"


def _identity(backend: str, registry: PluginRegistry) -> str:
    """Return a digest of a backend's version and source files, without importing the backend."""
    resolution = registry.resolve(backend)
    spec = find_spec(resolution.target.partition(":")[0].partition(".")[0])
    digest = hashlib.sha256(resolution.version.encode())
    if spec is None:
        return digest.hexdigest()
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    for path in sorted(files) or [Path(spec.origin or "")]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def remember_verdict(backend: str, report: str) -> None:
    """Store the conformance kit's report on a backend, for ``millpond backends`` to show."""
    try:
        path = _file(backend)
        kept = {"backend": _identity(backend, get_registry()), "report": json.loads(report)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(kept))
    except (OSError, RuntimeError) as error:
        complain(f"the verdict could not be stored for `millpond backends`: {error}")


def last_verdict(backend: str, registry: PluginRegistry) -> str:
    """Return the last verdict of the conformance kit on a backend, such as ``PASS (quick)``.

    Return an empty string if there is no verdict, or if the version or the files of the backend
    have changed since.
    """
    try:
        kept = json.loads(_file(backend).read_text(encoding="utf-8"))
        if kept["backend"] != _identity(backend, registry):
            return ""
        return f"{kept['report']['verdict']} ({kept['report']['profile']})"
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MillpondError):
        return ""


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
        "conformance": last_verdict(record.name, registry),
    }
