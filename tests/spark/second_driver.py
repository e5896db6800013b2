"""The query of a test, in another driver process."""

import sys
from pathlib import Path

from millpond.spark import configure, key_by
from pyspark.sql import SparkSession

from tests.spark.streaming import RUNNING, Running


def main(folder, source):
    """Run the query to the end of its input."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.log.level", "FATAL").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.session.timeZone", "America/New_York")
    configure(builder, parallelism=2, checkpoint_dir=(folder / "snapshots").as_uri())
    spark = builder.config("spark.millpond.state.backend", "heap").getOrCreate()
    rows = spark.readStream.schema("k string, n bigint").option("maxFilesPerTrigger", 1)
    job = key_by(rows.json(str(source)), "k").process(Running(), output=RUNNING, uid="totals")
    writer = job.writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "query" / "checkpoint"))
    query = writer.format("parquet").option("path", str(folder / "query" / "output")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
