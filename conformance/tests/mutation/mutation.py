"""Automatic mutants of the code that authors of backends write, against the kit.

Usage: mutation.py [--target heap|bytestore|lmdb|sqlite] [--sample 75] [--seed 1] [--seconds 3600]
                   [--report FILE]

For each target a seeded sample of its places is changed, one at a time, and the standard profile
runs in stages, those that kill most first, up to the first failure. The report has a row each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mutate import Mutation, mutations

__all__ = ["TARGETS", "places", "sample"]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "sqlite-backend" / "src"

TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "heap": (
        "heap",
        tuple(
            f"millpond_heap.{name}"
            for name in ("backend", "cells", "maps", "tables", "sharing", "view", "heap_key")
        ),
    ),
    "bytestore": (
        "lmdb",
        tuple(
            f"millpond.backend.bytestore.{name}"
            for name in (
                "buffered_maps",
                "buffered_tables",
                "buffered_timers",
                "byte_store_backend",
                "encoded_key",
                "store_view",
                "write_buffer",
            )
        ),
    ),
    "lmdb": (
        "lmdb",
        tuple(f"millpond_lmdb.{name}" for name in ("backend", "longkeys", "reading", "store")),
    ),
    "sqlite": ("millpond_sqlite:SqliteStateBackend", ("millpond_sqlite.backend",)),
}
"""By target the backend that is judged, and the modules that are changed."""

STAGES = (("V", "K"), ("G4",), ("S", "M", "T", "C", "E", "D"), ())
"""Chapters and clauses in the order of their kills; the last stage runs all."""

CODE = """
import json, sys
from millpond.errors import MillpondError
from millpond_conformance import Verdict, run
backend, stages = sys.argv[1], json.loads(sys.argv[2])
for stage in stages:
    try:
        found = run(backend, "standard", stage, until_failure=True, seed=1)
    except MillpondError as error:
        print(type(error).__name__)
        break
    bad = [r.number for r in found.results if r.verdict in (Verdict.FAIL, Verdict.ERROR)]
    if bad:
        print(bad[0])
        break
"""


def places(target: str) -> list[tuple[str, Mutation]]:
    """All places of a target, with their modules."""
    found = []
    for module in TARGETS[target][1]:
        spec = find_spec(module)
        assert spec is not None
        source = Path(spec.origin or "").read_text(encoding="utf-8")
        found += [(module, mutation) for mutation in mutations(source)]
    return found


def sample(target: str, count: int, seed: int) -> list[tuple[str, Mutation]]:
    """A seeded sample of them."""
    known = places(target)
    return random.Random(f"{target} {seed}").sample(known, min(count, len(known)))


def killed_by(target: str, module: str, mutation: Mutation) -> str:
    """The clause that has killed a mutant, ``timeout``, or nothing."""
    path = [str(HERE), str(EXAMPLE), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "MILLPOND_MUTANT": f"{module}:{mutation.place}",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    command = [sys.executable, "-c", CODE, TARGETS[target][0], json.dumps(STAGES)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    return done.stdout.strip() or ("" if done.returncode == 0 else "import")


def judged(targets: list[str], count: int, seed: int, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each mutant, in turn over the targets, until the time is over."""
    until = time.monotonic() + seconds
    chosen = {target: sample(target, count, seed) for target in targets}
    for number in range(count):
        for target in targets:
            if number < len(chosen[target]) and time.monotonic() < until:
                module, mutation = chosen[target][number]
                row = {"target": target, "module": module, "line": mutation.line}
                row |= {"before": mutation.before, "after": mutation.after}
                yield {**row, "killed by": killed_by(target, module, mutation)}


def main() -> int:
    """Judge a sample and tell how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=[*TARGETS])
    parser.add_argument("--sample", type=int, default=75)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    if str(EXAMPLE) not in sys.path:
        sys.path.append(str(EXAMPLE))
    rows = []
    for row in judged(given.target or [*TARGETS], given.sample, given.seed, given.seconds):
        rows.append(row)
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        if given.report is not None:
            given.report.write_text(
                json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
    for target in given.target or TARGETS:
        mine = [row for row in rows if row["target"] == target]
        killed = sum(bool(row["killed by"]) for row in mine)
        sys.stdout.write(f"{target}: {killed} of {len(mine)} killed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
