"""The chains of operators that a query's one watermark serves.

Spark works one watermark out of all steps that set one, and gives it to all operators at the same
time. An operator behind another one that holds rows back until the watermark has passed them would
get these rows late.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import attrs
from millpond.errors import EventTimeChainError

from millpond_spark.plan.operator_declaration import DeclaredOperator
from millpond_spark.plan.spark_plans import (
    OPERATOR_NAME,
    OPERATOR_NODE,
    SETS_WATERMARK,
    children,
    keeps_columns,
)

_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class _Operator(Protocol):
    """The part of an operator that counts here."""

    @property
    def uid(self) -> str:
        """The operator's stable name."""

    @property
    def by_event_time(self) -> bool:
        """Whether the operator may hold rows back until the watermark has passed them."""


@attrs.frozen
class _Step:
    """A node of Spark's plan, read once.

    Attributes:
        node: Spark's node.
        kind: the node's name.
        operator: the operator of Millpond's that the node runs, or None.
        inputs: the steps whose rows the node reads.
    """

    node: Any
    kind: str
    operator: _Operator | None
    inputs: list[_Step]

    def all(self) -> Iterator[_Step]:
        """Iterate over this step and all before it."""
        yield self
        for each in self.inputs:
            yield from each.all()

    def before(self) -> Iterator[_Step]:
        """Iterate over all steps before this one."""
        for each in self.inputs:
            yield from each.all()


def require_one_watermark(stream: Any, declared: Mapping[str, DeclaredOperator]) -> None:
    """Raise if the operators of a query cannot share its one watermark.

    Args:
        stream: Spark's query, on the JVM's side.
        declared: operators by the names of their functions in the plan.

    Raises:
        EventTimeChainError: two operators behind each other work by event time, or the watermark
            that is set behind an operator depends on it.
    """
    policy = str(stream.sparkSessionForStream().conf().get(_POLICY, "min"))
    _require_one(_step(stream.analyzedPlan(), declared), policy)


def require_one_watermark_of_client(writer: Any) -> None:
    """Raise if a watermark is set behind an operator of a stream that has one, on Spark Connect.

    The client knows its own part of the plan, and it does not know which operators have timers.

    Args:
        writer: PySpark's writer of the stream.

    Raises:
        EventTimeChainError: the watermark would wait for rows that wait for it.
    """
    _require_one(_client_step(writer._write_stream._child), "min")  # noqa: SLF001 - no other way


def _require_one(last: _Step, policy: str) -> None:
    for step in last.all():
        operators = [each.operator for each in step.before() if each.operator is not None]
        timed = [each.uid for each in operators if each.by_event_time]
        if step.operator is not None and step.operator.by_event_time and timed:
            raise EventTimeChainError(timed[0], step.operator.uid, policy)
        if step.kind == SETS_WATERMARK and operators and (timed or _is_second(step, policy)):
            raise EventTimeChainError((timed or [operators[0].uid])[0], "", policy)


def _is_second(step: _Step, policy: str) -> bool:
    """Return whether a watermark makes rows late, or waits, because of one that is set before it.

    The lower of two watermarks is right, unless the rows before it wait for it: Spark's join of
    two streams gives rows without a match when the watermark has passed them.
    """
    if all(each.kind != SETS_WATERMARK for each in step.before()):
        return False
    return policy == "max" or keeps_columns(step.node.child())


@attrs.frozen
class _ClientOperator:
    """An operator in a client's plan."""

    uid: str
    by_event_time: bool


def _client_step(node: Any) -> _Step:
    from pyspark.sql.connect.plan import LogicalPlan  # noqa: PLC0415 - an extra

    inputs = [_client_step(each) for each in vars(node).values() if isinstance(each, LogicalPlan)]
    kind, operator = type(node).__name__, None
    if kind == "ApplyInPandasWithState":
        found = OPERATOR_NAME.fullmatch(node._function._function_name)  # noqa: SLF001
        marked = any(step.kind == SETS_WATERMARK for each in inputs for step in each.all())
        operator = _ClientOperator(found[1], marked) if found else None
    return _Step(node, SETS_WATERMARK if kind == "WithWatermark" else kind, operator, inputs)


def _step(node: Any, declared: Mapping[str, DeclaredOperator]) -> _Step:
    kind = str(node.nodeName())
    name = str(node.functionExpr().name()) if kind == OPERATOR_NODE else ""
    return _Step(node, kind, declared.get(name), [_step(each, declared) for each in children(node)])
