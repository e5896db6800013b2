"""The query of the page on exactly-once sinks, in a driver that kills itself.

Usage: database_job.py FOLDER DATABASE PARALLELISM [before|after BATCH]: before or after the
database commits this batch.
"""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace

import psycopg
from millpond.spark import configure
from pyspark.sql import SparkSession

from tests.documentation import pages
from tests.spark.quick import quick_settings

PAGE = "how-to/exactly-once-sink.md"
now: dict[str, object] = {}


class Dying(psycopg.Connection):
    """A connection that kills its process before or after the commit of one batch."""

    kill_at: tuple[str, int] | None = None

    def commit(self):
        self._kill("before")
        super().commit()
        self._kill("after")

    def _kill(self, point):
        if self.kill_at == (point, now["batch"]):
            os.kill(os.getpid(), signal.SIGKILL)


def session(folder, parallelism):
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    for key, value in quick_settings().items():
        builder = builder.config(key, value)
    configure(builder, parallelism=parallelism)
    return builder.config("spark.local.dir", f"{folder}/local").getOrCreate()


def main(folder, database, parallelism, point=None, batch=None):
    """Run the blocks that define the sink and the query, then the query."""
    Dying.kill_at = (point, int(batch)) if point else None
    space = globals()
    space.update(
        spark=session(folder, int(parallelism)),
        FOLDER=folder,
        DATABASE=database,
        psycopg=SimpleNamespace(connect=Dying.connect),
    )
    for _, code, _, _ in pages.blocks(PAGE, "spark")[1:3]:
        exec(compile(code, PAGE, "exec"), space)
    write = space["write"]

    def numbered(rows, batch):
        now["batch"] = batch
        write(rows, batch)

    space["write"] = numbered
    space["start"]().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
