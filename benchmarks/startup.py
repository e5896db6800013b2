"""Measure start-up: imports, the first batch of a session, and a restart with a large state.

The script prints three tables and writes startup.json:

* the processor time of imports, the best of ten processes;
* the time from building a query to the end of its first batch, in a session that has run no query;
* the same for a query that continues with a million keys, in a session and a JVM of its own.

The cases take turns, round by round, and a figure is the median over the rounds. Python may write
its bytecode, as in an installation by pip, even if the environment forbids it.

Usage: startup.py [--only imports,first,restart] [--rounds 3] [--rows 100000] [--keys 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from own_process import run_in_own_process, tell
from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=130)
CASES = (
    "repartition",
    "spark-jvm-agg",
    "millpond-heap",
    "millpond-rocksdb",
    "millpond-lmdb",
)
IMPORTS = {
    "numpy, pyarrow": ("", "numpy, pyarrow"),
    "attrs, cattrs, msgspec, pluggy": ("", "attrs, cattrs, msgspec, pluggy"),
    "millpond": ("", "millpond"),
    "millpond after pyarrow": ("import pyarrow", "millpond"),
    "pyspark.sql": ("", "pyspark.sql"),
    "pyspark.sql, pandas, pyarrow": ("", "pyspark.sql, pandas, pyarrow"),
    "millpond.spark after pyspark.sql, pandas, pyarrow": (
        "import pyspark.sql, pandas, pyarrow",
        "millpond.spark",
    ),
    "worker after pyspark.worker, pandas, pyarrow": (
        "import pyspark.worker, pandas, pyarrow",
        "millpond_spark.worker.task",
    ),
}
"""The measured imports: those that come before, and the measured one."""

PARTS = ("to the trigger", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def import_times(count: int = 10) -> dict[str, float]:
    """Return the processor milliseconds of each import."""
    return {
        name: min(_import_time(*statements) for _ in range(count))
        for name, statements in IMPORTS.items()
    }


def _import_time(before: str, measured: str) -> float:
    code = (
        f"{before}\nimport time\nbegan = time.process_time()\nimport {measured}\n"
        "print((time.process_time() - began) * 1000)"
    )
    return float(subprocess.check_output([sys.executable, "-c", code]))


def first_batch(case: str, rows: int, root: Path) -> dict[str, float]:
    """Run a query over one more file in a new session; return the parts of the time in ms."""
    import cases  # noqa: PLC0415 - the process that measures imports has no Spark
    from millpond.spark import subtask_metrics  # noqa: PLC0415
    from one_case import write_batches  # noqa: PLC0415
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(cases)  # type: ignore[no-untyped-call]
    folder = root / "input"
    folder.mkdir(exist_ok=True)
    keys = max(rows, 100_000)
    write_batches(folder, 0, keys, rows, rows * 43 // 100, 1, first=len(list(folder.iterdir())))
    spark = cases.session(case, root / "snapshots")
    began = time.time()
    query = start(spark, case, root)
    query.awaitTermination()
    (first, *_) = (each for each in query.recentProgress if each.numInputRows)
    triggered = datetime.fromisoformat(str(first.timestamp)).timestamp()
    parts = {"to the trigger": (triggered - began) * 1000, **first.durationMs}
    parts["whole"] = parts["to the trigger"] + parts["triggerExecution"]
    if case.startswith("millpond"):
        found = [each.metrics for each in subtask_metrics(spark, str(root / "checkpoint"))]
        parts["open"] = max(float(str(each["open_ms"])) for each in found)
    spark.stop()
    return {name: float(value) for name, value in parts.items()}


def start(spark: Any, case: str, root: Path) -> Any:
    """Start the query of a case over the files that it has not read yet, one per batch."""
    from cases import CASES as JOBS  # noqa: PLC0415 - the process that measures imports has no Spark
    from cases import INPUT_SCHEMA  # noqa: PLC0415

    stream = spark.readStream.schema(INPUT_SCHEMA).option("maxFilesPerTrigger", 1)
    output = JOBS[case][0](stream.parquet(str(root / "input")))
    mode = "update" if case.startswith("spark") else "append"
    writer = output.writeStream.format("noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def grow(case: str, keys: int, root: Path) -> dict[str, float]:
    """Write a state of many keys."""
    import cases  # noqa: PLC0415 - as above
    from one_case import write_batches  # noqa: PLC0415
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(cases)  # type: ignore[no-untyped-call]
    (root / "input").mkdir()
    write_batches(root / "input", keys, keys, 0, 0, 0)
    spark = cases.session(case, root / "snapshots")
    start(spark, case, root).awaitTermination()
    spark.stop()
    return {}


def rounds_of(options: argparse.Namespace, keys: int) -> dict[str, dict[str, float]]:
    """Return the median of each part for each case; with `keys`, after a restart."""
    samples: dict[str, list[dict[str, float]]] = {case: [] for case in options.cases.split(",")}
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        for case in samples if keys else ():
            root = Path(name) / case
            root.mkdir()
            run_in_own_process("startup.py", [], {"grow": case, "keys": keys, "root": str(root)})
        for number in range(options.rounds):
            for case, found in samples.items():
                root = Path(name) / (case if keys else f"{case}-{number}")
                root.mkdir(exist_ok=True)
                given = {"case": case, "rows": options.rows, "root": str(root)}
                found.append(run_in_own_process("startup.py", [], given))
    return {
        case: {part: statistics.median(each[part] for each in found) for part in found[0]}
        for case, found in samples.items()
    }


def batch_cells(parts: dict[str, float]) -> list[str]:
    """Return the cells of a first batch: the whole in seconds, and its parts in ms."""
    opened = f"{parts['open']:,.0f}" if "open" in parts else "–"
    figures = (f"{parts[part]:,.0f}" for part in PARTS)
    return [f"{parts['whole'] / 1000:.2f}", *figures, opened]


def print_batches(title: str, found: dict[str, dict[str, float]]) -> None:
    """Print a table of first batches."""
    table = Table("case", "whole, s", *(f"{part}, ms" for part in PARTS), "open, ms", title=title)
    for case, parts in found.items():
        table.add_row(case, *batch_cells(parts))
    CONSOLE.print(table)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--only", default="imports,first,restart")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--case", help="run the first batch of this case, in this process")
    parser.add_argument("--grow", help="write the state of this case, in this process")
    parser.add_argument("--root", type=Path, help="the folder of --case and --grow")
    return parser.parse_args()


def main() -> None:
    """Measure the sections, print them and write them."""
    options = arguments()
    if options.case:
        return tell(first_batch(options.case, options.rows, options.root))
    if options.grow:
        return tell(grow(options.grow, options.keys, options.root))
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="millpond-bytecode-") as bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        sections = options.only.split(",")
        report["imports"] = import_times(10 if "imports" in sections else 1)  # writes the bytecode
        if "imports" in sections:
            table = Table("import", "processor time, ms")
            for name, took in report["imports"].items():
                table.add_row(name, f"{took:.0f}")
            CONSOLE.print(table)
        if "first" in sections:
            report["first"] = rounds_of(options, 0)
            print_batches("The first batch of a session", report["first"])
        if "restart" in sections:
            report["restart"] = rounds_of(options, options.keys)
            print_batches(
                f"The first batch after a restart with {options.keys:,} keys", report["restart"]
            )
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "startup.json").write_text(json.dumps(report, indent=1))
    return None


if __name__ == "__main__":
    main()
