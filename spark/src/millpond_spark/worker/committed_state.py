"""The state that a subtask starts from: its layout, its pointer in Spark's state, its snapshots.

A layout says how an operator's key groups are divided among its subtasks, see ``plan/layout.py``. A
pointer is a row in Spark's state that names a subtask's snapshot, see ``plan/pointer.py``.

In a classic session the driver writes the layouts of a query before the first batch. Over Spark
Connect it cannot: the client learns of a query's start too late, and the server runs Millpond's
code only in tasks. There a task writes the layout, in two cases in which no state can be lost: the
first layout of a new operator, and the layout after ``millpond rescale``. If several tasks do so,
they write equal layouts. All other starts that need a new layout are refused. The error names the
command to run first.
"""

from __future__ import annotations

import attrs
from millpond.config import RestoreConfig
from millpond.errors import (
    MaxParallelismError,
    RestoreError,
    UnclaimedStateError,
    UnsettledStartError,
)
from millpond.functions.functions import SubtaskInfo
from millpond.operator_id import OperatorId
from millpond.savepoints.operator_tables import operator_state_share
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.layouts import note_settings
from millpond.storage.checkpoint_storage import public_uri

from millpond_spark.plan.batch_identity import BatchIdentity
from millpond_spark.plan.layout import Layout, current_layout, query_uids, write_layout
from millpond_spark.plan.layout_decision import (
    Step,
    decide_layout,
    declared_layout,
    missing_snapshots,
    require_keys,
    restored_layout,
)
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer

_RUNS_KEPT = 64
_layouts: dict[tuple[str, OperatorId, str], Layout] = {}
"""The layouts by storage, operator and run. A layout does not change during a run."""


def layout_in_force(plan: OperatorPlan, batch: BatchIdentity, pointer: Pointer | None) -> Layout:
    """Return the operator's layout in a run of a query. Over Spark Connect, write it if necessary.

    Args:
        plan: the operator's plan.
        batch: the identity of the query, the run and the batch.
        pointer: the subtask's pointer in Spark's state, if there is one.

    Raises:
        RestoreError: there is no layout, or it has another number of subtasks than `plan`.
        MaxParallelismError: the layout has another number of key groups than `plan`.
        StateMigrationError: the keys in the state cannot be migrated to the plan's type of keys.
        UnsettledStartError: over Spark Connect, the user must run ``millpond rescale`` first.
        ConfigError: the worker cannot list the directory of snapshots.
    """
    storage, operator = plan.storage(), OperatorId(batch.query, plan.uid)
    key = (storage.uri, operator, batch.run)
    layout = _layouts.get(key)
    if layout is None:
        layout = current_layout(storage, operator)
        if plan.settles:
            layout = _first_task_layout(plan, operator, layout, batch.batch_id, pointer)
            note_settings(storage, operator, plan.config.checkpoint.retained)
        if layout is None:
            cause = (
                f"the driver's layout for run {batch.run} is not in {public_uri(storage.uri)}: "
                "name a directory that the driver and all workers share; if it was moved or "
                "deleted while the query ran, bring it back and start the query again"
            )
            raise RestoreError(f"operator {plan.uid!r}", (cause,))
        if len(_layouts) >= _RUNS_KEPT:
            _layouts.clear()
        _layouts[key] = layout
    if plan.max_parallelism != layout.max_parallelism:
        raise MaxParallelismError(layout.max_parallelism, plan.max_parallelism)
    if plan.parallelism != layout.parallelism:
        cause = f"layout {layout.number} is for {layout.parallelism} subtasks"
        raise RestoreError(f"operator {plan.uid!r}", (f"{cause}, not {plan.parallelism}",))
    require_keys(layout, plan.uid, plan.key_codec().snapshot())
    if layout.status != "begun" or (pointer is not None and layout.was_overtaken(pointer)):
        reason = f"it went on after batch {layout.settled_after}, when its state was divided again"
        raise _unsettled(plan, reason)
    return layout


def _first_task_layout(
    plan: OperatorPlan,
    operator: OperatorId,
    current: Layout | None,
    batch_id: int,
    pointer: Pointer | None,
) -> Layout:
    """Return the layout for a run over Spark Connect, and write it if it is new.

    Args:
        plan: the operator's plan.
        operator: the operator.
        current: the operator's last layout; None for a new operator.
        batch_id: the id of the batch.
        pointer: the subtask's pointer in Spark's state, if there is one.

    Raises:
        RestoreError, UnclaimedStateError, UnsettledStartError: the task may not write a layout.
    """
    storage, now = plan.storage(), batch_id - 1
    if current is None:
        if pointer is not None and pointer.operator_uid == plan.uid:
            raise missing_snapshots(plan.uid)
        others = query_uids(storage, operator.query) - {plan.uid}
        if others and batch_id > 0 and not plan.config.checkpoint.ignore_unclaimed_state:
            where = "The query's checkpoint"
            raise UnclaimedStateError(where, uids=tuple(sorted(others)), operators=(plan.uid,))
    elif current.status == "dropped":
        cause = "it was left out of the query: start that in a classic session, or name a new uid"
        raise RestoreError(f"operator {plan.uid!r}", (cause,))
    # A task does not know the query's other operators, nor whether other subtasks have state.
    wanted = declared_layout(plan, current.roster if current else (plan.uid,))
    step, layout = decide_layout(plan.uid, current, current, wanted, now, lambda: True)
    if step is Step.KEEP:
        return layout
    layout = attrs.evolve(layout, settled_after=now)
    if step is Step.BEGIN:
        layout = restored_layout(plan, layout)
    elif current is not None:
        if current.parallelism != plan.parallelism:
            reason = f"its state is divided among {current.parallelism} subtasks"
            raise _unsettled(plan, f"{reason}, and {plan.parallelism} are asked for")
        if current.status == "prepared" and current.settled_after != now:
            reason = f"it was prepared after batch {current.settled_after}, and this is {batch_id}"
            raise _unsettled(plan, reason)
    write_layout(storage, operator, layout)
    return layout


