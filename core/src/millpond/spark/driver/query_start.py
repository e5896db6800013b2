"""The driver's part at a query's start: settling its layouts before the first batch.

Spark calls ``onQueryStarted`` in the query's own thread and waits for it, so what is written
here is there before the first task.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Any
from weakref import WeakSet

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from typing_extensions import override

from millpond.spark.driver.plan import OperatorPlan
from millpond.spark.driver.settling import DeclaredOperator, Start

__all__ = ["watch_operator"]

_LOG = logging.getLogger("millpond.spark")
_NODE = re.compile(r"FlatMapGroupsInPandasWithState (millpond\[[^\]]+\]@[0-9a-f]{12})\(")
"""An operator in the text of a plan, by its function's name."""

_declared: dict[str, DeclaredOperator] = {}
_watched: WeakSet[Any] = WeakSet()


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> str:
    """Register the operator, so that its layout is settled whenever a query with it starts.

    Returns:
        The name that the operator's function must have, to be found in the query's plan.
    """
    declared = DeclaredOperator(
        uid=plan.uid,
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        storage=plan.storage(),
        savepoint=plan.config.checkpoint.restore or "",
        restore=plan.savepoint(),
        ignore_unclaimed=plan.config.checkpoint.ignore_unclaimed_state,
        time_mode=plan.time_mode,
        timed=plan.timed,
    )
    said = {**attrs.asdict(declared, recurse=False), "storage": declared.storage.uri}
    name = f"millpond[{plan.uid}]@{hashlib.sha256(repr(said).encode()).hexdigest()[:12]}"
    _declared[name] = declared
    if spark not in _watched:
        spark.streams.addListener(_LayoutListener(spark))
        _watched.add(spark)
    return name


class _LayoutListener(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @override
    def onQueryStarted(self, event: Any) -> None:
        """Settle the layouts of a query that is about to begin."""
        query = str(event.id)
        running: Any = self._spark._jsparkSession.streams().get(query)  # noqa: SLF001 - the only way
        stream = running.streamingQuery()
        names = _NODE.findall(stream.analyzedPlan().toString())
        operators = [_declared[name] for name in names if name in _declared]
        if any(declared.time_mode == "processing-time" for declared in operators):
            _let_it_end(stream)
        if not operators:
            return
        try:
            Start(self._spark, stream, query, operators).settle()
        except Exception as error:  # noqa: BLE001 - any error is raised where the query is awaited
            _LOG.exception("query %s cannot start", query)
            _refuse(self._spark, stream, str(error))

    @override
    def onQueryProgress(self, event: Any) -> None:
        """Nothing to do."""

    @override
    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do."""


def _refuse(spark: SparkSession, stream: Any, reason: str) -> None:
    """End a query before its first batch, with an exception for those who wait for it.

    Spark swallows a listener's errors, and a query without input has no task that could fail.
    So the query is left as one that has failed, and has been stopped while it was starting.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way
    said = {"id": str(stream.id()), "runId": str(stream.runId()), "message": reason}
    cause = jvm.java.lang.IllegalStateException(reason)
    death = jvm.org.apache.spark.sql.streaming.StreamingQueryException(
        "", cause, "", "", "STREAM_FAILED", jvm.PythonUtils.toScalaMap(said)
    )
    getattr(stream, "streamDeathCause_$eq")(death)
    initializing = stream.state().get().getClass()
    name = initializing.getName().replace("INITIALIZING", "TERMINATED")
    ended = initializing.getClassLoader().loadClass(name).getField("MODULE$").get(None)
    stream.state().set(ended)


def _let_it_end(stream: Any) -> None:
    """Have a query with ``availableNow`` end at the end of its input.

    With processing-time timers Spark always wants another batch without rows, so that
    ``availableNow`` would never end. What is not due by then fires in the next run.
    """
    if stream.trigger().toString().startswith(("AvailableNow", "OneTime")):
        conf = stream.sparkSessionForStream().conf()
        conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
