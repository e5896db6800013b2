"""Contract tests that every state backend of Millpond must pass."""

from millpond_conformance.engine import run
from millpond_conformance.report import Report, Verdict

__all__ = ["Report", "Verdict", "run"]
