"""Which run of a query a task belongs to.

Spark tells tasks a run's id as their job group alone, which whoever writes in ``foreachBatch`` may
set to something else, the same in each run. So the start notes it under a name of ours.
"""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

__all__ = ["note_run", "run_of"]

_RUN = "millpond.run"
_JOB_GROUP = "spark.jobGroup.id"


def note_run(spark: SparkSession, stream: Any) -> None:
    """Note the run for all tasks of a query, in the thread that will start them.

    Where Python's threads are not those of the JVM (``PYSPARK_PIN_THREAD=false``) this is another
    one, whose tasks are not the query's.

    Args:
        spark: the session.
        stream: Spark's query, on the JVM's side, whose start is being told.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way
    here = jvm.java.lang.Thread.currentThread().getId()
    if here == stream.queryExecutionThread().getId():
        context = stream.sparkSessionForStream().sparkContext()
        context.setLocalProperty(_RUN, str(stream.runId()))


def run_of(task: TaskContext) -> str:
    """The run that a task belongs to; over Spark Connect, where nobody notes it, the job group."""
    return task.getLocalProperty(_RUN) or task.getLocalProperty(_JOB_GROUP) or ""
