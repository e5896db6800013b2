"""The user's cache of the conformance kit's last verdict on each backend."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.util import find_spec
from pathlib import Path

from millpond.errors import MillpondError
from millpond.plugins import PluginRegistry, get_registry

from millpond_cli.new_files import write_text
from millpond_cli.terminal import complain


def _file(backend: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = "".join(letter if letter.isalnum() else "_" for letter in backend)
    return Path(cache) / "millpond" / "conformance" / f"{name}.json"


def _identity(backend: str, registry: PluginRegistry) -> str:
    """Return a digest of a backend's version and its package's files, without importing it."""
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
    """Store a report for ``millpond backends``; print a warning if it cannot be stored."""
    try:
        path = _file(backend)
        kept = {"backend": _identity(backend, get_registry()), "report": json.loads(report)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(kept))
    except (OSError, RuntimeError) as error:
        complain(f"the verdict could not be stored for `millpond backends`: {error}")


def last_verdict(backend: str, registry: PluginRegistry) -> str:
    """Return the last verdict with its profile, as in ``PASS (quick)``.

    It is empty if there is none, or if the backend's version or files have changed since.
    """
    try:
        kept = json.loads(_file(backend).read_text(encoding="utf-8"))
        if kept["backend"] != _identity(backend, registry):
            return ""
        return f"{kept['report']['verdict']} ({kept['report']['profile']})"
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MillpondError):
        return ""
