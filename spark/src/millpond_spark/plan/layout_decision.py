"""The decision whether an operator keeps its layout or gets another one, and with which state.

A classic session decides when Spark announces a query's start, a session over Spark Connect in a
run's first task, and ``rescale`` for a query that is stopped. All three call ``decide_layout``. A
new operator begins with the state that ``checkpoint.restore`` names, see ``restored_layout``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum

import attrs
from millpond.backend.migration import checked_change
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    CorruptSnapshotError,
    MaxParallelismError,
    RestoreError,
    StorageAccessError,
    UnclaimedStateError,
)
from millpond.savepoints.savepoint_file import read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.snapshots.spark_checkpoint import is_spark_checkpoint
from millpond.types import SerializerSnapshot
from millpond.types.key_columns import codec_from_snapshot

from millpond_spark.plan.layout import Layout
from millpond_spark.plan.plan import OperatorPlan


def declared_layout(plan: OperatorPlan, roster: tuple[str, ...]) -> Layout:
    """Return the layout that an operator would have if it were new, without its sources.

    Args:
        plan: the operator's plan.
        roster: the uids of the query's operators in the order of Spark's plan.
    """
    division, key = (plan.parallelism, plan.max_parallelism), plan.key_codec().snapshot()
    return Layout(0, *division, roster=roster, restore=plan.restore, key=key)


class Step(Enum):
    """The work that an operator's next layout needs."""

    KEEP = "nothing: the layout in force still fits"
    BEGIN = "write the layout, which starts from checkpoint.restore or without state"
    CARRY = "write the layout, which starts from the same snapshots as the last one"
    GATHER = "write the layout, which starts from the last layout's committed snapshots"


def decide_layout(
    uid: str,
    current: Layout | None,
    last: Layout | None,
    declared: Layout,
    now: int,
    has_state: Callable[[], bool],
) -> tuple[Step, Layout]:
    """Decide under which layout an operator runs next.

    Args:
        uid: the operator.
        current: the layout in force; None if the operator is new.
        last: the layout whose pointers count; None if the operator's state was dropped.
        declared: the layout that the operator would have if it were new.
        now: the last committed batch, -1 before the first.
        has_state: returns whether the operator has any state. Called only if the keys have
            changed, as the answer may need a job of Spark.

    Returns:
        The step and the layout. After BEGIN and GATHER the caller adds the layout's sources.

    Raises:
        RestoreError: the checkpointLocation is older than the layout in force.
        MaxParallelismError: the state has another number of key groups.
        StateMigrationError: the keys of the state cannot become the declared ones.
    """
    if current is None:
        return Step.BEGIN, declared
    _require_no_later_state(current, uid, now)
    declared = attrs.evolve(declared, number=current.number + 1)
    # Unsetting `checkpoint.restore` has no effect: users set it for one start only.
    if last is None or (is_fresh(last, now) and declared.restore not in ("", last.restore)):
        return Step.BEGIN, declared
    if last.max_parallelism != declared.max_parallelism:
        raise MaxParallelismError(last.max_parallelism, declared.max_parallelism)
    keeps_keys = last.key in (None, declared.key)
    if not keeps_keys and not is_fresh(last, now) and has_state():
        require_keys(last, uid, declared.key)
        keeps_keys = True
    wanted, had = ((each.parallelism, each.roster, each.status) for each in (declared, last))
    if last == current and keeps_keys and wanted == had:
        return Step.KEEP, current
    if is_fresh(last, now) or last.status == "prepared":
        return Step.CARRY, attrs.evolve(
            declared, sources=last.sources, savepoint=last.savepoint, restore=last.restore
        )
    return Step.GATHER, attrs.evolve(declared, restore=None)


def is_fresh(layout: Layout, now: int) -> bool:
    """Return whether no batch has been committed since the operator began with a layout.

    Args:
        layout: the layout in force.
        now: the last committed batch, -1 before the first.
    """
    return now < 0 or (layout.restore is not None and layout.settled_after == now)


def require_keys(layout: Layout, uid: str, key: SerializerSnapshot | None) -> None:
    """Raise if the keys of an operator's state cannot become the declared keys.

    Opening the state makes the same check, but not in a subtask without state. Such a subtask would
    begin with the new keys while other subtasks keep the old ones.

    Raises:
        StateMigrationError: the keys cannot become the declared ones.
    """
    if key is not None and layout.key != key:
        checked_change(uid, "key", layout.key, codec_from_snapshot(key))


