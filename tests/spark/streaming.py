"""What the streaming tests share: a function, a source of files, and a way to run a query."""

import shutil

import millpond as mp


class Running(mp.KeyedProcessFunction):
    """Yields key, running count and running sum."""

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        self.sum.update(self.sum.value() + row.n)
        yield context.current_key, self.count.value(), self.sum.value()


RUNNING = "k string, rows bigint, sum bigint"


class Files:
    """A streaming source of JSON files, written one micro-batch at a time."""

    def __init__(self, spark, folder, schema="k string, n bigint"):
        self.spark, self.folder, self.schema, self.count = spark, folder, schema, 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, *rows):
        names = [part.split()[0] for part in self.schema.split(", ")]
        df = self.spark.createDataFrame(list(rows), self.schema).select(*names)
        part = self.folder.parent / f"part-{self.count}"
        df.coalesce(1).write.json(str(part))
        self.count += 1
        (file,) = part.glob("part-*.json")
        file.rename(self.folder / f"{self.count:04d}.json")
        shutil.rmtree(part)

    def stream(self):
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))


def run(df, tmp_path, mode="append", name="query"):
    """Run a query over all input into Parquet files; returns the query."""
    writer = df.writeStream.outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / name / "checkpoint"))
    query = writer.format("parquet").option("path", str(tmp_path / name / "output")).start()
    query.awaitTermination()
    return query


def output(spark, tmp_path, name="query"):
    """The rows that a query has written, as tuples, sorted."""
    return sorted(map(tuple, spark.read.parquet(str(tmp_path / name / "output")).collect()))