def _unsettled(plan: OperatorPlan, reason: str) -> UnsettledStartError:
    """Return the error for a start over Spark Connect that needs ``millpond rescale`` first."""
    snapshots = public_uri(plan.config.checkpoint.dir or "")
    command = (
        f"millpond rescale CHECKPOINT_LOCATION --snapshots {snapshots} "
        f"--parallelism {plan.parallelism}"
    )
    return UnsettledStartError(f"Operator {plan.uid!r}", reason=reason, command=command)


@attrs.frozen
class CommittedState:
    """The committed state that a subtask starts from.

    Attributes:
        layout: the number of the operator's layout.
        handle: the subtask's own last snapshot; None if the subtask has no state or has not run
            under the layout.
        sources: the snapshots of other subtasks and the savepoint from which to restore, if the
            subtask has not run under the layout.
        checkpoint_id: the id of the last checkpoint that the subtask starts from; None if there is
            no checkpoint.
    """

    layout: int
    handle: KeyedStateHandle | None
    sources: tuple[KeyedStateHandle | SavepointHandle, ...] = ()
    checkpoint_id: int | None = None

    def operator_state(self, info: SubtaskInfo, limits: RestoreConfig) -> list[OperatorStateHandle]:
        """Return the handles of the operator state that the subtask restores.

        Args:
            info: the subtask.
            limits: limits on the sizes of files to read.
        """
        found: list[OperatorStateHandle] = []
        for handle in (self.handle,) if self.handle else self.sources:
            if isinstance(handle, KeyedStateHandle):
                found += handle.operator_state
            else:
                uid, index = info.operator_uid, info.index
                found += operator_state_share([handle], uid, index, info.parallelism, limits)
        return found


def own_pointer(
    plan: OperatorPlan, query: str, layout: Layout, pointer: Pointer | None
) -> Pointer | None:
    """Return `pointer` if this operator has written it under `layout`; else None.

    Spark stores pointers by the position of an operator in the query's plan. Therefore `pointer`
    may belong to an operator that had this position before.

    Args:
        plan: the operator's plan.
        query: the query's id.
        layout: the operator's layout.
        pointer: the pointer in Spark's state, if there is one.

    Raises:
        RestoreError: the pointer belongs to another operator that still needs it, or it names a
            layout that does not exist.
        UnsettledStartError: over Spark Connect, the pointer belongs to another operator that still
            needs it.
    """
    if pointer is None:
        return None
    theirs: Layout | None = layout
    if pointer.operator_uid != plan.uid:
        theirs = current_layout(plan.storage(), OperatorId(query, pointer.operator_uid))
        if theirs is not None and pointer.layout == theirs.number:
            cause = f"Spark hands it the state of operator {pointer.operator_uid!r}"
            if not plan.settles:
                raise RestoreError(f"operator {plan.uid!r}", (cause,))
            cure = "give an operator its uid back, or run the command if only its place has changed"
            raise _unsettled(plan, f"{cause}; {cure}")
    if theirs is None or pointer.layout > theirs.number:
        last = "there is none" if theirs is None else f"the last one is {theirs.number}"
        cause = f"Spark's state names layout {pointer.layout}, but {last}"
        raise RestoreError(f"operator {pointer.operator_uid!r}", (cause,))
    return pointer if pointer.layout == layout.number and theirs is layout else None


def committed_state(
    plan: OperatorPlan, layout: Layout, index: int, pointer: Pointer | None
) -> CommittedState:
    """Return the committed state of the subtask `index`.

    Args:
        plan: the operator's plan.
        layout: the operator's layout.
        index: the subtask.
        pointer: the result of ``own_pointer``.

    Raises:
        RestoreError: the pointer has other key groups than the subtask.
    """
    if pointer is None:
        sources = tuple(layout.starting_points(index, plan.located, plan.config.restore))
        last = max((source.checkpoint_id for source in sources), default=None)
        return CommittedState(layout.number, None, sources, last)
    if pointer.key_group_range != layout.key_groups(index):
        cause = f"Spark's state is of {pointer.key_group_range}, not of {layout.key_groups(index)}"
        raise RestoreError(f"operator {plan.uid!r}", (cause,))
    own = KeyedStateHandle.from_json(pointer.handle, plan.storage()) if pointer.handle else None
    return CommittedState(layout.number, own, checkpoint_id=pointer.checkpoint_id)
