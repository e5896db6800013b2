"""Run the page about taking over, and other migrations, with Spark's settings for files.

``python -m tests.documentation.take_over_script FOLDER``. Spark's RocksDB state store does not work
with the file system class of the tests' session (``tests/spark/quick.py``).
"""

import sys

from millpond.spark import configure
from pyspark.sql import SparkSession

from tests.documentation import pages
from tests.spark import take_over_job
from tests.spark.quick import QUICK_JVM

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.log.level": "FATAL",
    "spark.sql.shuffle.partitions": "2",
}


def main(folder):
    """Run the page and the other migrations in `folder`."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = configure(builder, parallelism=2).getOrCreate()
    space = {"__name__": "__main__", "spark": session, "FOLDER": folder}
    pages.run("how-to/take-over.md", "spark", space)
    take_over_job.main(session, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
