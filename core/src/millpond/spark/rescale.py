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

from millpond.checkpoint import (
    CheckpointStorage,
    KeyedStateHandle,
    checkpoint_storage,
    locate_savepoint,
)
from millpond.checkpoint.savepoint import read_savepoint
from millpond.errors import MaxParallelismError
from millpond.spark.figures import read_pointers
from millpond.spark.layout import (
    Layout,
    committed_handles,
    current_layout,
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
    savepoint: str


_declared: dict[str, _Declared] = {}
_watched: WeakSet[Any] = WeakSet()


def function_name(uid: str) -> str:
    """The name under which an operator's function stands in a query's plan."""
    return f"millpond[{uid}]"


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> None:
    """See to it that the operator's layout is settled whenever a query with it starts."""
    storage = checkpoint_storage(plan.config.checkpoint.dir or "")
    savepoint = _savepoint_with(plan) if plan.config.checkpoint.restore else ""
    _declared[plan.uid] = _Declared(plan.parallelism, plan.max_parallelism, storage, savepoint)
    if spark not in _watched:
        spark.streams.addListener(_LayoutListener(spark))
        _watched.add(spark)


def _savepoint_with(plan: OperatorPlan) -> str:
    """The configured savepoint, if it holds the operator; else the operator starts empty."""
    savepoint = plan.config.checkpoint.restore or ""
    saved = read_savepoint(locate_savepoint(savepoint))
    for operator in saved.operators:
        if operator.uid == plan.uid:
            if operator.max_parallelism != plan.max_parallelism:
                raise MaxParallelismError(operator.max_parallelism, plan.max_parallelism)
            return savepoint
    _LOG.warning("the savepoint %s holds no operator %r, it starts empty", savepoint, plan.uid)
    return ""


class _LayoutListener(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Settle the layouts of a query that is about to begin."""
        try:
            _settle_query(self._spark, str(event.id))
        except Exception:  # noqa: BLE001 - whatever it is, the query must start and say so
            # Spark swallows a listener's errors; the tasks will find no layout and say so.
            _LOG.exception("the layouts of query %s could not be settled", event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""


def _settle_query(spark: SparkSession, query: str) -> None:
    running: Any = spark._jsparkSession.streams().get(query)  # noqa: SLF001 - Spark's only way
    stream = running.streamingQuery()
    plan = stream.analyzedPlan().toString()
    for uid, declared in _declared.items():
        if function_name(uid) not in plan:
            continue
        current = current_layout(declared.storage, query, uid)
        if current is None:
            layout = Layout(
                0, declared.parallelism, declared.max_parallelism, savepoint=declared.savepoint
            )
        elif current.parallelism == declared.parallelism:
            continue
        else:
            sources: list[KeyedStateHandle] = []
            if not stream.commitLog().getLatestBatchId().isEmpty():
                pointers = read_pointers(spark, stream.resolvedCheckpointRoot())
                mine = [pointer for pointer in pointers if pointer.operator_uid == uid]
                sources = committed_handles(mine, current, declared.storage)
            layout = _next_layout(uid, current, declared, sources)
        write_layout(declared.storage, query, uid, layout)


def _next_layout(
    uid: str, current: Layout, declared: _Declared, sources: list[KeyedStateHandle]
) -> Layout:
    if current.max_parallelism != declared.max_parallelism:
        raise MaxParallelismError(current.max_parallelism, declared.max_parallelism)
    _LOG.info("%s: %d subtasks instead of %d", uid, declared.parallelism, current.parallelism)
    return Layout(
        current.number + 1, declared.parallelism, declared.max_parallelism, tuple(sources)
    )
