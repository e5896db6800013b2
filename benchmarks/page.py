"""Write docs/quality/benchmarks.md and its pictures from the measurements of the benchmarks.

page.md next to this file has the text; this script makes the tables. A section without a new
measurement is left unchanged, and each section states the day of its measurement.

Usage: page.py [FOLDER]   (default: out/bench, the output of `make bench`)
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import Any

import goals
from breakdown import OWN
from by_hand import times
from goals import BACKENDS
from large import OF_KEYS, OF_ROWS
from planned import compared
from startup import batch_cells
from throughput import AGGREGATION, AGGREGATIONS, ratio
from windows import FLOOR

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
WORKER_PARTS = (
    "total",
    "decode",
    "loop and keys",
    "function",
    "state calls",
    "flush",
    "snapshot",
    "encode",
    "rest",
    "vectorized",
)
PICTURES = (
    "throughput.png",
    "growth.png",
    "checkpoints.png",
    "breakdown.png",
    "ttl.png",
    "wrappers.png",
    "windows.png",
    "peers.png",
)


def line(first: str, cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return "| " + " | ".join((first, *cells)) + " |"


def ttl_row(name: str, samples: list[dict[str, Any]], fresh: int) -> str:
    """Return the worst ratios of one backend after the first entries have expired."""
    late = [sample for sample in samples if sample["day"] > 5]
    entries = max(sample["stored"] / sample["live"] for sample in late)
    size = f"{max(sample['bytes'] for sample in late) / fresh:.2f}" if fresh else "–"
    return f"| {name} | {entries:.2f} | {size} |"


def spread(report: dict[str, Any]) -> float:
    """Return half the distance between the quartiles of a case's batches, in seconds."""
    seconds: list[float] = report["seconds"]
    low, _, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2


