"""Batch identities: a task finds out to which batch, run and query it belongs.

A task of Spark gets the properties of the thread that starts the task's job. Usually this thread
belongs to the query, and its properties name the query and the batch. But ``foreachBatch`` may
start jobs in other threads: in a classic session if the user starts threads, over Spark Connect
always. The tasks of such jobs find the batch identity in another way:

* In a classic session the driver writes the identity into settings of the query's session. Spark
  passes these settings to the tasks of all DataFrames of the session.
* Over Spark Connect a subquery of the plan computes the identity. Spark runs the subqueries of a
  batch in jobs of the query's thread, before all other tasks of the batch. The result is in a
  column of the wake-ups, the rows that ``plan/timing.py`` adds so that Spark calls every subtask. A
  batch without rows has no wake-ups, and Spark calls only subtasks with due timers. Therefore the
  subquery also writes the result to the checkpoint directory if the operator has timers.

Spark sets a run's id as the job group, but the user may replace the job group. Therefore the driver
also sets the run's id as a property of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Self

import attrs
import pandas as pd
from millpond.errors import RestoreError
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.snapshots.bundle import read_sealed, write_sealed
from millpond.snapshots.paths import batch_path
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from typing_extensions import override

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer
from millpond_spark.session.internals import query_settings, set_run_property
from millpond_spark.values.schemas import BATCH_COLUMN

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "millpond.run"
_JOB_GROUP = "spark.jobGroup.id"
_SESSION_QUERY = "spark.millpond-query.run"
_SESSION_BATCH = "spark.millpond-query.batch"
_NO_BATCH = (
    "Spark does not say to which batch of which query its task belongs: in foreachBatch, call "
    "actions of the DataFrame in threads of your own, and those of its RDD in the thread that "
    "foreachBatch was called in"
)


@attrs.frozen
class BatchIdentity:
    """A batch of a run of a query. A run is one start of the query."""

    query: str
    run: str
    batch_id: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse `text`, which ``str`` has returned for a batch identity."""
        query, run, batch = text.split(" ")
        return cls(query, run, int(batch))

    @override
    def __str__(self) -> str:
        return f"{self.query} {self.run} {self.batch_id}"

    @classmethod
    def from_task(cls) -> Self | None:
        """Return the batch that this task's Spark properties name; None if they name no batch."""
        task = TaskContext.get()
        if task is None:
            return None
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if query is not None and batch is not None:
            run = task.getLocalProperty(_RUN) or task.getLocalProperty(_JOB_GROUP) or ""
            return cls(query, run, int(batch))
        started, batch = (
            task.getLocalProperty(_SESSION_QUERY),
            task.getLocalProperty(_SESSION_BATCH),
        )
        return cls.from_text(f"{started} {batch}") if started and batch else None


def note_run(spark: SparkSession, stream: Any) -> None:
    """Set properties with the query's and the run's id for all tasks of a query.

    Args:
        spark: the session.
        stream: the JVM object of the query, which is starting.
    """
    run = str(stream.runId())
    query_settings(stream).set(_SESSION_QUERY, f"{stream.id()} {run}")
    set_run_property(spark, stream, _RUN, run)


def note_batch(df: DataFrame, batch_id: int) -> None:
    """Write `batch_id` into the settings of the session of `df`, in a call of ``foreachBatch``.

    The session belongs to the query alone. Its tasks see the setting, whichever thread starts them.
    """
    df.sparkSession.conf.set(_SESSION_BATCH, str(batch_id))


def batch_column(spark: SparkSession, plan: OperatorPlan) -> Column:
    """Return a subquery that computes the batch identity as text.

    If the operator has timers, the subquery also writes the identity to the checkpoint directory.
    """
    config, uid, stores = plan.config, plan.uid, plan.time_mode is not None

    def identity(_: int) -> str | None:
        batch = BatchIdentity.from_task()
        if batch is None:
            return None
        if stores:
            storage = get_registry(config.plugins).storage(config.checkpoint.dir or "", config)
            write_sealed(storage, batch_path(OperatorId(batch.query, uid)), str(batch))
        return str(batch)

    one_row = spark.range(0, 1, 1, 1)
    return one_row.select(F.udf(identity, "string")("id")).scalar()


def identify_batch(
    plan: OperatorPlan, frames: Iterable[pd.DataFrame], pointer: Pointer | None
) -> tuple[BatchIdentity, Iterable[pd.DataFrame]]:
    """Return the batch that this task belongs to, and an iterable of all its frames.

    Args:
        plan: the operator's plan.
        frames: the frames of the task's rows. If Spark's properties do not name the batch, frames
            are read until one of them has a row with the batch identity.
        pointer: the subtask's pointer in Spark's state, if there is one.

    Raises:
        RestoreError: neither Spark, the rows nor the checkpoint directory name the batch.
    """
    found = BatchIdentity.from_task()
    if found is not None:
        return found, frames
    frames, held = iter(frames), []
    for frame in frames:
        held.append(frame)
        texts = frame[BATCH_COLUMN].dropna() if BATCH_COLUMN in frame else ()
        for text in texts[:1]:
            return BatchIdentity.from_text(text), chain(held, frames)
    if pointer is None or not plan.settles:
        raise RestoreError(f"operator {plan.uid!r}", (_NO_BATCH,))
    stored = read_sealed(plan.storage(), batch_path(OperatorId(pointer.query, plan.uid)))
    return BatchIdentity.from_text(stored), held
