"""Runs the kit against the gallery, or part of it, and prints who is caught and by what.

Usage: survey.py [--profile PROFILE] [NAME …]
"""

from __future__ import annotations

import argparse
import sys
import time

import gallery
from millpond.errors import MillpondError
from millpond_conformance import Verdict, run

__all__ = ["caught_by"]


def caught_by(name: str, profile: str) -> tuple[str, ...]:
    """The clauses that a wrong backend fails, up to the first."""
    report = run(f"gallery:w_{name}", profile, until_failure=True)
    return tuple(r.number for r in report.results if r.verdict in (Verdict.FAIL, Verdict.ERROR))


def main() -> int:
    """Survey the named members, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--profile", default="standard")
    given = parser.parse_args()
    members = gallery.load()
    caught = 0
    names = given.names or list(members)
    for name in names:
        started = time.perf_counter()
        try:
            clauses = caught_by(name, given.profile)
        except MillpondError as error:
            clauses = (type(error).__name__,)
        caught += bool(clauses)
        took = time.perf_counter() - started
        sys.stdout.write(f"{name:24} {took:6.1f} s  {', '.join(clauses) or 'not caught'}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(names)} caught\n")
    return 0


if __name__ == "__main__":
    sys.modules.setdefault("survey", sys.modules["__main__"])
    sys.exit(main())
