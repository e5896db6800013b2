"""Write an archive of the classes that Spark loads: a JVM that finds them there starts in half the time.

Java's class data sharing. The classes are those of a small job like the tests', in the same JVM as
theirs. Usage: class_archive.py FILE
"""

import os
import sys
import tempfile
from pathlib import Path

from quick import QUICK_JVM, QUIET_SHARING, quick_settings


def run_jobs(folder):
    """Run queries of all sorts in a session; returns what starts and ends its JVM."""
    import pandas as pd
    from millpond.spark import configure, key_by
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from streaming import RUNNING, Files, Running, run

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("bindAddress", "host"):
        builder = builder.config(f"spark.driver.{name}", "127.0.0.1")
    for key, value in quick_settings().items():
        builder = builder.config(key, value)
    settings = {"state_backend": "heap", "checkpoint_dir": (folder / "snapshots").as_uri()}
    spark = configure(builder, parallelism=2, **settings).getOrCreate()
    files = Files(spark, folder / "input")
    for number in range(3):
        files.add(("a", number), ("b", 2))
    run(key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="totals"), folder)
    run(files.stream().dropDuplicates(["k"]), folder, name="of Spark's own")
    written = spark.read.parquet(str(folder / "query" / "output"))
    written.write.csv(str(folder / "text"), header=True)
    rows = spark.read.json(str(folder / "input"))
    key_by(rows, "k").process(Running(), output=RUNNING, uid="batch").toPandas()
    spark.createDataFrame(pd.DataFrame({"k": ["a"]})).join(written, "k").orderBy("k").collect()
    spark.stop()
    return SparkContext._gateway


def main():
    """Have the JVM write the archive when it ends, and wait for that."""
    archive = Path(sys.argv[1]).absolute()
    archive.parent.mkdir(exist_ok=True)
    unfinished = archive.with_suffix(".new")
    options = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={unfinished} {QUIET_SHARING}"
    os.environ["SPARK_SUBMIT_OPTS"] = options
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        gateway = run_jobs(Path(folder))
        gateway.proc.stdin.close()
        gateway.proc.wait()
    unfinished.replace(archive)


if __name__ == "__main__":
    main()
