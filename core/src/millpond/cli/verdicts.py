"""The last verdict of the conformance kit on each backend, kept in the user's cache."""

from __future__ import annotations

import json
import os
from pathlib import Path

from millpond.cli.terminal import complain

__all__ = ["last_verdict", "remember_verdict"]


def _file(backend: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = "".join(letter if letter.isalnum() else "_" for letter in backend)
    return Path(cache) / "millpond" / "conformance" / f"{name}.json"


def remember_verdict(backend: str, report: str) -> None:
    """Keep a report for ``millpond backends`` to show; say so where that is not possible."""
    try:
        path = _file(backend)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report, encoding="utf-8")
    except (OSError, RuntimeError) as error:
        complain(f"the verdict could not be stored for `millpond backends`: {error}")


def last_verdict(backend: str) -> str:
    """The last verdict with its profile, as ``PASS (quick)``; empty where there is none."""
    try:
        tree = json.loads(_file(backend).read_text(encoding="utf-8"))
        return f"{tree['verdict']} ({tree['profile']})"
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return ""
