"""Run the kit against all or some members of the gallery; print which clause catches each of them.

The clauses run as against automatic mutants: in forks, those that catch quickly first, up to the
first failure.

Usage: python -m conformance.research.gallery.survey [--profile PROFILE] [NAME …]
"""

from __future__ import annotations

import argparse
import sys
import time

from conformance.research.gallery import gallery
from conformance.research.mutation.judge import killed_by
from conformance.research.mutation.mutation import STAGES

__all__ = ["caught_by"]


def caught_by(name: str, profile: str) -> str:
    """Return the first clause that a wrong backend fails, or how its process ended, or an empty string."""
    backend = f"{gallery.__name__}:w_{name}"
    found = (killed_by(backend, stage, profile=profile) for stage in STAGES)
    return next(filter(None, found), "")


def main() -> int:
    """Test the named members, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--profile", default="standard")
    given = parser.parse_args()
    caught = 0
    names = given.names or list(gallery.load())
    for name in names:
        started = time.perf_counter()
        by = caught_by(name, given.profile)
        caught += bool(by)
        took = time.perf_counter() - started
        sys.stdout.write(f"{name:24} {took:6.1f} s  {by or 'not caught'}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{caught} of {len(names)} caught\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
