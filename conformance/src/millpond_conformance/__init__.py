"""Contract tests that every state backend of Millpond passes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond_conformance.engine import run
    from millpond_conformance.report import Report, Verdict

__all__ = ["Report", "Verdict", "run"]

_PLACES = {"run": "engine", "Report": "report", "Verdict": "report"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    Pytest imports this package in every run, also in projects that run no clause.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
