"""The query, the run and the batch that a task belongs to.

Spark hands them to tasks as properties of the thread that starts the job: its own thread of the
query. ``foreachBatch`` may start jobs in other threads. Over Spark Connect all its actions are
such jobs, in a classic session those of threads that the user has started. There the identity
comes another way:

* In a classic session it is in settings of the query's own session, which Spark hands to the tasks
  of all its DataFrames.
* Over Spark Connect the plan computes it, by a subquery. Spark runs a batch's subqueries for the
  query's thread, before the first of the batch's other tasks. The rows that wake subtasks carry the
  result. A batch without rows only calls subtasks whose timers are due, so for operators with
  timers the subquery also writes it to the checkpoint directory.

Spark also sets a run's id as the job group, but the user may set the same job group in each run. So
the driver notes the run's id under another name at the start.
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
    """A batch of a run of a query."""

    query: str
    run: str
    batch_id: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the result of ``str``."""
        query, run, batch = text.split(" ")
        return cls(query, run, int(batch))

    @override
    def __str__(self) -> str:
        return f"{self.query} {self.run} {self.batch_id}"

    @classmethod
    def from_task(cls) -> Self | None:
        """Return the batch that Spark has noted for this task; None for another thread's job."""
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
    """Note the run of a starting query for all of its tasks.

    Args:
        spark: the session.
        stream: Spark's query, on the JVM's side.
    """
    run = str(stream.runId())
    query_settings(stream).set(_SESSION_QUERY, f"{stream.id()} {run}")
    set_run_property(spark, stream, _RUN, run)


def note_batch(df: DataFrame, batch_id: int) -> None:
    """Note the batch of a ``foreachBatch`` call for the tasks of all threads.

    The DataFrame's session is the query's own.
    """
    df.sparkSession.conf.set(_SESSION_BATCH, str(batch_id))


def batch_column(spark: SparkSession, plan: OperatorPlan) -> Column:
    """Return the batch's identity as a subquery, which also stores it for operators with timers."""
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


def _carried(frame: pd.DataFrame) -> BatchIdentity | None:
    """Return the batch that a frame's first wake-up carries, if it has one."""
    if BATCH_COLUMN not in frame:
        return None
    texts = frame[BATCH_COLUMN].dropna()
    return BatchIdentity.from_text(texts.iloc[0]) if len(texts) else None


def identify_batch(
    plan: OperatorPlan, frames: Iterable[pd.DataFrame], pointer: Pointer | None
) -> tuple[BatchIdentity, Iterable[pd.DataFrame]]:
    """Return the batch of this task, and the frames of its rows.

    Raises:
        RestoreError: the batch is not noted anywhere.
    """
    found = BatchIdentity.from_task()
    if found is not None:
        return found, frames
    frames, held = iter(frames), []
    for frame in frames:
        held.append(frame)
        found = _carried(frame)
        if found is not None:
            return found, chain(held, frames)
    if pointer is None or not plan.settles:
        raise RestoreError(f"operator {plan.uid!r}", (_NO_BATCH,))
    stored = read_sealed(plan.storage(), batch_path(OperatorId(pointer.query, plan.uid)))
    return BatchIdentity.from_text(stored), held
