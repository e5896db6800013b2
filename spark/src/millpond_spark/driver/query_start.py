"""The driver's part at a query's start: settling its layouts before the first batch.

Spark calls ``onQueryStarted`` in the query's own thread and waits for it, so what is written
here is there before the first task.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from functools import cached_property
from typing import Any

import attrs
from millpond.errors import MillpondError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import JStreamingQueryListener, StreamingQueryListener
from typing_extensions import override

from millpond_spark.driver.operator_chains import require_one_watermark
from millpond_spark.driver.query_layouts import QueryStart
from millpond_spark.driver.several_operators import require_supported
from millpond_spark.driver.state_partitions import warn_of_partitions
from millpond_spark.plan.batch_identity import note_run
from millpond_spark.plan.operator_declaration import DeclaredOperator
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.spark_plans import operator_names
from millpond_spark.session.checkpoint_files import leave_unless_local

_LOG = logging.getLogger("millpond.spark")

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_declared: dict[str, DeclaredOperator] = {}
_watched: set[str] = set()
"""The UUIDs of sessions; PySpark has an object anew for that of each ``foreachBatch``."""
_watching = threading.Lock()


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> str:
    """Register the operator, so that its layout is settled whenever a query with it starts.

    Returns:
        The name that the operator's function must have, to be found in the query's plan.
    """
    declared = DeclaredOperator.from_plan(plan)
    said = {**attrs.asdict(declared, recurse=False), "storage": declared.storage.uri}
    name = f"millpond[{plan.uid}]@{hashlib.sha256(repr(said).encode()).hexdigest()[:12]}"
    _declared[name] = declared
    session = spark._jsparkSession.sessionUUID()  # noqa: SLF001 - Spark has no other way
    with _watching:
        if session not in _watched:
            spark.streams.addListener(_LayoutListener(spark))
            _watched.add(session)
    return name


class _StartsAlone(JStreamingQueryListener):
    """Hands on that queries start.

    PySpark asks the JVM for each figure of each batch's progress before it calls a listener: of
    a small batch that was a tenth of the driver's work.
    """

    @override
    def onQueryStarted(self, jevent: Any) -> None:
        """Hand on the JVM's event: PySpark fails to make its own where there are job tags.

        A query has those of the thread that starts it, and one that another's ``foreachBatch``
        starts has Spark's own for that batch.
        """
        self.pylistener.onQueryStarted(jevent)

    @override
    def onQueryProgress(self, jevent: Any) -> None:
        """Leave the event where it is."""

    @override
    def onQueryIdle(self, jevent: Any) -> None:
        """Leave the event where it is."""

    @override
    def onQueryTerminated(self, jevent: Any) -> None:
        """Leave the event where it is."""


class _LayoutListener(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @cached_property
    @override
    def _jlistener(self) -> Any:
        """What Spark calls; PySpark's own would hand on all events."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - Spark has no other way
        return jvm.PythonStreamingQueryListenerWrapper(_StartsAlone(self))

    @override
    def onQueryStarted(self, event: Any) -> None:
        """Settle the layouts of a query that is about to begin."""
        query = str(event.id().toString())
        running: Any = self._spark._jsparkSession.streams().get(query)  # noqa: SLF001 - the only way
        stream = running.streamingQuery()
        names = operator_names(stream.analyzedPlan())
        operators = [_declared[name] for name in names if name in _declared]
        if any(declared.time_mode == "processing-time" for declared in operators):
            _let_it_end(stream)
        if not operators:
            return
        try:
            note_run(self._spark, stream)
            leave_unless_local(stream)
            require_supported(self._spark, stream)
            require_one_watermark(stream, _declared)
            warn_of_partitions(stream, query, max(each.parallelism for each in operators))
            start = QueryStart(self._spark, stream, query, operators)
            start.write_layouts()
            start.note_settings()
        except Exception as error:  # noqa: BLE001 - any error is raised where the query is awaited
            _LOG.exception("query %s cannot start", query)
            if isinstance(error, MillpondError):
                places = dict.fromkeys(str(each.made_at) for each in operators if each.made_at)
                error.made_at = " and ".join(places)
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
    ``availableNow`` would never end. What is not due by then fires in a later run, once that has
    new input.
    """
    if stream.trigger().toString().startswith(("AvailableNow", "OneTime")):
        conf = stream.sparkSessionForStream().conf()
        conf.set(_NO_DATA_BATCHES, "false")


def warn_of_no_end(spark: SparkSession, plan: OperatorPlan) -> None:
    """Say what ``availableNow`` needs over Spark Connect, where nobody knows the trigger."""
    if plan.time_mode != "processing-time" or spark.conf.get(_NO_DATA_BATCHES) == "false":
        return
    _LOG.warning(
        "operator %r has processing-time timers: over Spark Connect a query with the trigger "
        "availableNow ends only where the session has %s=false when it is started",
        plan.uid,
        _NO_DATA_BATCHES,
    )
