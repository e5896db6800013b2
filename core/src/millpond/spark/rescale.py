"""The driver's part of a rescale: settling the layout before a run's first batch.

Spark calls ``onQueryStarted`` in the query's own thread and waits for it, so what is written
here is there before the first task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

from millpond.checkpoint import CheckpointStorage, KeyedStateHandle, checkpoint_storage
from millpond.errors import MaxParallelismError
from millpond.spark.figures import read_pointers
from millpond.spark.layout import (
    Layout,
    committed_handles,
    current_layout,
    read_layout,
    write_layout,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millpond.spark.plan import OperatorPlan

__all__ = ["function_name", "watch_operator"]

_LOG = logging.getLogger("millpond.spark")


@attrs.frozen
class _Declared:
    """How an operator is divided, as its last ``process`` call says."""

    parallelism: int
    max_parallelism: int
    storage: CheckpointStorage


_declared: dict[str, _Declared] = {}
_watched: WeakSet[Any] = WeakSet()


def function_name(uid: str) -> str:
    """The name under which an operator's function stands in a query's plan."""
    return f"millpond[{uid}]"


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> None:
    """See to it that the operator's layout is settled whenever a query with it starts."""
    storage = checkpoint_storage(plan.config.checkpoint.dir or "")
    _declared[plan.uid] = _Declared(plan.parallelism, plan.max_parallelism, storage)
    if spark not in _watched:
        spark.streams.addListener(_LayoutListener(spark))
        _watched.add(spark)


class _LayoutListener(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Settle the layouts of a query that is about to begin."""
        try:
            _settle_query(self._spark, str(event.id))
        except Exception:
            # Spark swallows a listener's errors; the tasks will find no layout and say so.
            _LOG.exception("the layouts of query %s could not be settled", event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""


def _settle_query(spark: SparkSession, query: str) -> None:
    running: Any = spark._jsparkSession.streams().get(query)  # noqa: SLF001 - Spark's only way
    stream = running.streamingQuery()
    text = stream.logicalPlan().toString()
    found = {uid: made for uid, made in _declared.items() if function_name(uid) in text}
    for uid, declared in found.items():
        current = current_layout(declared.storage, query, uid)
        if current is None:
            layout = Layout(0, declared.parallelism, declared.max_parallelism)
            write_layout(declared.storage, query, uid, layout)
        elif current.parallelism != declared.parallelism:
            committed = not stream.commitLog().getLatestBatchId().isEmpty()
            checkpoint = stream.resolvedCheckpointRoot() if committed else None
            _rescale(spark, query, uid, checkpoint, current, declared)


def _rescale(
    spark: SparkSession,
    query: str,
    uid: str,
    checkpoint: str | None,
    current: Layout,
    declared: _Declared,
) -> None:
    if current.max_parallelism != declared.max_parallelism:
        raise MaxParallelismError(current.max_parallelism, declared.max_parallelism)
    sources = () if checkpoint is None else _sources(spark, checkpoint, query, uid, current, declared.storage)
    layout = Layout(
        current.number + 1, declared.parallelism, declared.max_parallelism, tuple(sources)
    )
    write_layout(declared.storage, query, uid, layout)
    _LOG.info(
        "operator %r of query %s: %d instead of %d subtasks from now on",
        uid, query, declared.parallelism, current.parallelism,
    )


def _sources(
    spark: SparkSession,
    checkpoint: str,
    query: str,
    uid: str,
    current: Layout,
    storage: CheckpointStorage,
) -> list[KeyedStateHandle]:
    pointers = [p for p in read_pointers(spark, checkpoint) if p.operator_uid == uid]
    return committed_handles(pointers, current, storage)
