"""The retail job, which runs in its own process so that tests can kill it.

Usage: retail_job.py BACKEND ROOT DATA [--to-the-end] [--master MASTER] [--files N]
       [--parallelism N] [--restore SAVEPOINT]
"""

from __future__ import annotations

import argparse
import sys
from decimal import Decimal
from pathlib import Path

import millpond as mp
from millpond.spark import configure, key_by
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.quick import QUICK_JVM, quick_files

SCHEMA = (
    "InvoiceNo string, StockCode string, Description string, Quantity int, InvoiceDate timestamp, "
    "UnitPrice decimal(12,3), CustomerID string, Country string"
)
OUTPUT = (
    "customer string, invoice string, stock string, quantity int, lines bigint, spent decimal(20,3)"
)
UID = "retail-totals"


class RetailTotals(mp.KeyedProcessFunction):
    """Function that keeps lines, money and pieces of each article, by customer; cancellations are subtracted."""

    def open(self, context):
        self.lines = context.get_state(mp.ValueStateDescriptor("lines", int, default=0))
        self.spent = context.get_state(mp.ValueStateDescriptor("spent", Decimal))
        self.pieces = context.get_map_state(mp.MapStateDescriptor("pieces", str, int))

    def process_element(self, row, context):
        lines = self.lines.value() + 1
        spent = (self.spent.value() or Decimal(0)) + row.Quantity * row.UnitPrice
        self.lines.update(lines)
        self.spent.update(spent)
        self.pieces[row.StockCode] = self.pieces.get(row.StockCode, 0) + row.Quantity
        yield row.CustomerID, row.InvoiceNo, row.StockCode, row.Quantity, lines, spent


def session(master, root, backend, parallelism, restore):
    """Return a session whose local directories are under the root."""
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(root / "local"))
        .config("spark.log.level", "ERROR")
        .config("spark.executor.extraJavaOptions", QUICK_JVM)
        .config("spark.executorEnv.PYTHONPATH", ":".join(sys.path))
    )
    for key, value in quick_files().items():
        builder = builder.config(key, value)
    started_from = {"checkpoint_restore": restore} if restore else {}
    configure(
        builder,
        parallelism=parallelism,
        state_backend=backend,
        checkpoint_dir=(root / "snapshots").as_uri(),
        **started_from,
    )
    return builder.getOrCreate()


def start(spark, root, data, files, to_the_end):
    """Start the query; rows without a customer go to the same sink unchanged."""
    lines = (
        spark.readStream.schema(SCHEMA)
        .options(header=True, maxFilesPerTrigger=files)
        .csv(str(data))
    )
    keyed = key_by(lines, "CustomerID", null_keys="aside")
    totals = keyed.process(RetailTotals(), output=OUTPUT, uid=UID)
    aside = keyed.null_key_rows.select(
        F.lit(None).cast("string").alias("customer"),
        F.col("InvoiceNo").alias("invoice"),
        F.col("StockCode").alias("stock"),
        F.col("Quantity").alias("quantity"),
        F.lit(None).cast("bigint").alias("lines"),
        F.lit(None).cast("decimal(20,3)").alias("spent"),
    )
    writer = (
        totals.union(aside)
        .writeStream.format("parquet")
        .option("path", str(root / "output"))
        .option("checkpointLocation", str(root / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if to_the_end else writer).start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("backend")
    parser.add_argument("root", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--to-the-end", action="store_true")
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--files", type=int, default=21)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--restore")
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules["__main__"])
    spark = session(
        options.master, options.root, options.backend, options.parallelism, options.restore
    )
    start(spark, options.root, options.data, options.files, options.to_the_end).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
