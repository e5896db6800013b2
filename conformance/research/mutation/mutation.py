"""Judge automatic mutants of backend code by the kit.

Usage: python -m conformance.research.mutation.mutation [--target heap|bytestore|lmdb|sqlite]
[--sample 90] [--seed 1] [--seconds 3600] [--report FILE] [--again]

For each target, a seeded sample of places is changed, one at a time. The standard profile runs
against each mutant in stages, up to the first failure; stages that kill fast come first. The report
has one line per mutant. A run with an existing report continues it. With --again the survivors in
the report are judged again, and their lines replaced.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from conformance.research.mutation.mutate import Mutation, mutations

__all__ = ["TARGETS", "places", "sample"]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "sqlite-backend" / "src"

TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "heap": (
        "heap",
        tuple(f"millpond_heap.{name}" for name in ("backend", "cells", "maps", "tables")),
    ),
    "bytestore": (
        "lmdb",
        tuple(
            f"millpond.backend.bytestore.{name}"
            for name in (
                "buffered_cells",
                "buffered_lists",
                "buffered_maps",
                "buffered_timers",
                "byte_store_backend",
                "write_buffer",
            )
        ),
    ),
    "lmdb": (
        "lmdb",
        tuple(f"millpond_lmdb.{name}" for name in ("backend", "long_keys", "store")),
    ),
    "sqlite": ("millpond_sqlite:SqliteStateBackend", ("millpond_sqlite.backend",)),
}
"""For each target, the tested backend and the modules that are changed."""

STAGES = (
    ("V", "K", "S", "M", "T", "C", "E", "D", "P", "O", "X", "W", "A"),
    ("B",),
    ("F", "R"),
    ("G4",),
    ("G",),
)
"""All chapters of clauses; those that kill fast come first."""


def places(target: str) -> list[tuple[str, Mutation]]:
    """Return all places of a target, with their modules."""
    found = []
    for module in TARGETS[target][1]:
        found += [(module, mutation) for mutation in mutations(_source(module))]
    return found


def _source(module: str) -> str:
    """Return the source of a module without importing it, because forks import the changed one."""
    top, _, rest = module.partition(".")
    spec = find_spec(top)
    assert spec is not None
    path = Path(spec.origin or "").parent.joinpath(*rest.split("."))
    return path.with_suffix(".py").read_text(encoding="utf-8")


def sample(target: str, count: int, seed: int) -> list[tuple[str, Mutation]]:
    """Return a seeded sample of the places."""
    known = places(target)
    return random.Random(f"{target} {seed}").sample(known, min(count, len(known)))


def _row(target: str, module: str, mutation: Mutation) -> dict[str, Any]:
    return {
        "target": target,
        "module": module,
        "place": mutation.place,
        "line": mutation.line,
        "before": mutation.before,
        "after": mutation.after,
        "killed by": "",
        "survived": 0,
        "seconds": 0.0,
    }


def _in_turn(targets: list[str], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Return the rows of the samples without verdicts, alternating between the targets."""
    chosen = {target: sample(target, count, seed) for target in targets}
    for number in range(count):
        for target in targets:
            if number < len(chosen[target]):
                yield _row(target, *chosen[target][number])


def _judge(row: dict[str, Any]) -> None:
    """Put a mutant through its next stage."""
    from conformance.research.mutation.judge import killed_by  # its imports take seconds

    started = time.monotonic()
    backend, stage = TARGETS[row["target"]][0], STAGES[row["survived"]]
    row["killed by"] = killed_by(backend, stage, f"{row['module']}:{row['place']}")
    row["survived"] += not row["killed by"]
    row["seconds"] = round(row["seconds"] + time.monotonic() - started, 1)


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["module"], row["place"], row["before"], row["after"]


def _read(report: Path | None) -> list[dict[str, Any]]:
    if report is None or not report.exists():
        return []
    return [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]


def _told(row: dict[str, Any], report: Path | None) -> None:
    line = json.dumps(row, ensure_ascii=False) + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(line)


def main() -> int:
    """Judge a sample, and print how many mutants are killed."""
    given = _arguments()
    if str(EXAMPLE) not in sys.path:
        sys.path.append(str(EXAMPLE))
    targets = given.target or [*TARGETS]
    until = time.monotonic() + given.seconds
    rows = {_identity(row): row for row in _in_turn(targets, given.sample, given.seed)}
    known = {_identity(_row(target, *each)) for target in targets for each in places(target)}
    for row in _read(given.report):
        if _identity(row) in known:
            rows[_identity(row)] = rows.get(_identity(row), {}) | row
    for row in rows.values() if given.again else ():
        row["survived"] %= len(STAGES)
    for stage in range(len(STAGES)):
        for row in rows.values():
            if row["killed by"] or row["survived"] > stage or time.monotonic() > until:
                continue
            _judge(row)
            _told(row, given.report)
    for target in targets:
        mine = [row for row in rows.values() if row["target"] == target]
        killed = sum(bool(row["killed by"]) for row in mine)
        survived = sum(row["survived"] == len(STAGES) for row in mine)
        sys.stdout.write(f"{target}: of {len(mine)} {killed} killed, {survived} survived\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=[*TARGETS])
    parser.add_argument("--sample", type=int, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--report", type=Path)
    parser.add_argument("--again", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
