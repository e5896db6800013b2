"""Counts of the kinds of steps in programs, and their minimum counts.

If a count is below its minimum, the run is not a sufficient test of the backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MAP_READS = ("get", "[]", "in", "items", "keys", "values", "is_empty")

FLOORS: Mapping[str, int] = {
    "snapshot of a dirty buffer": 4,
    "flush forced by a full buffer": 4,
    "merge of two filled sides": 4,
    "merge of three or more filled sides": 1,
    "merge of five or more filled sides": 1,
    "iteration open across a write": 2,
    "iteration open across a flush": 4,
    "iteration open under another key": 4,
    "insert into a map under iteration": 1,
    "function that raised": 2,
    "refused write": 4,
    "snapshots confirmed": 8,
    "snapshots aborted": 2,
    "snapshots cancelled": 1,
    "snapshot restored elsewhere": 8,
    "more than 10 deltas in a row": 1,
    "content outlived": 2,
    "call for many keys": 8,
    "operator state": 2,
    "snapshots subsumed": 1,
    "removal between snapshots": 2,
    "work while a snapshot is written": 2,
    "restore": 4,
    "rescale": 1,
    "reopening": 2,
    "savepoint": 2,
    "expired entry read": 2,
    "timers due": 8,
    "more than 1,000 timers due": 1,
    "timer deleted while others fire": 1,
    "two backends in turn": 4,
    "step in another thread": 40,
    "enumeration": 4,
    "more than 1,000 entries": 1,
    **{f"map read by {call}": 4 for call in MAP_READS},
}
"""The minimum count of each step in the programs of the profile ``quick``."""


class Coverage:
    """A counter of the steps of programs."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, what: str) -> None:
        """Count a step; raise LookupError if `FLOORS` does not name it."""
        if what not in FLOORS:
            raise LookupError(what)
        self._counts[what] += 1

    def counts(self) -> dict[str, int]:
        """Return the count of each step."""
        return {what: self._counts[what] for what in FLOORS}

    def missing(self) -> list[str]:
        """Return the names of the steps whose counts are below the minimum."""
        return [what for what, floor in FLOORS.items() if self._counts[what] < floor]
