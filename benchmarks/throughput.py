"""Throughput side by side in one run, small batches too, and time a batch with growing state.

Each case runs in a process of its own on local[2]. Prints three tables, writes throughput.json,
small.json, growth.json and two plots. Spark's Python APIs have one round, and its pandas ones get
fewer rows, rows/s make them comparable.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import matplotlib as mpl
from one_case import serve
from own_process import run_in_own_process
from rich.console import Console
from rich.table import Table
from turns import in_turns

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
SLOW_ROWS = {"spark-tws-row": 100_000, "spark-tws-pandas": 20_000, "spark-aipws": 20_000}
"""Spark's Python APIs, and the rows of a micro-batch for each."""

AGGREGATIONS = ("spark-jvm-default", "spark-jvm-agg")
"""Spark's aggregation with its default file manager, and in a session set up by ``configure``."""

AGGREGATION = AGGREGATIONS[1]

TIMED = (
    "repartition",
    *AGGREGATIONS,
    "millpond-heap",
    "millpond-rocksdb",
    "millpond-lmdb",
    "vectorized-heap",
    "vectorized-rocksdb",
    "vectorized-lmdb",
)
"""The cases that take turns, with text keys and with number keys."""

GROWN = [50_000, 500_000, 2_000_000]
BACKENDS = ["millpond-heap", "millpond-rocksdb", "millpond-lmdb"]
SMALL = ({"rows": 100, "touched": 70}, {"rows": 1_000, "touched": 700})
PARTS = ("queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""The parts of a batch that the table of small micro-batches shows, as Spark reports them."""
CONSOLE = Console(width=110)


def run_case(case: str, **options: int | str) -> dict[str, Any]:
    """Run one case and return its report."""
    return summed(run_in_own_process("one_case.py", [case], options))


def summed(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report with the seconds of each batch, and with medians."""
    durations = report.pop("durations")
    seconds = [each["triggerExecution"] / 1000 for each in durations]
    parts = {part: statistics.median(each.get(part, 0) for each in durations) for part in PARTS}
    median = statistics.median(seconds)
    rate = report["rows"] / median
    return {**report, "seconds": seconds, "parts": parts, "median": median, "rows_per_s": rate}


def compare(rounds: int, batches: int, warm_up: int) -> list[dict[str, Any]]:
    """Run all cases on the same micro-batches; slow ones get fewer rows and as many keys.

    The cases with the same kind of key run at the same time, each in a process of its own, and
    take turns, round by round: the machine's speed drifts, and every case gets its share of slow
    minutes. A figure is the median over the batches of all rounds. Each case first warms up for a
    minute, until the JVM has compiled its code.
    """
    sizes = {"rows": 100_000, "touched": 43_000, "batches": batches, "warm_up": warm_up}
    reports = [*living(TIMED, rounds, key="string", **sizes), *compare_slow()]
    return [*reports, *living(TIMED, rounds, key="bigint", **sizes)]


def compare_slow() -> list[dict[str, Any]]:
    """Run Spark's Python APIs, one after the other."""
    return [
        run_case(case, rows=rows, touched=43_000 * rows // 100_000, batches=6, warm_up=2)
        for case, rows in SLOW_ROWS.items()
    ]


def compare_small(rounds: int, batches: int, warm_up: int) -> list[dict[str, Any]]:
    """Run small micro-batches, in turns like the large ones."""
    cases = ("repartition", AGGREGATION, *BACKENDS)
    sizes = {"batches": batches, "warm_up": warm_up}
    return [each for rows in SMALL for each in living(cases, rounds, **rows, **sizes)]


def living(cases: Sequence[str], rounds: int, **options: Any) -> list[dict[str, Any]]:
    """Return the reports of cases that take turns in long-lived processes."""
    defaults = {"key": "string", "keys": 100_000, "conf": ["spark.driver.memory=2g"]}
    given = {case: {**defaults, **options, "case": case} for case in cases}
    servers: dict[Any, Callable[[Connection], None]] = {
        case: partial(serve, argparse.Namespace(**chosen)) for case, chosen in given.items()
    }
    found = in_turns(servers, rounds, 0)
    return [
        summed({**given[case], "durations": list(chain.from_iterable(turns)), "rounds": rounds})
        for case, turns in found.items()
    ]


def grow(batches: int, warm_up: int) -> list[dict[str, Any]]:
    """Run each backend with state grown beforehand; the measured batches are the same."""
    return [
        run_case(case, keys=keys, grow=keys, batches=batches, warm_up=warm_up)
        for case in BACKENDS
        for keys in GROWN
    ]


def ratio(report: dict[str, Any], aggregation: dict[str, Any]) -> str:
    """Return the ratio to an aggregation's time, or a dash if it got other rows."""
    same = report["rows"] == aggregation["rows"]
    return f"{report['median'] / aggregation['median']:.2f}" if same else "–"


def print_comparison(reports: list[dict[str, Any]]) -> None:
    """Print the table with the ratios."""
    found = {(report["key"], report["case"]): report for report in reports}
    tws = found["string", "spark-tws-row"]["rows_per_s"]
    table = Table("key", "case", "rows", "median s", "rows/s", "x default", "x agg", "x TWS (Row)")
    for report in reports:
        table.add_row(
            report["key"],
            report["case"],
            f"{report['rows']:,}",
            f"{report['median']:.2f}",
            f"{report['rows_per_s']:,.0f}",
            *(ratio(report, found[report["key"], case]) for case in AGGREGATIONS),
            f"{report['rows_per_s'] / tws:.1f}",
        )
    CONSOLE.print(table)


def print_small(reports: list[dict[str, Any]]) -> None:
    """Print the table of small micro-batches."""
    found = {(report["rows"], report["case"]): report for report in reports}
    table = Table("rows", "case", "median s", "x agg", *(f"{part}, ms" for part in PARTS))
    for report in reports:
        times = ratio(report, found[report["rows"], AGGREGATION])
        parts = (f"{took:.0f}" for took in report["parts"].values())
        size = f"{report['rows']:,}"
        table.add_row(size, report["case"], f"{report['median']:.3f}", times, *parts)
    CONSOLE.print(table)


def print_growth(reports: list[dict[str, Any]]) -> None:
    """Print the table of grown state."""
    table = Table("case", *(f"{keys:,} keys" for keys in GROWN), "largest / smallest")
    for case in BACKENDS:
        medians = [report["median"] for report in reports if report["case"] == case]
        ratio = f"{medians[-1] / medians[0]:.2f}"
        table.add_row(case, *(f"{median:.2f} s" for median in medians), ratio)
    CONSOLE.print(table)


def plot_comparison(reports: list[dict[str, Any]], path: Path) -> None:
    """Draw rows per second as bars, with text keys."""
    reports = [report for report in reports if report["key"] == "string"]
    figure, axes = plt.subplots(figsize=(9, 4.5))
    names = [report["case"] for report in reports]
    rates = [report["rows_per_s"] for report in reports]
    colours = [
        "tab:blue" if name.startswith(("millpond", "vectorized")) else "tab:gray" for name in names
    ]
    bars = axes.barh(names[::-1], rates[::-1], color=colours[::-1])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_xlabel("rows/s, median batch, two cores")
    axes.set_title("A running total per key: 100,000 rows and 43,000 keys a micro-batch")
    axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def plot_growth(reports: list[dict[str, Any]], path: Path) -> None:
    """Draw seconds per batch over the number of keys in state."""
    figure, axes = plt.subplots(figsize=(9, 4.5))
    for case in BACKENDS:
        mine = [report for report in reports if report["case"] == case]
        axes.plot([r["keys"] for r in mine], [r["median"] for r in mine], "o-", label=case)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("keys in state")
    axes.set_ylabel("seconds a batch, median")
    axes.set_title("A batch on growing state")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=12, help="that count, in a round")
    parser.add_argument("--warm-up", type=int, default=80)
    parser.add_argument("--grown-batches", type=int, default=12)
    parser.add_argument("--grown-warm-up", type=int, default=40)
    parser.add_argument("--only", default="large,small,growth")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    sections = options.only.split(",")
    if "large" in sections:
        CONSOLE.print("Side by side:")
        compared = compare(options.rounds, options.batches, options.warm_up)
        print_comparison(compared)
        plot_comparison(compared, options.output / "throughput.png")
        (options.output / "throughput.json").write_text(json.dumps(compared, indent=1))
    if "small" in sections:
        CONSOLE.print("Small micro-batches:")
        small = compare_small(options.rounds, options.batches, options.warm_up)
        print_small(small)
        (options.output / "small.json").write_text(json.dumps(small, indent=1))
    if "growth" in sections:
        CONSOLE.print("With state grown beforehand:")
        grown = grow(options.grown_batches + options.grown_warm_up, options.grown_warm_up)
        print_growth(grown)
        plot_growth(grown, options.output / "growth.png")
        (options.output / "growth.json").write_text(json.dumps(grown, indent=1))
    CONSOLE.print(f"Written: JSON and plots in {options.output}")


if __name__ == "__main__":
    main()
