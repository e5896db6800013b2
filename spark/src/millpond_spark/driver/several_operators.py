"""Several operators in one query, which Spark refuses by their number alone.

Spark's check of streaming queries counts the operators. It can only be switched off as a whole, by
a setting of the session that is read while a query starts. So it is off during such a start alone.
Afterwards Spark's check is asked about each operator by itself, with the outputs of the others as
if they came from outside.

Spark also computes one watermark from all steps that set one, and gives it to all operators at the
same time. An operator behind another one that holds rows back until the watermark has passed them
would get these rows late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

import attrs
from millpond.errors import EventTimeChainError, OutputModeError, UnsupportedQueryError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond_spark.plan.layout_decision import DeclaredOperator
from millpond_spark.session.internals import (
    OPERATOR_NAME,
    SETS_WATERMARK,
    check_operators_alone,
    children,
    client_function_name,
    client_inputs,
    client_plan,
    function_name,
    keeps_columns,
    operator_names,
    query_plan,
    query_settings,
)

_OTHER_MODE = re.compile(
    r"applyInPandasWithState in (\w+) mode is not supported with (\w+) output mode"
)
_COMPLETE = "Invalid streaming output mode: complete"
_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

_allowed: ContextVar[bool] = ContextVar("millpond_several_operators", default=False)
_setting = Lock()


@contextmanager
def several_operators() -> Iterator[None]:
    """Let the queries that are started in the block have several of Millpond's operators.

    Spark's check of streaming queries refuses any two operators of their kind. It remains on for
    all other queries. For queries with several operators it is asked about each operator by
    itself, so it still refuses an output mode that is not the operator's, sorting, and so on.

    Over Spark Connect the block has no effect: only the server can ask the check about an operator.
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


def are_several_allowed() -> bool:
    """Return whether this thread is in a block of ``several_operators``."""
    return _allowed.get()


def output_mode_error(error: AnalysisException, uids: Sequence[str]) -> OutputModeError | None:
    """Return our error for Spark's refusal of an output mode; None for any other refusal.

    Args:
        error: Spark's refusal, which names the function of the operator that is refused.
        uids: the query's operators, as far as they are known.
    """
    said = str(error)
    if modes := _OTHER_MODE.search(said):
        operator = OPERATOR_NAME.search(said)
        return OutputModeError(operator[1], modes[1], modes[2].lower()) if operator else None
    if uids and _COMPLETE in said:
        return OutputModeError(uids[0], "", "complete")
    return None


def uids_in_plan(plan: Any) -> tuple[str, ...]:
    """Return the uids of a plan's operators; none if some operators are not Millpond's."""
    found = [OPERATOR_NAME.fullmatch(name) for name in operator_names(plan)]
    return tuple(each[1] for each in found if each) if all(found) else ()


@contextmanager
def unchecked(spark: SparkSession) -> Iterator[None]:
    """Switch Spark's check off, for one start at a time, so that it is always switched on again."""
    with _setting:
        before = spark.conf.getAll.get(_CHECK)
        spark.conf.set(_CHECK, "false")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_CHECK)
            else:
                spark.conf.set(_CHECK, before)


def require_supported(spark: SparkSession, stream: Any) -> None:
    """Raise the refusal of Spark's check for a query that has begun without it.

    Args:
        spark: the session.
        stream: Spark's query, on the JVM's side.

    Raises:
        UnsupportedQueryError: Spark supports no such query.
    """
    if query_settings(stream).get(_CHECK, "true") == "true":
        return
    try:
        check_operators_alone(spark, stream)
    except AnalysisException as error:
        if (wrong := output_mode_error(error, uids_in_plan(query_plan(stream)))) is not None:
            raise wrong from error
        reason = " ".join(str(error).partition(";")[0].split())
        raise UnsupportedQueryError(reason) from error


@attrs.frozen
class _Step:
    """A node of a plan, read once.

    Attributes:
        node: Spark's node.
        sets_watermark: whether the node sets a watermark.
        uid: the uid of the Millpond operator that the node runs, or an empty string.
        by_event_time: whether the operator may hold rows back until the watermark has passed them.
        inputs: the steps whose rows the node reads.
    """

    node: Any
    sets_watermark: bool
    uid: str
    by_event_time: bool
    inputs: list[_Step]

    def before(self) -> Iterator[_Step]:
        """Iterate over all steps before this one."""
        for each in self.inputs:
            yield each
            yield from each.before()


def require_one_watermark(stream: Any, declared: Mapping[str, DeclaredOperator]) -> None:
    """Raise if the operators of a query cannot share its one watermark.

    Args:
        stream: Spark's query, on the JVM's side.
        declared: operators by the names of their functions in the plan.

    Raises:
        EventTimeChainError: two operators behind each other work by event time, or the watermark
            that is set behind an operator depends on it.
    """

    def step(node: Any) -> _Step:
        found = declared.get(function_name(node))
        uid, by_event_time = ("", False) if found is None else (found.uid, found.by_event_time)
        sets_watermark = node.nodeName() == SETS_WATERMARK
        return _Step(node, sets_watermark, uid, by_event_time, list(map(step, children(node))))

    policy = str(query_settings(stream).get(_POLICY, "min"))
    _require_one_watermark(step(query_plan(stream)), policy)


def require_one_watermark_of_client(writer: Any) -> None:
    """Raise if a watermark is set behind an operator of a stream that has one, on Spark Connect.

    The client knows its own part of the plan. It does not know which operators have timers.

    Args:
        writer: PySpark's writer of the stream.

    Raises:
        EventTimeChainError: the watermark would wait for rows that wait for it.
    """

    def step(node: Any) -> _Step:
        inputs = list(map(step, client_inputs(node)))
        found = OPERATOR_NAME.fullmatch(client_function_name(node))
        before = (each for mine in inputs for each in (mine, *mine.before()))
        by_event_time = found is not None and any(each.sets_watermark for each in before)
        sets_watermark = type(node).__name__ == "WithWatermark"
        return _Step(node, sets_watermark, found[1] if found else "", by_event_time, inputs)

    _require_one_watermark(step(client_plan(writer)), "min")


def _require_one_watermark(last: _Step, policy: str) -> None:
    for step in (last, *last.before()):
        uids = [each.uid for each in step.before() if each.uid]
        timed = [each.uid for each in step.before() if each.by_event_time]
        if step.by_event_time and timed:
            raise EventTimeChainError(timed[0], step.uid, policy)
        if step.sets_watermark and uids and (timed or _is_second(step, policy)):
            raise EventTimeChainError((timed or uids)[0], "", policy)


def _is_second(step: _Step, policy: str) -> bool:
    """Return whether a watermark makes rows late, or waits, because of one that is set before it.

    The lower of two watermarks is right, unless the rows before it wait for it: Spark's join of
    two streams gives rows without a match when the watermark has passed them.
    """
    if not any(each.sets_watermark for each in step.before()):
        return False
    return policy == "max" or keeps_columns(step.node.child())