def lists(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return the rows of appends to lists, by backend and length."""
    return [
        f"| {name} | {r['length']:,} | {r['append_ms']:.2f} | {r['delta_bytes']:,.0f} "
        f"| {r['read_ms']:.3f} | {r['read_whole_ms']:.3f} |"
        for name in BACKENDS
        for r in found[name]
    ]


def sorted_maps(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the rows of sorted maps, by backend, place and size."""
    operations = ("put", "range", "range_back", "pop_first")
    return [
        f"| {name} | {'memory' if name == 'heap' else r['place']} | {r['size']:,} | "
        + " | ".join(f"{r[operation]:.0f}" for operation in operations)
        + " |"
        for name in BACKENDS
        for r in found[name]
    ]


def joins(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the rows of interval joins, by case."""
    return [
        f"| {name} | {r['batch_s']:.2f} | {r['batch_cpu_s']:.2f} | {r['rows_per_s']:,.0f} |"
        for name, r in found.items()
    ]


def patterns(found: dict[str, dict[str, float]]) -> list[str]:
    """Return the rows of the search for patterns, by backend."""
    cases = ("pair_event", "pair_clock", "loop_event", "loop_clock")
    return [
        f"| {name} | " + " | ".join(f"{found[name][case]:.0f}" for case in cases) + " |"
        for name in BACKENDS
    ]


def options(found: dict[str, dict[str, float]]) -> list[str]:
    """Return the rows of the options of an operator, by case."""
    return [line(case, (f"{found[b][case]:.1f}" for b in BACKENDS)) for case in found["heap"]]


def comparison(reports: list[dict[str, Any]]) -> list[str]:
    """Return the rows of the first table."""
    cases = {(report["key"], report["case"]): report for report in reports}
    tws = cases["string", "spark-tws-row"]
    lines = []
    for r in reports:
        times = " | ".join(ratio(r, cases[r["key"], case]) for case in AGGREGATIONS)
        speed = f"{r['rows_per_s'] / tws['rows_per_s']:.1f}"
        lines.append(
            f"| {r['key']} | {r['case']} | {r['rows']:,} | {r['median']:.2f} ± {spread(r):.2f} "
            f"| {r['rows_per_s']:,.0f} | {times} | {speed} |"
        )
    return lines


def small(reports: list[dict[str, Any]]) -> list[str]:
    """Return the rows of small micro-batches."""
    cases = {(report["rows"], report["case"]): report for report in reports}
    lines = []
    for r in reports:
        times = ratio(r, cases[r["rows"], AGGREGATION])
        parts = (f"{took:.0f}" for took in r["parts"].values())
        cells = (r["case"], f"{r['median']:.3f} ± {spread(r):.3f}", times, *parts)
        lines.append(line(f"{r['rows']:,}", cells))
    return lines


def imports(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the processor times of imports."""
    return [line(name, (f"{took:.0f}",)) for name, took in report["imports"].items()]


def first_batches(found: dict[str, dict[str, float]]) -> list[str]:
    """Return the parts of the first batches, by case."""
    return [line(case, batch_cells(parts)) for case, parts in found.items()]


def growth(reports: list[dict[str, Any]]) -> list[str]:
    """Return the rows of growing state."""
    lines = []
    for case in dict.fromkeys(report["case"] for report in reports):
        medians = [report["median"] for report in reports if report["case"] == case]
        cells = " | ".join(f"{median:.2f} s" for median in medians)
        lines.append(f"| {case} | {cells} | {medians[-1] / medians[0]:.2f} |")
    return lines


def checkpoint_cost(reports: list[dict[str, Any]]) -> list[str]:
    """Return the bytes that snapshots write."""
    return [
        f"| {r['backend']} | {r['touched_bytes']:,} | {r['written']:,} "
        f"| {r['written'] / r['touched_bytes']:.2f} |"
        for r in reports
    ]


def checkpoint_speed(reports: list[dict[str, Any]]) -> list[str]:
    """Return the times of restores and rescales."""
    return [
        f"| {r['backend']} | {r['bare loop']:.2f} | {r['restore']:.2f} "
        f"| {r['bare loop'] / r['restore']:.0%} | {r['2 to 2']:.2f} | {r['2 to 3']:.2f} "
        f"| {r['3 to 2']:.2f} | {max(r['2 to 3'], r['3 to 2']) / r['2 to 2']:.2f} "
        f"| {r['catch_up_ms']:.0f} |"
        for r in reports
    ]


def many_keys(report: dict[str, Any]) -> list[str]:
    """Return a table with few keys and with many; one column per backend."""
    found = report["keys"]
    head = [line("", found), "|---|" + "---:|" * len(found)]
    return head + [line(name, map(tell, found.values())) for name, tell in OF_KEYS.items()]


def many_rows(report: dict[str, Any]) -> list[str]:
    """Return one large micro-batch by backend and size of the write buffer."""
    first, *others = OF_ROWS
    head = [line(first, others), "|---|" + "---:|" * len(others)]
    told = ([tell(row) for tell in OF_ROWS.values()] for row in report["rows"])
    return head + [line(first, others) for first, *others in told]


def breakdown(results: dict[str, dict[str, dict[str, dict[str, float]]]]) -> list[str]:
    """Return two tables per size of batch: wall-clock and processor time by part."""
    lines: list[str] = []
    for rows, found in results.items():
        for kind in ("wall", "processor"):
            parts = dict.fromkeys(part for each in found.values() for part in each[kind])
            lines += ["", f"{int(rows):,} rows a batch, {kind} time:", "", line("part, ms", found)]
            lines.append("|---|" + "---:|" * len(found))
            lines += [
                line(part, (f"{each[kind][part]:,.0f}" for each in found.values()))
                for part in parts
            ]
            lines.append(line("sum", (f"{sum(e[kind].values()):,.0f}" for e in found.values())))
    return lines[1:]


def spark_alone(results: dict[str, dict[str, dict[str, dict[str, float]]]]) -> list[str]:
    """Return Spark's own share of a batch: a floor for every backend and function."""
    lines = []
    for rows, found in results.items():
        aggregation = sum(found["spark-jvm-agg"]["wall"].values())
        for case, parts in found.items():
            whole = sum(parts["wall"].values())
            own = sum(parts["wall"][name] for name in OWN)
            cells = (case, f"{whole:,.0f}", f"{own:,.0f}", f"{whole - own:,.0f}")
            times = (f"{whole / aggregation:.2f}", f"{(whole - own) / aggregation:.2f}")
            lines.append(line(f"{int(rows):,}", (*cells, *times)))
    return lines


def worker(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the parts of a row in the worker, in microseconds."""
    return [
        line(case, (f"{parts[part]:.2f}" if part in parts else "–" for part in WORKER_PARTS))
        for case, parts in report.items()
    ]


def by_hand(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the state calls next to the bare stores."""
    kinds = [kind for kind in next(iter(report.values())) if not kind.startswith("bare ")]
    lines = [line("backend", kinds), "|---|" + "---:|" * len(kinds)]
    for backend, found in report.items():
        lines.append(line(backend, (f"{found[kind]:.2f}{times(found, kind)}" for kind in kinds)))
    return lines


def by_hand_steps(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the steps of a read-modify-write."""
    names = list(next(iter(report.values())))
    lines = [line("backend and state", [*names, "sum"]), "|---|" + "---:|" * (len(names) + 1)]
    for backend, found in report.items():
        cells = (*found.values(), sum(found.values()))
        lines.append(line(backend, (f"{took:.2f}" for took in cells)))
    return lines


def windows(report: dict[str, dict[str, Any]]) -> list[str]:
    """Return the seconds of whole queries, and their ratios to Spark's."""
    spark = ("spark-default", "spark")
    lines = []
    for kind, each in report.items():
        took = {case: found["median"] for case, found in each.items()}
        told = {case: f"{took[case]:.2f} ± {spread(each[case]):.2f}" for case in each}
        ours = (
            f"{told[b]} (" + ", ".join(f"×{took[b] / took[case]:.2f}" for case in spark) + ")"
            for b in BACKENDS
        )
        lines.append(line(kind, (*(told[case] for case in (*spark, FLOOR)), *ours)))
    return lines


def wrappers(report: dict[str, Any]) -> list[str]:
    """Return the costs of the wrappers."""
    ns, more = report["ns"], report["more"]
    return [
        line(case, (f"{ns[b][case]:,.0f} ns ({more[b][case]:+.0%})" for b in BACKENDS))
        for case in ns["heap"]
    ]


def queries(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the times of queries from another process."""
    return [
        line(
            name,
            (f"{q['open_s']:.1f}", *(f"{q[at]:.3f}" for at in ("p50_ms", "p99_ms", "max_ms"))),
        )
        for name, q in report.items()
    ]


def footprint(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the bytes of a key, and the time of its restore."""
    parts = ("memory", "disk", "highest_disk", "snapshot")
    lines = []
    for case, each in report.items():
        backend, bytes_ = case.split()
        sizes = (f"{each[part]:,.0f}" for part in parts)
        cells = (bytes_, f"{each['bytes']:,.0f}", *sizes, f"{each['restore_us']:.2f}")
        lines.append(line(backend, cells))
    return lines


def bootstrapping(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the time and the memory of savepoints from rows."""
    return [
        line(
            case.split()[0],
            (
                f"{each['keys']:,.0f}",
                f"{each['processor']:.1f}",
                f"{each['processor'] / each['keys'] * 1e6:.1f}",
                f"{each['memory'] / 1e6:,.0f}",
            ),
        )
        for case, each in report.items()
    ]


def scale(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the cost of subtasks and partitions."""
    lines = []
    for case, each in report.items():
        times = (
            f"{each[part]:,.0f}" for part in ("driver", "tasks", "workers", "batch", "planning")
        )
        sizes = (f"{each['subtask']:.1f}", f"{each['files']:.0f}", f"{each['bytes'] / 1e3:,.0f}")
        last = (f"{each['layout'] / 1e3:,.1f}", f"{each['restart']:.1f}")
        lines.append(line(case.split()[0], (*case.split()[1:], *times, *sizes, *last)))
    return lines


def planned(report: dict[str, dict[str, float]]) -> list[str]:
    """Return plans next to measurements."""
    return [
        line(
            case,
            (
                name,
                f"{each['plan']:,.1f}",
                f"{each['measured']:,.1f}",
                f"{each['measured'] / each['plan']:.2f}" if each["plan"] else "–",
            ),
        )
        for case, found in report.items()
        for name, each in compared(case, found).items()
    ]


def storage_requests(report: dict[str, dict[str, Any]]) -> list[str]:
    """Return the requests of a subtask to S3 per batch."""
    found = {case: each["requests"] for case, each in report.items() if case.startswith("s3, ")}
    methods = ("PUT", "HEAD", "GET", "DELETE")
    return [
        line(case.removeprefix("s3, "), (f"{each.get(method, 0):g}" for method in methods))
        for case, each in found.items()
    ]


def columns(report: dict[str, dict[str, float]]) -> list[str]:
    """Return the costs of a thousand columns."""
    parts = ("build_cpu_s", "first_batch_cpu_s", "batch_cpu_s")
    return [line(case, (f"{each[part]:.1f}" for part in parts)) for case, each in report.items()]


def peers(reports: list[dict[str, Any]]) -> list[str]:
    """Return the rows per second of other stream engines, or why a case has no figures."""
    lines = []
    for r in reports:
        cells = (r["engine"], f"{r['rows']:,}")
        if "failed" in r:
            lines.append(line(r["job"], (*cells, "–", r["failed"].strip().splitlines()[-1], "–")))
            continue
        rates = (
            f"{r['startup_s']:.1f}",
            f"{r['rows_per_s']:,.0f}",
            f"{r['peak_bytes'] / 1e6:,.0f}",
        )
        lines.append(line(r["job"], (*cells, *rates)))
    return lines


TABLES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "comparison": ("throughput", comparison),
    "rounds": ("throughput", lambda found: [str(max(each.get("rounds", 1) for each in found))]),
    "warm_up": ("throughput", lambda found: [str(found[0]["warm_up"])]),
    "peers": ("peers", peers),
    "small": ("small", small),
    "small_warm_up": ("small", lambda found: [str(found[0]["warm_up"])]),
    "startup_imports": ("startup", imports),
    "startup_first": ("startup", lambda found: first_batches(found["first"])),
    "startup_restart": ("startup", lambda found: first_batches(found["restart"])),
    "growth": ("growth", growth),
    "keys": ("checkpoints", lambda found: [f"{found[0]['keys']:,}"]),
    "cost": ("checkpoints", checkpoint_cost),
    "speed": ("checkpoints", checkpoint_speed),
    "many_keys": ("large", many_keys),
    "many_rows": ("large", many_rows),
    "spark_alone": ("breakdown", spark_alone),
    "breakdown": ("breakdown", breakdown),
    "worker": ("worker", worker),
    "by_hand": ("by_hand", by_hand),
    "by_hand_steps": ("by_hand_steps", by_hand_steps),
    "windows": ("windows", windows),
    "wrappers": ("wrappers", wrappers),
    "options": ("options", options),
    "ttl": (
        "ttl",
        lambda found: [ttl_row(b, found["samples"][b], found["fresh"][b]) for b in BACKENDS],
    ),
    "lists": ("lists", lists),
    "sorted_maps": ("sorted_maps", sorted_maps),
    "joins": ("joins", joins),
    "patterns": ("patterns", patterns),
    "goals_throughput": ("throughput", goals.throughput),
    "goals_small": ("small", goals.small),
    "goals_worker": ("worker", goals.worker),
    "goals_by_hand": ("by_hand", goals.by_hand),
    "goals_windows": ("windows", goals.windows),
    "goals_checkpoints": ("checkpoints", goals.checkpoints),
    "queries": ("queries", queries),
    "columns": ("columns", columns),
    "footprint": ("footprint", footprint),
    "bootstrapping": ("bootstrapping", bootstrapping),
    "scale": ("scale", scale),
    "planned": ("planned", planned),
    "storage_requests": ("storage_requests", storage_requests),
}
"""The measurements that page.md names, and the functions that make their lines."""


def sections(text: str) -> dict[str, str]:
    """Return the sections of a page by heading, after the part before the first heading."""
    head, *parts = text.split("\n## ")
    return {"": head} | {part.partition("\n")[0]: f"\n## {part}" for part in parts}


def written(words: str, folder: Path) -> str | None:
    """Return a section of page.md with its tables and day, or None if it was not measured."""
    names = [name for _, name, _, _ in Formatter().parse(words) if name]
    files = {name: folder / f"{TABLES[name][0]}.json" for name in names}
    if not all(file.exists() for file in files.values()):
        return None
    tables = {name: TABLES[name][1](json.loads(file.read_text())) for name, file in files.items()}
    text = words.format(**{name: "\n".join(lines) for name, lines in tables.items()})
    days = {datetime.fromtimestamp(file.stat().st_mtime, UTC).date() for file in files.values()}
    return text + "".join(f"\nMeasured on {day}.\n" for day in sorted(days))


def main(folder: Path) -> None:
    """Write the page; sections without a new measurement are left unchanged."""
    page = DOCS / "quality" / "benchmarks.md"
    before = sections(page.read_text())
    words = sections((HERE / "page.md").read_text())
    made = {heading: written(text, folder) for heading, text in words.items()}
    kept = (before.get(heading, "") if text is None else text for heading, text in made.items())
    page.write_text("".join(kept))
    for picture in PICTURES:
        if (folder / picture).exists():
            shutil.copy(folder / picture, DOCS / "images" / picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/bench"))
