"""Compare the figures of the benchmarks with their goals, for the page's section *Goals*."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from throughput import AGGREGATIONS
from windows import FLOOR

__all__ = ["BACKENDS", "by_hand", "checkpoints", "small", "throughput", "windows", "worker"]

BACKENDS = ("heap", "rocksdb", "lmdb")


_SPARKS = tuple(zip(AGGREGATIONS, ("`default`", "`agg`"), strict=True))
"""Spark's own aggregations, and their names on the page."""


@attrs.frozen
class Goal:
    """A goal for a figure of each backend.

    Attributes:
        of: the name of the figure.
        wanted: the upper limit; a mapping if each backend has its own.
        found: the measured figure of each backend.
        floor: the figure without any work of Millpond's; empty if it means nothing here.
    """

    of: str
    wanted: float | Mapping[str, float]
    found: Mapping[str, float]
    floor: str = ""

    def line(self) -> str:
        """Return the row of the table; figures above the goal are bold."""
        limits = {
            b: self.wanted if isinstance(self.wanted, float) else self.wanted[b] for b in self.found
        }
        cells = [self._cell(backend, limits) for backend in BACKENDS]
        wanted = ", ".join(f"{limit:g}" for limit in dict.fromkeys(limits.values()))
        return "| " + " | ".join((self.of, wanted, *cells, self.floor or "–")) + " |"

    def _cell(self, backend: str, limits: Mapping[str, float]) -> str:
        figure = round(self.found[backend], 2)
        return f"{figure:.2f}" if figure <= limits[backend] else f"**{figure:.2f}**"


def _lines(goals: Iterable[Goal]) -> list[str]:
    return [goal.line() for goal in goals]


def throughput(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the goals of a running total's micro-batch, relative to Spark's aggregation."""
    took = {(report["key"], report["case"]): report["median"] for report in reports}
    goals = []
    for kind, wanted in (("millpond", 0.9), ("vectorized", 0.65)):
        for key in ("string", "bigint"):
            for case, name in _SPARKS:
                spark = took[key, case]
                found = {b: took[key, f"{kind}-{b}"] / spark for b in BACKENDS}
                floor = f"{took[key, 'repartition'] / spark:.2f}"
                how = "row by row" if kind == "millpond" else "vectorized"
                goals.append(Goal(f"{how}, {key} keys, × {name}", wanted, found, floor))
    return _lines(goals)


def small(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the goals of small micro-batches."""
    took = {(report["rows"], report["case"]): report["median"] for report in reports}
    goals = []
    case, name = _SPARKS[-1]
    for rows in sorted({rows for rows, _ in took}):
        found = {b: took[rows, f"millpond-{b}"] / took[rows, case] for b in BACKENDS}
        floor = f"{took[rows, 'repartition'] / took[rows, case]:.2f}"
        wanted = 1.0 if rows < 1000 else 0.9
        goals.append(Goal(f"{rows:,} rows a micro-batch, × {name}", wanted, found, floor))
    return _lines(goals)


def worker(report: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the goals of processor time per row in the worker."""
    wanted = {"heap": 1.8, "rocksdb": 2.5, "lmdb": 2.0}
    goals = []
    for key in ("int", "str"):
        limits = wanted if key == "int" else {b: limit * 1.25 for b, limit in wanted.items()}
        rows = {b: report[f"{b}, {key}"]["total"] for b in BACKENDS}
        frames = {b: report[f"{b}, {key}"]["vectorized"] for b in BACKENDS}
        goals.append(Goal(f"µs a row in the worker, {key} keys", limits, rows))
        goals.append(Goal(f"the same, vectorized, {key} keys", 0.7, frames))
    return _lines(goals)


def by_hand(report: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the goals of read-modify-writes, relative to the bare store's."""
    values = {"heap": 5.0, "rocksdb": 1.5, "lmdb": 2.5}
    others = {"heap": 2.5, "rocksdb": 1.5, "lmdb": 3.0}
    goals = []
    for kind, wanted in (("value", values), ("map", others), ("list", others)):
        found = {b: report[b][kind] / report[b][f"bare {kind}"] for b in BACKENDS}
        goals.append(Goal(f"a {kind} by hand, × the bare store", wanted, found))
    return _lines(goals)


def windows(report: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the goals of windowed queries, relative to Spark's own."""
    goals = []
    medians = {k: {c: e["median"] for c, e in each.items()} for k, each in report.items()}
    for case, name in (("spark-default", "its own files"), ("spark", "configured")):
        for kind, took in medians.items():
            found = {b: took[b] / took[case] for b in BACKENDS}
            floor = f"{took[FLOOR] / took[case]:.2f}"
            goals.append(Goal(f"{kind} windows, × Spark, {name}", 1.3, found, floor))
    return _lines(goals)


def checkpoints(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the goals of restores, rescales and catching up."""
    loop = {r["backend"]: r["restore"] / r["bare loop"] for r in reports}
    scaled = {r["backend"]: max(r["2 to 3"], r["3 to 2"]) / r["2 to 2"] for r in reports}
    behind = {r["backend"]: r["catch_up_ms"] for r in reports}
    return _lines(
        [
            Goal("a restore, × the bare loop", 1.11, loop),
            Goal("a rescale, × a restore", 1.2, scaled),
            Goal("catching up 20,000 keys, ms", 20.0, behind),
        ]
    )
