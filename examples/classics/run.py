"""Run the classic jobs locally and on Spark, check and draw their results.

Usage: run.py [NAME …] [--backend rocksdb] [--retail FOLDER] [--docs FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
from data import END, SCHEMA, Row, made_up, retail
from millpond.spark import configure, key_by
from pyspark import cloudpickle
from pyspark.sql import SparkSession

mpl.use("agg")
import matplotlib.pyplot as plt

NAMES = (
    "sessions", "hot_items", "fraud", "dedup", "buffering", "enrichment", "interval_join",
)  # fmt: skip
PARTS = 3
INPUT = """The input has a row for each order line of a shop:

| column | content |
|---|---|
| `customer`, `item`, `country` | strings |
| `line` | the line's unique name, a string |
| `ms` | the time of the order, in milliseconds since 1970 |
| `cents` | the price, in cents |
| `t` | only on Spark: the time of the order as a timestamp, with a watermark |
| `arrival` | only on Spark: the number of the row |

`local(rows)` runs the job without Spark and returns the results. `spark(lines, key_by)` builds the
job on Spark and returns the DataFrame of the results. Its argument `lines` is a streaming DataFrame
with the input, and `key_by` is the function of `millpond.spark`. [First job](../start.md) shows the
rest of a script: the session, the source, the sink and the `checkpointLocation`."""
CHECKED = """Millpond's repository has this job as `examples/classics/{name}.py`. The job is not in
the packages that pip installs. In a clone of the repository, run
`python examples/classics/run.py {name}`. The script generates the rows, runs the job locally and
on Spark, and checks both results."""


def check(job: Any, rows: list[Row], result: list[Any], where: str) -> None:
    """Compare a result with the expected one, by the job's own check if it has one."""
    own = getattr(job, "check", None)
    if own is not None:
        own(rows, result)
    else:
        found, wanted = sorted(map(tuple, result)), sorted(job.expected(rows))
        assert found == wanted, f"{where}: {len(found)} rows, {len(wanted)} expected"
    print(f"{job.TITLE}, {where}: {len(result)} rows, as expected", flush=True)


@contextmanager
def spark_session(folder: Path, backend: str) -> Iterator[Any]:
    """Return a small local session that listens on loopback only."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("millpond classics")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    configure(builder, parallelism=2)
    session = builder.getOrCreate()
    session.conf.set("spark.millpond.state.backend", backend)
    yield session
    session.stop()


def run_on_spark(spark: Any, job: Any, rows: list[Row], folder: Path) -> list[Any]:
    """Stream the rows from a few files and return the output."""
    # The workers do not know this folder, so the job travels by value.
    cloudpickle.register_pickle_by_value(job)
    spark.conf.set("spark.millpond.checkpoint.dir", (folder / "snapshots").as_uri())
    source, second = folder / "lines", folder / "second"
    for target in (source, second):
        target.mkdir(parents=True)
    rows = getattr(job, "repeated", list)(rows)
    if not hasattr(job, "check"):
        rows = [*rows, END]
    step = -(-len(rows) // PARTS)
    for part in range(PARTS):
        numbered = enumerate(rows[part * step : (part + 1) * step], part * step)
        text = "\n".join(json.dumps({**row, "arrival": at}) for at, row in numbered)
        file = source / f"{part}.json"
        file.write_text(text)
        # Spark takes files by their time, of which two that are written at once have the same.
        os.utime(file, times=(part + 1, part + 1))
    if hasattr(job, "SECOND"):
        (second / "0.json").write_text("\n".join(map(json.dumps, job.SECOND)))
        job.SECOND_FOLDER = str(second)
    reader = spark.readStream.schema(f"{SCHEMA}, arrival bigint").option("maxFilesPerTrigger", 1)
    lines = reader.json(str(source)).selectExpr("*", "timestamp_millis(ms) as t")
    lines = lines.withWatermark("t", "14 days")
    found = streamed(job.spark(lines, key_by), folder / "ours")
    if hasattr(job, "by_spark"):
        theirs = streamed(job.by_spark(lines), folder / "theirs")
        assert sorted(found) == sorted(theirs), "Spark's own join gives something else"
    return found


def streamed(df: Any, folder: Path) -> list[Any]:
    """Run a query over all available rows and return the output."""
    writer = df.writeStream.trigger(availableNow=True).format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.option("path", str(folder / "out")).start().awaitTermination()
    rows = map(tuple, df.sparkSession.read.parquet(str(folder / "out")).collect())
    return [row for row in rows if END["customer"] not in row]


def draw(job: Any, result: list[Any], path: Path) -> None:
    """Draw the job's picture."""
    figure, axis = plt.subplots(figsize=(8, 4))
    job.draw(axis, result)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(name: str) -> str:
    """Return the docs page of a job: its purpose, picture, input and source."""
    job, picture = import_module(name), name.replace("_", "-")
    source = (Path(__file__).parent / f"{name}.py").read_text()
    text = (job.__doc__ or "").partition(": ")[2].strip()
    head = f"# {job.TITLE}\n\n{text[0].upper()}{text[1:]}"
    image = f"![{job.TITLE}](../images/classic-{picture}.png)"
    source = source[source.index("from __future__") : source.index("def expected(")].rstrip()
    source = source.replace(f'TITLE = "{job.TITLE}"\n', "")
    parts = (head, image, INPUT, f"```python no-run\n{source}\n```", CHECKED.format(name=name))
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Run the named jobs, or all jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--backend", default="rocksdb")
    parser.add_argument("--retail", type=Path, help="the folder of the Online Retail data")
    parser.add_argument("--docs", type=Path, help="write pages and pictures below this folder")
    given = parser.parse_args()
    rows = retail(given.retail) if given.retail else made_up()
    with tempfile.TemporaryDirectory(prefix="millpond-classics-") as temporary:
        root = Path(temporary)
        with spark_session(root, given.backend) as spark:
            for name in given.names or NAMES:
                job = import_module(name)
                check(job, rows, job.local(rows), "locally")
                result = run_on_spark(spark, job, rows, root / name)
                check(job, rows, result, f"on Spark with {given.backend}")
                if given.docs is not None:
                    target = name.replace("_", "-")
                    draw(job, result, given.docs / "images" / f"classic-{target}.png")
                    (given.docs / "examples" / f"{target}.md").write_text(page(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
