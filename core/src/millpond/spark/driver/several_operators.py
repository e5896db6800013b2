"""Several operators in one query, which Spark refuses whatever they do.

Its check counts them. It can only be switched off as a whole, by a setting of the session that is
read while a query starts. So it is off for the moment of such a start alone, and the rest of what
it looks at is made up for: Spark's own check is asked about each operator by itself, with the
others' outputs as if they came from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from itertools import count
from threading import Lock
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond.errors import SeveralOperatorsError, UnsupportedQueryError
from millpond.spark.driver.settings import all_settings

__all__ = [
    "keeps_columns",
    "operator_names",
    "require_supported",
    "several_operators",
    "watch_starts",
]

_OPERATOR_NAME = re.compile(r"millpond\[([^\]]+)\]@[0-9a-f]{12}")
"""The name of an operator's function, and its uid in it."""

_NODE_NAME = "FlatMapGroupsInPandasWithState"
_REFUSAL = "Multiple applyInPandasWithState"
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
    """Have Spark's refusal of several operators told as ours, or lifted where that is asked for.

    A query is started by pyspark's writer, which asks nobody, and its refusal names no cure.

    Args:
        remote: whether the session is one over Spark Connect, which has a writer of its own.
    """
    package = "pyspark.sql.connect.streaming" if remote else "pyspark.sql.streaming"
    writer = import_module(f"{package}.readwriter").DataStreamWriter
    for name in ("start", "toTable"):
        setattr(writer, name, _watched(getattr(writer, name), remote=remote))


def _watched(start: Callable[..., Any], *, remote: bool) -> Callable[..., Any]:
    @wraps(start)
    def watched(writer: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return start(writer, *args, **kwargs)
        except AnalysisException as error:
            if _REFUSAL not in str(error):
                raise
            if remote:  # the client does not see the plan, nor may it ask Spark's check
                raise SeveralOperatorsError((), session="connect") from error
            uids = _uids(writer)
            if not uids:
                raise
            if not _allowed.get():
                raise SeveralOperatorsError(uids) from error
        with _unchecked(writer._df.sparkSession):  # noqa: SLF001 - it says so in no other way
            return start(writer, *args, **kwargs)

    return watched


def _uids(writer: Any) -> tuple[str, ...]:
    """The uids of a query's operators; none where some are not ours."""
    plan = writer._df._jdf.queryExecution().analyzed()  # noqa: SLF001
    found = [_OPERATOR_NAME.fullmatch(name) for name in operator_names(plan)]
    return tuple(each[1] for each in found if each) if all(found) else ()


def operator_names(plan: Any) -> list[str]:
    """The names of the functions that a plan applies to groups with state, in the plan's order.

    The plan's text does not tell: settings of the session say how much of it is written.
    """
    if plan.nodeName() != _NODE_NAME:
        return [name for child in _children(plan) for name in operator_names(child)]
    return [str(plan.functionExpr().name()), *operator_names(plan.child())]


def keeps_columns(plan: Any) -> bool:
    """Whether Spark keeps columns of a plan's streams in state: a query's go on as they began.

    It keeps those alone that are read later, and its state cannot change.
    """
    if not plan.isStreaming():
        return False
    children = _children(plan)
    joins = plan.nodeName() == "Join" and all(child.isStreaming() for child in children)
    return joins or plan.nodeName() == "Aggregate" or any(map(keeps_columns, children))


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


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def _uppermost(node: Any) -> list[Any]:
    """The operators of a plan that are not below others."""
    if node.nodeName() == _NODE_NAME:
        return [node]
    return [found for child in _children(node) for found in _uppermost(child)]


def _alone(jvm: Any, node: Any, kept: int, numbers: Iterator[int]) -> Any:
    """A plan in which the output of each operator but one comes from outside.

    Operators are told apart by their number: one that is used twice equals itself.
    """
    if node.nodeName() == _NODE_NAME:
        if next(numbers) != kept:
            nothing, empty = jvm.scala.Option.empty(), jvm.PythonUtils.toSeq([])
            relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation
            return relation(node.output(), empty, True, nothing)
        kept = -1
    children = [_alone(jvm, child, kept, numbers) for child in _children(node)]
    return node.withNewChildren(jvm.PythonUtils.toSeq(children)) if children else node
