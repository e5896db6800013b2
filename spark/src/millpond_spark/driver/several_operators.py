"""Several operators in one query, which Spark refuses whatever they do.

Its check counts them. It can only be switched off as a whole, by a setting of the session that is
read while a query starts. So it is off for the moment of such a start alone, and the rest of what
it looks at is made up for: Spark's own check is asked about each operator by itself, with the
others' outputs as if they came from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from itertools import count
from threading import Lock
from typing import Any

from millpond.errors import OutputModeError, SeveralOperatorsError, UnsupportedQueryError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond_spark.driver.batch_functions import watch_batches
from millpond_spark.driver.operator_chains import require_one_watermark_of_client
from millpond_spark.plan.spark_plans import OPERATOR_NAME, OPERATOR_NODE, children, operator_names
from millpond_spark.session.spark_conf import all_settings

_REFUSAL = "Multiple applyInPandasWithState"
_OTHER_MODE = re.compile(
    r"applyInPandasWithState in (\w+) mode is not supported with (\w+) output mode"
)
_COMPLETE = "Invalid streaming output mode: complete"
_CHECK = "spark.sql.streaming.unsupportedOperationCheck"

_allowed: ContextVar[bool] = ContextVar("millpond_several_operators", default=False)
_setting = Lock()


@contextmanager
def several_operators() -> Iterator[None]:
    """Let the queries that are started in the block have several of Millpond's operators.

    Spark's check of streaming queries refuses any two of their kind, whatever they do. It stays
    on for all other queries. Of those with several operators it is asked about each by itself, so
    what it refuses beside one is still refused: an output mode that is not the operator's, sorting,
    and so on.

    Over Spark Connect it has no effect: what beside the operators' number the check would have
    refused can only be asked in the server.
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


@cache
def watch_starts(*, remote: bool) -> None:
    """Watch PySpark's writer: its starts, and the functions that it gives batches to.

    Spark's refusal of several operators is told as ours, or lifted where that is asked for.

    A query is started by pyspark's writer, which asks nobody, and the refusal names no cure.

    Args:
        remote: whether the session is one over Spark Connect, which has a writer of its own.
    """
    package = "pyspark.sql.connect.streaming" if remote else "pyspark.sql.streaming"
    writer = import_module(f"{package}.readwriter").DataStreamWriter
    for name in ("start", "toTable"):
        setattr(writer, name, _watched(getattr(writer, name), remote=remote))
    watch_batches(writer, remote=remote)


def _watched(start: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    @wraps(start)
    def watched(writer: Any, *args: Any, **kwargs: Any) -> Any:
        if remote:
            require_one_watermark_of_client(writer)
        try:
            return start(writer, *args, **kwargs)
        except AnalysisException as error:
            uids = () if remote else _uids(writer._df._jdf.queryExecution().analyzed())  # noqa: SLF001 - it says so in no other way
            if (wrong := _wrong_mode(error, uids)) is not None:
                raise wrong from error
            if _REFUSAL not in str(error):
                raise
            if remote:  # the client does not see the plan, nor may it ask Spark's check
                raise SeveralOperatorsError((), session="connect") from error
            if not uids:
                raise
            if not _allowed.get():
                raise SeveralOperatorsError(uids) from error
        with _unchecked(writer._df.sparkSession):  # noqa: SLF001 - it says so in no other way
            return start(writer, *args, **kwargs)

    return watched


def _wrong_mode(error: AnalysisException, uids: Sequence[str]) -> OutputModeError | None:
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


def _uids(plan: Any) -> tuple[str, ...]:
    """The uids of a plan's operators; none where some are not ours."""
    found = [OPERATOR_NAME.fullmatch(name) for name in operator_names(plan)]
    return tuple(each[1] for each in found if each) if all(found) else ()


@contextmanager
def _unchecked(spark: SparkSession) -> Iterator[None]:
    """Spark's check off; one at a time, so that it is not put back too early or not at all."""
    with _setting:
        before = all_settings(spark).get(_CHECK)
        spark.conf.set(_CHECK, "false")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_CHECK)
            else:
                spark.conf.set(_CHECK, before)


def require_supported(spark: SparkSession, stream: Any) -> None:
    """Raise what Spark's check would have said of a query that has begun without it.

    Args:
        spark: the session.
        stream: Spark's query, on the JVM's side.

    Raises:
        UnsupportedQueryError: Spark supports no such query.
    """
    if stream.sparkSessionForStream().conf().get(_CHECK, "true") == "true":
        return
    try:
        _check_each(spark, stream.analyzedPlan(), stream.outputMode())
    except AnalysisException as error:
        if (wrong := _wrong_mode(error, _uids(stream.analyzedPlan()))) is not None:
            raise wrong from error
        reason = " ".join(str(error).partition(";")[0].split())
        raise UnsupportedQueryError(reason) from error


def _check_each(spark: SparkSession, plan: Any, mode: Any) -> None:
    """Ask Spark's check about a plan with one operator at a time, and of what it reads from."""
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    operators = _uppermost(plan)
    for kept in range(max(len(operators), 1)):
        checker.checkForStreaming(_alone(jvm, plan, kept, count()), mode)
    for operator in operators:
        _check_each(spark, operator.child(), mode)


def _uppermost(node: Any) -> list[Any]:
    """The operators of a plan that are not below others."""
    if node.nodeName() == OPERATOR_NODE:
        return [node]
    return [found for child in children(node) for found in _uppermost(child)]


def _alone(jvm: Any, node: Any, kept: int, numbers: Iterator[int]) -> Any:
    """A plan in which the output of each operator but one comes from outside.

    Operators are told apart by their number: one that is used twice equals itself.
    """
    if node.nodeName() == OPERATOR_NODE:
        if next(numbers) != kept:
            nothing, empty = jvm.scala.Option.empty(), jvm.PythonUtils.toSeq([])
            relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
            return relation(node.output(), empty, True, nothing)
        kept = -1
    inputs = [_alone(jvm, child, kept, numbers) for child in children(node)]
    return node.withNewChildren(jvm.PythonUtils.toSeq(inputs)) if inputs else node
