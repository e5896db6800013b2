"""The driver's part of a rescale: settling the layout before a run's first batch.

Spark calls ``onQueryStarted`` in the query's own thread and waits for it, so what is written
here is there before the first task.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import attrs
from pyspark.sql.streaming.listener import StreamingQueryListener

from millpond.checkpoint import (
    CheckpointStorage,
    KeyedStateHandle,
    SavepointHandle,
)
from millpond.checkpoint.savepoint import read_savepoint
from millpond.errors import MaxParallelismError
from millpond.spark.figures import read_pointers
from millpond.spark.layout import (
    Layout,
    committed_handles,
    current_layout,
    note_failure,
    write_layout,
)
from millpond.spark.pointer import Pointer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millpond.spark.plan import OperatorPlan

__all__ = ["watch_operator"]

_LOG = logging.getLogger("millpond.spark")


@attrs.frozen
class _Declared:
    """How an operator is divided, as a ``process`` call says.

    Attributes:
        savepoint: what it starts from, as configuration names it.
        restore: the same, located.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    storage: CheckpointStorage
    savepoint: str
    restore: SavepointHandle | None
    time_mode: str | None

    @property
    def name(self) -> str:
        """The name under which this call's function stands in a query's plan."""
        parts = (
            self.parallelism,
            self.max_parallelism,
            self.storage.uri,
            self.savepoint,
            self.time_mode,
        )
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()
        return f"millpond[{self.uid}]@{digest[:12]}"


_declared: dict[str, _Declared] = {}
_watched: WeakSet[Any] = WeakSet()


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> str:
    """See to it that the operator's layout is settled whenever a query with it starts.

    Returns:
        The name that the operator's function must have, to be found in the query's plan.
    """
    restore = plan.config.checkpoint.restore
    declared = _Declared(
        uid=plan.uid,
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        storage=plan.storage(),
        savepoint=plan.config.checkpoint.restore or "",
        restore=plan.registry.savepoint(restore) if restore else None,
        time_mode=plan.time_mode,
    )
    _declared[declared.name] = declared
    if spark not in _watched:
        spark.streams.addListener(_LayoutListener(spark))
        _watched.add(spark)
    return declared.name


class _LayoutListener(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Settle the layouts of a query that is about to begin."""
        query, run = str(event.id), str(event.runId)
        running: Any = self._spark._jsparkSession.streams().get(query)  # noqa: SLF001 - the only way
        stream = running.streamingQuery()
        text = stream.analyzedPlan().toString()
        operators = [each for name, each in _declared.items() if name in text]
        if any(declared.time_mode == "processing-time" for declared in operators):
            _let_it_end(stream)
        for declared in operators:
            try:
                _settle(self._spark, stream, query, declared)
            except Exception as error:  # noqa: BLE001 - whatever it is, the tasks are told
                # Spark swallows a listener's errors: the tasks find this note and say so.
                _LOG.exception("operator %r of query %s cannot start", declared.uid, query)
                note_failure(declared.storage, query, declared.uid, run, str(error))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""


def _let_it_end(stream: Any) -> None:
    """Have a query that is to end at the end of its input do so.

    With processing-time timers Spark always wants another batch without rows, so that
    ``availableNow`` would never end. What is not due by then fires in the next run.
    """
    if stream.trigger().toString().startswith(("AvailableNow", "OneTime")):
        conf = stream.sparkSessionForStream().conf()
        conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")


def _settle(spark: SparkSession, stream: Any, query: str, declared: _Declared) -> None:
    """Write a layout if the operator has none yet, or one of another parallelism."""
    current = current_layout(declared.storage, query, declared.uid)
    if current is None:
        layout = _first_layout(declared)
    elif current.max_parallelism != declared.max_parallelism:
        raise MaxParallelismError(current.max_parallelism, declared.max_parallelism)
    elif current.parallelism == declared.parallelism:
        return
    else:
        sources = _committed(spark, stream, current, declared)
        number = current.number + 1
        layout = Layout(number, declared.parallelism, declared.max_parallelism, tuple(sources))
        _LOG.info("%s: %d subtasks from now on", declared.uid, declared.parallelism)
    write_layout(declared.storage, query, declared.uid, layout)


def _first_layout(declared: _Declared) -> Layout:
    """The layout of a new operator, which starts from the savepoint if that holds it."""
    savepoint = ""
    if declared.restore is not None:
        saved = read_savepoint(declared.restore).operators
        found = [operator for operator in saved if operator.uid == declared.uid]
        if not found:
            _LOG.warning("%s holds no operator %r", declared.savepoint, declared.uid)
        elif found[0].max_parallelism != declared.max_parallelism:
            raise MaxParallelismError(found[0].max_parallelism, declared.max_parallelism)
        else:
            savepoint = declared.savepoint
    return Layout(0, declared.parallelism, declared.max_parallelism, savepoint=savepoint)


def _committed(
    spark: SparkSession, stream: Any, current: Layout, declared: _Declared
) -> list[KeyedStateHandle]:
    """What the query has committed of the operator so far."""
    pointers: list[Pointer] = []
    if not stream.commitLog().getLatestBatchId().isEmpty():
        pointers = read_pointers(spark, stream.resolvedCheckpointRoot())
    mine = [pointer for pointer in pointers if pointer.operator_uid == declared.uid]
    return committed_handles(mine, current, declared.storage)
