"""Measure an inner interval join of two streams: Millpond's backends next to Spark's own join.

Usage: joins.py [--rows 50000] [--keys 40000] [--batches 8] [--case heap] [--output out/bench]

In each micro-batch, both streams have `--rows` rows of `--keys` keys, spread over a minute of event
time. A left row matches the right rows of its key that are at most 30 s away. The watermark's delay
is 10 s. Each case has a process of its own. The figures are seconds per micro-batch, after five
others: wall-clock time, and processor time of the driver, the JVM and the workers together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from columns import Stopwatch, session
from millpond.spark import key_by
from own_process import run_cases
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CASES = ("spark-memory", "spark-rocksdb", "heap", "rocksdb", "lmdb")
PROVIDERS = {
    "spark-memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "spark-rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
MINUTE = 60_000_000
NEAR = 30_000
WARM_UP = 5


def write(folder: Path, batches: Sequence[int], given: argparse.Namespace) -> None:
    """Write a file of each stream for each of the micro-batches."""
    for batch in batches:
        for number, name in enumerate(("left", "right")):
            random = np.random.default_rng((batch, number))
            times = batch * MINUTE + random.integers(0, MINUTE, given.rows)
            keys = random.integers(0, given.keys, given.rows)
            table = pa.table(
                {
                    "k": pa.array([f"customer-{key:08d}" for key in keys]),
                    f"{name}_at": pa.array(times, pa.timestamp("us", "UTC")),
                    f"{name}_id": pa.array(range(given.rows), pa.int64()),
                    f"{name}_amount": pa.array(random.random(given.rows)),
                }
            )
            path = folder / name / f"{batch:04d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(table, path)
            os.utime(path, (batch + 1, batch + 1))  # Spark reads files in the order of their times


def stream(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    """Return one of the streams, with a file for each micro-batch."""
    schema = f"k string, {name}_at timestamp, {name}_id bigint, {name}_amount double"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / name)).withWatermark(f"{name}_at", "10 seconds")


def joined(case: str, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the join of a case."""
    if case not in PROVIDERS:
        by_key = key_by(right, "k")
        return key_by(left, "k").interval_join(by_key, lower=-NEAR, upper=NEAR, uid="joined")
    seconds = f"INTERVAL {NEAR // 1000} SECONDS"
    near_by = f"right_at BETWEEN left_at - {seconds} AND left_at + {seconds}"
    return left.join(right, (left.k == right.k) & F.expr(near_by)).drop(right.k)


def measured(case: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of a micro-batch of a case."""
    spark = session()
    if case in PROVIDERS:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS[case])
    else:
        spark.conf.set("spark.millpond.state.backend", case)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spark.conf.set("spark.millpond.checkpoint.dir", (folder / "snapshots").as_uri())
        write(folder, range(WARM_UP), given)
        df = joined(case, stream(spark, folder, "left"), stream(spark, folder, "right"))
        writer = df.writeStream.format("noop").option("checkpointLocation", str(folder / "query"))
        writer.trigger(availableNow=True).start().awaitTermination()
        write(folder, range(WARM_UP, WARM_UP + given.batches), given)
        watch = Stopwatch()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        found = watch.read("run")
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        spark.stop()
    walls = [each["durationMs"]["triggerExecution"] / 1000 for each in batches]
    return {
        "batch_s": statistics.median(walls),
        "batch_cpu_s": found["run_cpu_s"] / len(batches),
        "rows_per_s": 2 * given.rows / statistics.median(walls),
        "rows": given.rows,
    }


def main() -> None:
    """Run each case in a process of its own; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=40_000)
    parser.add_argument("--batches", type=int, default=8)
    run_cases(parser, CASES, measured)


if __name__ == "__main__":
    main()
