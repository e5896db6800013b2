"""The decision about an operator's next layout: keep the one in force, write another, or refuse.

A classic session decides when Spark announces a query's start, a session over Spark Connect in a
run's first task, and ``rescale`` for a query that is stopped. All three ask ``next_layout``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import attrs
from millpond.backend.migration import checked_change
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import MaxParallelismError, RestoreError
from millpond.types import SerializerSnapshot
from millpond.types.key_columns import codec_from_snapshot

from millpond_spark.plan.layout import Layout


class Step(Enum):
    """How an operator gets its next layout."""

    KEEP = "the layout in force still fits"
    BEGIN = "write the layout, which starts from checkpoint.restore or from nothing"
    CARRY = "write the layout, which has the sources of the last one"
    GATHER = "write the layout, whose sources are the committed snapshots"


@attrs.frozen
class NextLayout:
    """The decision about an operator's next layout.

    Attributes:
        step: how the operator gets it.
        layout: the layout; the caller fills in its sources after BEGIN and GATHER.
        last: the layout whose pointers count, from which GATHER takes the sources.
    """

    step: Step
    layout: Layout
    last: Layout | None = None


@attrs.frozen
class Committed:
    """The committed state of an operator, as far as it decides about the next layout.

    Attributes:
        uid: the operator.
        last: the layout whose pointers count; None if the operator's state was dropped.
        has_state: returns whether there is any state. Asked only if the keys have changed, as the
            answer may need a job of Spark.
    """

    uid: str
    last: Layout | None
    has_state: Callable[[], bool]


def next_layout(
    current: Layout | None, declared: Layout, committed: Committed, now: int
) -> NextLayout:
    """Decide under which layout an operator runs next.

    Args:
        current: the layout in force; None if the operator is new.
        declared: the layout that the operator would have if it were new.
        committed: its committed state.
        now: the last committed batch, -1 before the first.

    Raises:
        RestoreError: the checkpointLocation is older than the layout in force.
        MaxParallelismError: the state has another number of key groups.
        StateMigrationError: the keys of the state cannot become those that are declared.
    """
    if current is None:
        return NextLayout(Step.BEGIN, declared)
    require_no_later_state(current, committed.uid, now)
    last, declared = committed.last, attrs.evolve(declared, number=current.number + 1)
    # Unsetting `checkpoint.restore` has no effect: users set it for one start only.
    if last is None or (is_fresh(last, now) and declared.restore not in ("", last.restore)):
        return NextLayout(Step.BEGIN, declared)
    if last.max_parallelism != declared.max_parallelism:
        raise MaxParallelismError(last.max_parallelism, declared.max_parallelism)
    keeps_keys = last.key in (None, declared.key)
    if not keeps_keys and not is_fresh(last, now) and committed.has_state():
        require_keys(last, committed.uid, declared.key)
        keeps_keys = True
    wanted, had = ((each.parallelism, each.roster, each.status) for each in (declared, last))
    if last == current and keeps_keys and wanted == had:
        return NextLayout(Step.KEEP, current)
    if is_fresh(last, now) or last.status == "prepared":
        carried = attrs.evolve(
            declared, sources=last.sources, savepoint=last.savepoint, restore=last.restore
        )
        return NextLayout(Step.CARRY, carried)
    return NextLayout(Step.GATHER, attrs.evolve(declared, restore=None), last)


def is_fresh(layout: Layout, now: int) -> bool:
    """Return whether no batch has been committed since the operator began with a layout.

    Args:
        layout: the layout in force.
        now: the last committed batch, -1 before the first.
    """
    return now < 0 or (layout.restore is not None and layout.settled_after == now)


def require_keys(layout: Layout, uid: str, key: SerializerSnapshot | None) -> None:
    """Raise if the keys of an operator's state cannot become those that are declared.

    A subtask without state cannot see this. It would begin again next to subtasks with state.

    Raises:
        StateMigrationError: they cannot.
    """
    if key is not None and layout.key != key:
        checked_change(uid, "key", layout.key, codec_from_snapshot(key))


def require_no_later_state(layout: Layout, uid: str, now: int) -> None:
    """Raise if a checkpointLocation is older than an operator's layout.

    The sources of the layout would hold later state than that of the batches to come.

    Args:
        layout: the layout in force.
        uid: the operator.
        now: the last committed batch, -1 before the first.

    Raises:
        RestoreError: it is older.
    """
    after = layout.settled_after
    if after <= now:
        return
    ends = f"ends with batch {now}" if now >= 0 else "has no committed batch"
    cause = (
        f"the checkpointLocation {ends}, but the state was divided again after batch {after}: it "
        f"is an older copy, or was put back. Use the one that has batch {after}, or begin a new one"
    )
    if now >= 0:
        cause += f" with {SPARK_PREFIX}checkpoint.restore = CHECKPOINT_LOCATION@{now}"
    raise RestoreError(f"operator {uid!r}", (cause,))
