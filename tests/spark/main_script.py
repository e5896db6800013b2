"""A job in a script: its classes belong to ``__main__``, and its function is a closure."""

import enum
import sys
from pathlib import Path

import attrs
import millpond as mp
from millpond.spark import configure, key_by
from pyspark.sql import SparkSession


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@attrs.define
class Totals:
    count: int = 0
    level: Level = Level.LOW


def counting(limit):
    """Return a function that uses a class of the script and an argument."""
    grown = lambda totals, n: attrs.evolve(totals, count=totals.count + n)  # noqa: E731 - a closure

    class Counting(mp.KeyedProcessFunction):
        def open(self, context):
            self.totals = context.get_state(mp.ValueStateDescriptor("totals", Totals))
            reduced = mp.ReducingStateDescriptor(
                "largest", lambda left, right: max(left, right), int
            )
            self.largest = context.get_reducing_state(reduced)

        def process_element(self, row, context):
            totals = grown(self.totals.value() or Totals(), row.n)
            if totals.count >= limit:
                totals.level = Level.HIGH
            self.totals.update(totals)
            self.largest.add(row.n)
            yield row.k, f"{totals!r} {self.largest.get()}"

    return Counting()


def main(folder):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "FATAL").config("spark.driver.host", "127.0.0.1")
    configure(builder, parallelism=1, checkpoint_dir=(folder / "snapshots").as_uri())
    spark = builder.config("spark.millpond.state.backend", "heap").getOrCreate()
    rows = spark.readStream.schema("k string, n bigint").json(str(folder / "input"))
    said = key_by(rows, "k").process(
        counting(limit=7), output="k string, said string", uid="totals"
    )
    query = said.writeStream.trigger(availableNow=True).format("json")
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    query.start(str(folder / "output")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
