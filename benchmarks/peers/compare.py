"""Compare Millpond with PyFlink, Bytewax and Spark's Python state: the same rows and jobs.

`make bench-peers` runs each case in a process of its own, one after the other, with checkpoints
on. It prints a table and writes peers.json and peers.png. `--check` runs all jobs on few rows and
compares their output with plain Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import psutil
import rows
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".tools"
MILLPOND = ("heap", "rocksdb", "lmdb")
CONSOLE = Console(width=120)
TIMEOUT = 300
CHECKED = 100_000
SAMPLES_PER_SECOND = 4


class Engine:
    """A variant of an engine, its jobs and the rows that it gets.

    Slow variants get fewer rows, so that a case takes at most a few minutes.
    """

    def __init__(
        self, script: str, variant: str, count: int, jobs: tuple[str, ...] = rows.JOBS
    ) -> None:
        self.script, self.variant, self.count, self.jobs = script, variant, count, jobs

    @property
    def python(self) -> str:
        """Return the interpreter of the engine's environment."""
        name = {"flink_job.py": "peers-flink", "bytewax_job.py": "peers-bytewax"}.get(self.script)
        return str(TOOLS / name / "bin/python") if name else sys.executable

    @property
    def name(self) -> str:
        """Return the name for tables."""
        if self.script == "spark_job.py":
            return f"Millpond {self.variant}" if self.variant in MILLPOND else "Spark TWS"
        return f"PyFlink {self.variant}" if self.script == "flink_job.py" else "Bytewax"


ENGINES = (
    *(Engine("spark_job.py", backend, 3_000_000) for backend in MILLPOND),
    Engine("spark_job.py", "transformWithState", 300_000, ("sum", "map", "timer")),
    *(Engine("flink_job.py", variant, 100_000) for variant in ("hashmap", "hashmap-tuned")),
    *(Engine("flink_job.py", each, 100_000, ("sum",)) for each in ("rocksdb", "rocksdb-tuned")),
    Engine("flink_job.py", "hashmap-thread", 100_000),
    Engine("bytewax_job.py", "recovery", 1_000_000, ("sum", "window", "map")),
)
"""All variants.

Bytewax has timers of the system clock only, Spark's Python state no windows. PyFlink's store makes
little difference, so one job compares it.
"""


def memory(process: psutil.Process) -> int:
    """Return the proportional memory in bytes of a process and its descendants."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            total += each.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def kill(process: psutil.Process) -> None:
    """Kill a process and its descendants."""
    for each in [*process.children(recursive=True), process]:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue


def run(engine: Engine, job: str, count: int, folder: str, *, show: bool = False) -> dict[str, Any]:
    """Run one case and return its seconds, its peak memory in bytes, or why it failed."""
    command = [engine.python, str(HERE / engine.script), job, engine.variant]
    command += ["--rows", str(count), "--folder", folder, *(["--show"] if show else [])]
    report: dict[str, Any] = {"engine": engine.name, "job": job, "rows": count}
    begin, peak = time.time(), 0
    with Path(folder, "log").open("w+") as log:
        started = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while started.poll() is None:
            if time.time() - begin > TIMEOUT:
                kill(started)
                started.wait()
                return {**report, "failed": f"not finished after {TIMEOUT} s"}
            peak = max(peak, memory(started))
            time.sleep(1 / SAMPLES_PER_SECOND)
        end = time.time()
        log.seek(0)
        if started.returncode:
            return {**report, "failed": log.read()[-2_000:]}
    firsts = [float(file.read_text()) for file in Path(folder).glob("first-*")]
    if not firsts:
        return {**report, "failed": "no row reached a function"}
    first = min(firsts)
    ready = Path(folder, "begin")  # only jobs that first write their input to files have it
    begin = float(ready.read_text()) if ready.exists() else begin
    return {
        **report,
        "startup_s": first - begin,
        "seconds": end - first,
        "rows_per_s": count / (end - first),
        "peak_bytes": peak,
    }


def cases(chosen: str) -> Iterator[tuple[Engine, str]]:
    """Yield the engines and jobs whose name contains a text; a job's engines follow each other."""
    for job in rows.JOBS:
        for engine in ENGINES:
            if job in engine.jobs and chosen.lower() in f"{engine.name} {job}".lower():
                yield engine, job


def check(chosen: str) -> None:
    """Compare the output of all cases with plain Python; raise SystemExit if one differs."""
    for engine, job in cases(chosen):
        with tempfile.TemporaryDirectory(prefix="millpond-peers-") as folder:
            report = run(engine, job, CHECKED, folder, show=True)
            if "failed" in report:
                raise SystemExit(f"{engine.name}, {job}: {report['failed']}")
            texts = [file.read_text() for file in Path(folder).glob("rows-*")]
        wrong = difference(job, [json.loads(text) for part in texts for text in part.splitlines()])
        if wrong:
            raise SystemExit(f"{engine.name}, {job}: {wrong}")
        CONSOLE.print(f"{engine.name}, {job}: as in plain Python")


def difference(job: str, found: list[list[Any]]) -> str:
    """Return how output rows differ from plain Python, or an empty string.

    Engines with micro-batches fire timers and the last windows at other moments, so that these
    jobs are compared as far as they got.
    """
    if job == "timer":
        return "" if found else "no timer fired"
    wanted = rows.expected(job, CHECKED)
    last: dict[str, Any] = {}
    for name, value in found:
        last[name] = max(value, last.get(name, value))
    wrong = [name for name, value in last.items() if wanted.get(name) != value]
    if job != "window":
        wrong += [name for name in wanted if name not in last]
    return f"{wrong[0]}: {last.get(wrong[0])} instead of {wanted.get(wrong[0])}" if wrong else ""


def print_reports(reports: list[dict[str, Any]]) -> None:
    """Print one row per case."""
    table = Table("job", "engine", "rows", "start-up s", "steady s", "rows/s", "peak MB")
    for report in reports:
        shown = (f"{report['rows']:,}", report.get("failed", "").strip()[-60:], "", "", "")
        if "failed" not in report:
            shown = (
                f"{report['rows']:,}",
                f"{report['startup_s']:.1f}",
                f"{report['seconds']:.1f}",
                f"{report['rows_per_s']:,.0f}",
                f"{report['peak_bytes'] / 1e6:,.0f}",
            )
        table.add_row(report["job"], report["engine"], *shown)
    CONSOLE.print(table)


def plot(reports: list[dict[str, Any]], path: Path) -> None:
    """Draw the rows per second of the running total."""
    found = [r for r in reports if r["job"] == "sum" and "rows_per_s" in r][::-1]
    figure, axes = plt.subplots(figsize=(9, 4.5))
    colours = ["tab:blue" if r["engine"].startswith("Millpond") else "tab:gray" for r in found]
    bars = axes.barh([r["engine"] for r in found], [r["rows_per_s"] for r in found], color=colours)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_xlabel("rows/s after the start, two cores, checkpoints on")
    axes.set_title(f"A running total per key, {rows.KEYS:,} keys")
    axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--check", action="store_true", help="compare outputs with plain Python")
    options = parser.parse_args()
    if options.check:
        check(options.only)
        return
    reports = []
    for engine, job in cases(options.only):
        CONSOLE.print(f"  {engine.name}, {job}, {engine.count:,} rows …")
        with tempfile.TemporaryDirectory(prefix="millpond-peers-") as folder:
            reports.append(run(engine, job, engine.count, folder))
    print_reports(reports)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "peers.json").write_text(json.dumps(reports, indent=1))
    plot(reports, options.output / "peers.png")


if __name__ == "__main__":
    main()
