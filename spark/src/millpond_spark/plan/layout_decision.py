"""The decision whether an operator keeps its layout or gets a new one, and with which state.

A layout says how an operator's key groups are divided among its subtasks, see ``plan/layout.py``.
``decide_layout`` is called in three places: in a classic session by the driver at a query's start,
over Spark Connect by the first task of a run, and by ``rescale`` for a stopped query. A new
operator begins with the state that ``checkpoint.restore`` names, see ``restored_layout``.
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
    """Return the layout that an operator would have if it were new, without snapshots.

    Args:
        plan: the operator's plan.
        roster: the uids of the query's operators in the order of Spark's plan.
    """
    division, key = (plan.parallelism, plan.max_parallelism), plan.key_codec().snapshot()
    return Layout(0, *division, roster=roster, restore=plan.restore, key=key)


class Step(Enum):
    """Whether a new layout must be written for an operator, and with which state it starts."""

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
        uid: the operator's uid.
        current: the layout in force; None if the operator is new.
        last: the last layout under which batches may have run; None if the operator's state was
            dropped.
        declared: the layout that the operator would have if it were new.
        now: the id of the last committed batch; -1 if there is none.
        has_state: returns whether the operator has any state. It may run a Spark job, so it is
            called only if the type of the keys has changed.

    Returns:
        The decision and the next layout. For BEGIN and GATHER the layout has no state yet: the
        caller adds the snapshots or the savepoint.

    Raises:
        RestoreError: the checkpointLocation is older than the layout in force.
        MaxParallelismError: the state has another number of key groups.
        StateMigrationError: the keys in the state cannot be migrated to the declared type.
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
    """Return whether an operator has begun with `layout`, and no batch has been committed since.

    Args:
        layout: the operator's last layout.
        now: the id of the last committed batch; -1 if there is none.
    """
    return now < 0 or (layout.restore is not None and layout.settled_after == now)


def require_keys(layout: Layout, uid: str, key: SerializerSnapshot | None) -> None:
    """Raise an error if the keys of an operator cannot be migrated to the declared type.

    The restore of a subtask also checks this. But a subtask without state restores nothing, and
    would begin with keys of the new type while other subtasks fail.

    Args:
        layout: the layout in force, which has the type of the stored keys.
        uid: the operator's uid.
        key: the declared type of the keys.

    Raises:
        StateMigrationError: the keys cannot be migrated.
    """
    if key is not None and layout.key != key:
        checked_change(uid, "key", layout.key, codec_from_snapshot(key))


def _require_no_later_state(layout: Layout, uid: str, now: int) -> None:
    """Raise RestoreError if the last committed batch `now` is older than `layout`.

    Spark would then run batches again whose rows are already in the snapshots of the layout.
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
    """Return the error for an operator that has state in Spark's checkpoint, but no layout."""
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
        layout: the layout without state. Its roster has the query's operators, as far as known.
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
    """Return `plan`, an operator's plan over bounded rows, with ``restores`` set.

    ``restores`` is true if the savepoint that ``checkpoint.restore`` names has state of the
    operator.

    Raises:
        ConfigError: ``checkpoint.restore`` names a query's checkpoint. Or the execution mode is
            ``batch``, which keeps the state of one key at a time and cannot restore.
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
    """Return whether `stored` has state of an operator.

    Args:
        plan: the operator's plan.
        stored: the number of key groups of each operator that has stored state, by uid.
        unclaimed: the uids in `stored` that no operator of the query has.
        where: the savepoint or the checkpoint, for errors.
        roster: the uids of the query's operators, for errors.

    Raises:
        UnclaimedStateError: there are `unclaimed` uids, and the configuration does not allow it.
        MaxParallelismError: the operator's stored state has another number of key groups.
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
        hint: a further cause in the error if `restore` seems to name a query's checkpoint.

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
