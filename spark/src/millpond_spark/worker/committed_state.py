"""The state that a subtask starts from: the layout in force, Spark's pointer, and the snapshots.

In a classic session the driver writes the layouts of a query before its first batch. Over Spark
Connect the driver cannot: the client learns of a start afterwards, and the server runs our Python
in tasks only. So there a task writes a layout if that cannot lose state: the first layout of a new
operator, and, in the batch that follows ``millpond rescale``, the layout that it has prepared. All
tasks of a run would write the same layout. Every other start is refused with the command that it
needs.
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
"""The layouts in force by storage, operator and run; none changes during a run."""


def layout_in_force(plan: OperatorPlan, batch: BatchIdentity, pointer: Pointer | None) -> Layout:
    """Return the layout of a run of a query. Over Spark Connect the run's first task writes it.

    Args:
        plan: the operator's plan.
        batch: the run and its present batch.
        pointer: the subtask's pointer in Spark's state, if there is one.

    Raises:
        RestoreError: there is no layout, or it does not divide the key groups as the plan does.
        StateMigrationError: the operator's state has keys that cannot become the plan's.
        UnsettledStartError: over Spark Connect, the user must run ``millpond rescale`` first.
        ConfigError: this worker cannot look for layouts.
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
    """Return the layout of a run over Spark Connect, and write it if it is not there yet.

    Args:
        plan: the operator's plan.
        operator: the operator.
        current: the layout in force; None for a new operator.
        batch_id: the run's present batch.
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
        layout: the number of the layout in force.
        handle: the subtask's own last snapshot; None if it has not run under the layout.
        sources: if ``handle`` is None, the parts of other subtasks' snapshots after a rescale, and
            the savepoint that the operator starts from.
        checkpoint_id: the id of the last snapshot or source; None without any.
    """

    layout: int
    handle: KeyedStateHandle | None
    sources: tuple[KeyedStateHandle | SavepointHandle, ...] = ()
    checkpoint_id: int | None = None

    def operator_state(self, info: SubtaskInfo, limits: RestoreConfig) -> list[OperatorStateHandle]:
        """Return the operator state of the subtask's own snapshot, or its share of the sources.

        Args:
            info: the subtask.
            limits: how large parts of a savepoint may be.
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
    """Return Spark's pointer if this operator wrote it under the layout in force; else None.

    Spark finds pointers by an operator's place in the plan, so it may hand over another operator's.

    Args:
        plan: the operator's plan.
        query: the query's id.
        layout: the layout in force.
        pointer: the pointer in Spark's state.

    Raises:
        RestoreError: the pointer belongs to another operator, which would lose it, or the pointer
            names a layout that does not exist.
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
    """Return the committed state of a subtask.

    Args:
        plan: the operator's plan.
        layout: the layout in force.
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
