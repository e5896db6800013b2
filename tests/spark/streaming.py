"""Shared parts of the streaming tests: a function, a source of files, and a way to run a query."""

import json
import os
import time

import millpond as mp


class Running(mp.KeyedProcessFunction):
    """Function that yields key, running count and running sum."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        self.sum.update(self.sum.value() + row.n)
        yield context.current_key, self.count.value(), self.sum.value()


RUNNING = "k string, rows bigint, sum bigint"


class Files:
    """A streaming source of JSON files, one file per micro-batch."""

    def __init__(self, spark, folder, schema="k string, n bigint"):
        self.spark, self.folder, self.schema, self.count = spark, folder, schema, 0
        self.begun = time.time()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, *rows):
        names = [part.split()[0] for part in self.schema.split(", ")]
        lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
        self.count += 1
        name = f"{self.count:04d}.json"
        part = self.folder.parent / f"{self.folder.name}-{name}"
        part.write_text("".join(f"{line}\n" for line in lines))
        # Spark orders the files by their times in milliseconds.
        os.utime(part, (self.begun + self.count,) * 2)
        part.rename(self.folder / name)

    def stream(self):
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


def run(df, tmp_path, mode="append", name="query"):
    """Run a query over all input into Parquet files; return the query."""
    writer = df.writeStream.outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / name / "checkpoint"))
    query = writer.format("parquet").option("path", str(tmp_path / name / "output")).start()
    query.awaitTermination()
    return query


def output(spark, tmp_path, name="query"):
    """Return the rows that a query has written, as sorted tuples."""
    return sorted(map(tuple, spark.read.parquet(str(tmp_path / name / "output")).collect()))
