"""The layout that a task runs under; over Spark Connect the first task settles it.

In a classic session a listener settles the layouts of a query before its first batch. Over Spark
Connect nobody can: the client learns of a start afterwards, and the server runs no Python of ours
but tasks. So a task writes a layout where nothing can be lost by it: the first of a new operator,
and the one that ``millpond rescale`` has prepared, in the batch that follows. All tasks of a run
would write the same. Every other start is refused, with the command that it needs.
"""

from __future__ import annotations

import attrs
from millpond.errors import RestoreError, UnclaimedStateError, UnsettledStartError
from millpond.operator_id import OperatorId
from millpond.snapshots.layout_records import note_settings
from millpond.storage.checkpoint_storage import CheckpointStorage, public_uri

from millpond_spark.plan.layout import Layout, current_layout, layout_of_run, uids_of, write_layout
from millpond_spark.plan.layout_checks import (
    begins_otherwise,
    has_other_keys,
    require_its_keys,
    require_its_past,
)
from millpond_spark.plan.operator_declaration import DeclaredOperator, first_layout
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer

_settled: set[tuple[OperatorId, str]] = set()
"""The operators and runs whose layouts this worker knows to be settled."""


def layout_in_force(
    plan: OperatorPlan, query: str, run: str, batch_id: int, pointer: Pointer | None
) -> Layout:
    """The layout of a run of a query.

    Raises:
        RestoreError: there is none, or it is of another division than the plan's.
        StateMigrationError: the operator's state has keys that cannot become the plan's.
        UnsettledStartError: over Spark Connect, ``millpond rescale`` has to be run before.
    """
    operator = OperatorId(query, plan.uid)
    if plan.settles and (operator, run) not in _settled:
        _settle(plan, operator, batch_id, pointer)
        note_settings(plan.storage(), operator, plan.config.checkpoint.retained)
        _settled.add((operator, run))
    layout = layout_of_run(plan.storage(), operator, run)
    layout.require(plan.uid, plan.parallelism, plan.max_parallelism)
    require_its_keys(layout, plan.uid, plan.key_codec().snapshot())
    if not layout.begun or (pointer is not None and layout.was_overtaken(pointer)):
        reason = f"it went on after batch {layout.settled_after}, when its state was divided anew"
        raise _unsettled(plan, reason)
    return layout


def _settle(
    plan: OperatorPlan, operator: OperatorId, batch_id: int, pointer: Pointer | None
) -> None:
    storage = plan.storage()
    current = current_layout(storage, operator)
    if current is None:
        _require_new(plan, storage, operator, batch_id, pointer)
        _begin(plan, operator, batch_id, 0)
        return
    if current.dropped_after is not None:
        cause = "it was left out of the query: start that in a classic session, or name a new uid"
        raise RestoreError(f"operator {plan.uid!r}", (cause,))
    require_its_past(current, plan.uid, batch_id - 1)
    if begins_otherwise(current, plan.config.checkpoint.restore or "", batch_id - 1):
        _begin(plan, operator, batch_id, current.number + 1)
        return
    key = plan.key_codec().snapshot()
    if has_other_keys(current, key, batch_id - 1):
        current = attrs.evolve(current, number=current.number + 1, key=key)
        write_layout(storage, operator, current)
    if current.parallelism != plan.parallelism:
        reason = f"its state is divided among {current.parallelism} subtasks"
        raise _unsettled(plan, f"{reason}, and {plan.parallelism} are asked for")
    if current.begun:
        return
    if current.rescaled_after != batch_id - 1:
        reason = f"it was prepared after batch {current.rescaled_after}, and this is {batch_id}"
        raise _unsettled(plan, reason)
    if current.key is None and not current.sources:
        current = attrs.evolve(current, key=key)
    begun = attrs.evolve(current, number=current.number + 1, begun=True)
    write_layout(storage, operator, begun)


def _begin(plan: OperatorPlan, operator: OperatorId, batch_id: int, number: int) -> None:
    layout = first_layout(DeclaredOperator.of(plan), number, (plan.uid,))
    write_layout(plan.storage(), operator, attrs.evolve(layout, settled_after=batch_id - 1))


def _require_new(
    plan: OperatorPlan,
    storage: CheckpointStorage,
    operator: OperatorId,
    batch_id: int,
    pointer: Pointer | None,
) -> None:
    """Raise unless an operator without a layout can only be a new one."""
    if pointer is not None and pointer.operator_uid == plan.uid:
        cause = (
            "Spark's checkpoint has its state, of which nothing is in "
            "spark.millpond.checkpoint.dir: name the directory that the query was begun with"
        )
        raise RestoreError(f"operator {plan.uid!r}", (cause,))
    others = uids_of(storage, operator.query) - {plan.uid}
    if others and batch_id > 0 and not plan.config.checkpoint.ignore_unclaimed_state:
        where = "The query's checkpoint"
        raise UnclaimedStateError(where, tuple(sorted(others)), (plan.uid,))


def _unsettled(plan: OperatorPlan, reason: str) -> UnsettledStartError:
    return UnsettledStartError(f"Operator {plan.uid!r}", reason, rescale_command(plan))


def rescale_command(plan: OperatorPlan) -> str:
    """The command that divides the state of a plan's query as the plan does."""
    snapshots = public_uri(plan.config.checkpoint.dir or "")
    return (
        f"millpond rescale CHECKPOINT_LOCATION --snapshots {snapshots} "
        f"--parallelism {plan.parallelism}"
    )
