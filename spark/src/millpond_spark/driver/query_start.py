"""The driver's part at a query's start: checks, and the layouts before the first batch.

Spark calls a listener in the query's own thread and waits for it, so everything that is written
here is there before the first task.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import Any

import attrs
from millpond.errors import MillpondError
from pyspark.sql import SparkSession

from millpond_spark.driver.query_layouts import QueryStart
from millpond_spark.driver.several_operators import require_one_watermark, require_supported
from millpond_spark.plan.batch_identity import note_run
from millpond_spark.plan.operator_declaration import DeclaredOperator
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.session.internals import (
    StartListener,
    ends_with_its_input,
    fail_query,
    operator_names,
    query_plan,
    query_settings,
    session_id,
)
from millpond_spark.session.session import leave_quick_files

_LOG = logging.getLogger("millpond.spark")

_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"

_declared: dict[str, DeclaredOperator] = {}
_watched: set[str] = set()
"""The ids of sessions that have a listener."""
_watching = threading.Lock()


def watch_operator(spark: SparkSession, plan: OperatorPlan) -> str:
    """Register an operator, so that its layout is written whenever a query with it starts.

    Returns:
        The name that the operator's function must have, to be found in the query's plan.
    """
    declared = DeclaredOperator.from_plan(plan)
    said = {**attrs.asdict(declared, recurse=False), "storage": declared.storage.uri}
    name = f"millpond[{plan.uid}]@{hashlib.sha256(repr(said).encode()).hexdigest()[:12]}"
    _declared[name] = declared
    session = session_id(spark)
    with _watching:
        if session not in _watched:
            spark.streams.addListener(
                StartListener(spark, lambda stream: _prepare_query(spark, stream))
            )
            _watched.add(session)
    return name


def _prepare_query(spark: SparkSession, stream: Any) -> None:
    """Check a query that is about to begin, and write its layouts; end it if that fails."""
    names = operator_names(query_plan(stream))
    operators = [_declared[name] for name in names if name in _declared]
    if not operators:
        return
    query = str(stream.id())
    has_clock_timers = any(declared.time_mode == "processing-time" for declared in operators)
    if has_clock_timers and ends_with_its_input(stream):
        # With processing-time timers Spark always wants another batch without rows, so that
        # `availableNow` would never end. Later timers fire in a later run, with new input.
        query_settings(stream).set(_NO_DATA_BATCHES, "false")
    try:
        note_run(spark, stream)
        leave_quick_files(stream)
        require_supported(spark, stream)
        require_one_watermark(stream, _declared)
        start = QueryStart(spark, stream, query, operators)
        start.write_layouts()
        start.note_settings()
    except Exception as error:  # noqa: BLE001 - the error is raised to those who await the query
        _LOG.exception("query %s cannot start", query)
        if isinstance(error, MillpondError):
            places = dict.fromkeys(str(each.made_at) for each in operators if each.made_at)
            error.made_at = " and ".join(places)
        fail_query(spark, stream, str(error))


def warn_of_no_end(spark: SparkSession, plan: OperatorPlan) -> None:
    """Log the setting that ``availableNow`` needs over Spark Connect, if it may be the trigger."""
    if plan.time_mode != "processing-time" or spark.conf.get(_NO_DATA_BATCHES) == "false":
        return
    _LOG.warning(
        "operator %r has processing-time timers: over Spark Connect a query with the trigger "
        "availableNow ends only if the session has %s=false when it is started",
        plan.uid,
        _NO_DATA_BATCHES,
    )
