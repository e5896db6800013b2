"""The rows that every engine of the comparison reads; runs in each engine's own environment.

Row ``n`` has event time ``n`` in ms, an amount, and one of 50,000 keys. All are computed from
``n``, so that every engine gets the same rows without a file or a package in common.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

KEYS = 50_000
"""The number of distinct keys."""

CATEGORIES = 10
"""The number of entries that a map state gets per key."""

WINDOW = 60_000
"""The size in ms of the tumbling window, and the delay of a timer."""

JOBS = ("sum", "window", "map", "timer")
"""A running total; totals per minute; counts per category in a map state; counts by timer."""

_MULTIPLIER, _MODULUS = 48_271, 2_147_483_647
_marked: set[str] = set()


def key(number: int) -> str:
    """Return the key of a row; a linear congruence scatters successive rows."""
    return f"customer-{number * _MULTIPLIER % _MODULUS % KEYS:05d}"


def amount(number: int) -> float:
    """Return the amount of a row, a multiple of 0.25 so that sums are exact in any order."""
    return number % 997 / 4


def category(number: int) -> int:
    """Return the map key of a row."""
    return number // KEYS % CATEGORIES


def minute(timestamp: int) -> int:
    """Return the end in ms of the window that contains a timestamp."""
    return timestamp - timestamp % WINDOW + WINDOW


def mark_first_row(folder: str) -> None:
    """Write the time at which this process sees its first row to a file in ``folder``.

    A later call leaves the file as it is. Spark unpickles this module again for each task.
    """
    if folder not in _marked:
        _marked.add(folder)
        mark(folder, f"first-{os.getpid()}")


def mark(folder: str, name: str) -> None:
    """Write the time to a new file in ``folder``, unless the file exists."""
    with suppress(FileExistsError), Path(folder, name).open("x") as file:
        file.write(repr(time.time()))


def show(folder: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Append an output row to a file in ``folder``; only checks of the jobs do so."""
    with Path(folder, f"rows-{os.getpid()}").open("a") as file:
        file.write(json.dumps(row) + "\n")
    return row


def parse_arguments() -> argparse.Namespace:
    """Parse the options that all jobs have in common."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("engine", help="the engine's variant, for example a backend")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--folder", required=True, help="for checkpoints and marks")
    parser.add_argument("--show", action="store_true", help="write the output rows to the folder")
    return parser.parse_args()


def expected(job: str, count: int) -> dict[str, Any]:
    """Return the last output row per key of a job, computed without any engine."""
    found: dict[str, Any] = {}
    for number in range(count):
        each = key(number)
        if job == "sum":
            found[each] = found.get(each, 0.0) + amount(number)
        elif job == "window":
            each = f"{each} {minute(number)}"
            found[each] = found.get(each, 0.0) + amount(number)
        else:
            each = f"{each} {category(number)}"
            found[each] = found.get(each, 0) + 1
    return found