def _require_no_later_state(layout: Layout, uid: str, now: int) -> None:
    """Raise RestoreError if a checkpointLocation is older than an operator's layout.

    The snapshots that the layout names would hold later state than the batches to come.
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


def missing_snapshots(uid: str) -> RestoreError:
    """Return the error for an operator that has pointers, but no layout."""
    cause = (
        f"Spark's checkpoint has state of operator {uid!r}, of which nothing is in "
        "spark.millpond.checkpoint.dir: name the directory that the query was begun with"
    )
    return RestoreError(f"operator {uid!r}", (cause,))


# ---------------------------------------------------------------- the state of a new operator


def restored_layout(
    plan: OperatorPlan,
    layout: Layout,
    retained: Mapping[str, Sequence[KeyedStateHandle]] | None = None,
) -> Layout:
    """Return the first layout of a new operator with the state that ``checkpoint.restore`` names.

    Args:
        plan: the operator's plan.
        layout: the layout without sources. Its roster has the query's operators that are known.
        retained: the snapshots by uid, if ``checkpoint.restore`` names another query's checkpoint.

    Raises:
        UnclaimedStateError: there is state of an operator that is not in the roster.
        MaxParallelismError: the state has another number of key groups.
        RestoreError: the savepoint cannot be read.
    """
    handle = plan.savepoint()
    if retained is not None:
        where = f"The checkpoint {plan.restore}"
        stored = {uid: parts[0].max_parallelism for uid, parts in retained.items() if parts}
    elif handle is not None:
        where = f"The savepoint {plan.restore}"
        query = _ENDING.sub("", plan.restore)
        hint = f"a query's checkpoint is named with its batch, as {query}@41"
        stored = _stored_operators(handle, plan.restore, hint)
    else:
        return layout
    others = stored.keys() - set(layout.roster)
    if not _has_state_of(plan, stored, others, where, layout.roster):
        return layout
    if retained is None:
        return attrs.evolve(layout, savepoint=plan.restore)
    return attrs.evolve(layout, sources=tuple(retained[plan.uid]))


_ENDING = re.compile(r"@[^/@]*$")
_SAVEPOINTS = "a batch starts from savepoints only: take one of the query, and name that"


def restore_bounded(plan: OperatorPlan) -> OperatorPlan:
    """Return the plan of an operator over bounded rows.

    The returned plan restores the savepoint that ``checkpoint.restore`` names, if that has state of
    the operator.

    Raises:
        ConfigError: ``checkpoint.restore`` names a query's checkpoint; or the rows are sorted by
            key, a mode that keeps the state of one key and cannot restore.
        UnclaimedStateError: the savepoint holds other operators' state, but not this operator's.
        MaxParallelismError: the state has another number of key groups.
        RestoreError: the savepoint cannot be read.
    """
    handle = plan.savepoint()
    if plan.retained_checkpoint is not None:
        raise ConfigError("checkpoint.restore", _SAVEPOINTS)
    if handle is None:
        return plan
    if plan.batch:
        reason = "batch keeps the state of one key at a time, and checkpoint.restore names that of "
        reason += "many: leave it at streaming"
        raise ConfigError("execution_mode", reason, "process(...)")
    stored = _stored_operators(handle, plan.restore, _SAVEPOINTS)
    unclaimed = () if plan.uid in stored else tuple(stored)
    where = f"The savepoint {plan.restore}"
    has_state = _has_state_of(plan, stored, unclaimed, where, [plan.uid])
    return attrs.evolve(plan, restores=has_state)


def _has_state_of(
    plan: OperatorPlan,
    stored: Mapping[str, int],
    unclaimed: Collection[str],
    where: str,
    roster: Sequence[str],
) -> bool:
    """Return whether an operator starts with stored state; raise if it must not start.

    Args:
        plan: the operator's plan.
        stored: the number of key groups of each operator that has stored state, by uid.
        unclaimed: the uids among them whose state no operator of the query takes over.
        where: the savepoint or the checkpoint, for errors.
        roster: the uids of the query's operators, for errors.
    """
    if unclaimed and not plan.config.checkpoint.ignore_unclaimed_state:
        raise UnclaimedStateError(where, uids=tuple(sorted(unclaimed)), operators=tuple(roster))
    groups = stored.get(plan.uid)
    if groups is not None and groups != plan.max_parallelism:
        raise MaxParallelismError(groups, plan.max_parallelism)
    return groups is not None


def _stored_operators(handle: SavepointHandle, restore: str, hint: str) -> dict[str, int]:
    """Return the number of key groups of each operator in a savepoint, by uid.

    Args:
        handle: the savepoint.
        restore: the value of ``checkpoint.restore``.
        hint: a cause for the error if the value seems to name a query's checkpoint.

    Raises:
        RestoreError: the savepoint cannot be read.
    """
    try:
        return {saved.uid: saved.max_parallelism for saved in read_savepoint(handle).operators}
    except (CorruptSnapshotError, StorageAccessError) as error:
        causes = [str(error)]
        damaged = isinstance(error, CorruptSnapshotError)
        if damaged and (_ENDING.search(restore) or is_spark_checkpoint(handle.storage)):
            causes.append(hint)
        what = f"the savepoint {restore} of {SPARK_PREFIX}checkpoint.restore"
        raise RestoreError(what, tuple(causes)) from error
