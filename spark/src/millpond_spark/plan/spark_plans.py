"""The nodes of Spark's plans, on the JVM's side."""

from __future__ import annotations

import re
from typing import Any

OPERATOR_NAME = re.compile(r"millpond\[([^\]]+)\](?:@[0-9a-f]{12})?")
"""The name of an operator's function, and its uid in it; over Spark Connect without a number."""

OPERATOR_NODE = "FlatMapGroupsInPandasWithState"
"""The name of the node that runs an operator."""

SETS_WATERMARK = "EventTimeWatermark"
"""The name of the node that sets a watermark."""


def children(node: Any) -> list[Any]:
    """Return the nodes below a node of a plan."""
    found = node.children()
    return [found.apply(at) for at in range(found.size())]


def operator_names(plan: Any) -> list[str]:
    """The names of the functions that a plan applies to groups with state, in the plan's order.

    The plan's text does not tell: settings of the session say how much of it is written.
    """
    if plan.nodeName() != OPERATOR_NODE:
        return [name for child in children(plan) for name in operator_names(child)]
    return [str(plan.functionExpr().name()), *operator_names(plan.child())]


def keeps_columns(plan: Any) -> bool:
    """Whether Spark keeps columns of a plan's streams in state: a query's go on as they began.

    It keeps those alone that are read later, and its state cannot change.
    """
    if not plan.isStreaming():
        return False
    inputs = children(plan)
    joins = plan.nodeName() == "Join" and all(each.isStreaming() for each in inputs)
    return joins or plan.nodeName() == "Aggregate" or any(map(keeps_columns, inputs))
