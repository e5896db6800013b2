"""What a subtask starts from: Spark's pointer, once checked, and the snapshots it stands for.

A subtask that has no pointer of the layout in force has not run under it: it starts from what the
layout names as its sources, or from nothing.
"""

from __future__ import annotations

import attrs
from millpond.config import RestoreConfig
from millpond.errors import RestoreError, UnsettledStartError
from millpond.functions.functions import SubtaskInfo
from millpond.operator_id import OperatorId
from millpond.savepoints.operator_tables import operator_state_share
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle

from millpond_spark.plan.layout import Layout, layout_of_run
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker.layout_in_force import rescale_command


@attrs.frozen
class CommittedState:
    """What a subtask has to start from.

    Attributes:
        layout: the number of the layout in force.
        handle: the subtask's own last snapshot.
        sources: without one, the parts of other subtasks' snapshots after a rescale, and the
            savepoint that the operator starts from.
        checkpoint_id: of what is committed; None where nothing is.
    """

    layout: int
    handle: KeyedStateHandle | None
    sources: tuple[KeyedStateHandle | SavepointHandle, ...] = ()
    checkpoint_id: int | None = None

    def operator_state(self, info: SubtaskInfo, limits: RestoreConfig) -> list[OperatorStateHandle]:
        """The subtask's operator state: its own, its share after a rescale, or a savepoint's.

        Args:
            info: the subtask.
            limits: what a savepoint may ask for.
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
    plan: OperatorPlan, query: str, run: str, layout: Layout, pointer: Pointer | None
) -> Pointer | None:
    """Spark's pointer, if it is this operator's, and of the layout in force.

    Raises:
        RestoreError: it is another operator's, which would lose it, or of a layout that does not
            exist.
    """
    if pointer is None:
        return None
    theirs = layout
    if pointer.operator_uid != plan.uid:
        theirs = layout_of_run(plan.storage(), OperatorId(query, pointer.operator_uid), run)
        if pointer.layout == theirs.number:
            raise _another(plan, pointer)
    if pointer.layout > theirs.number:
        cause = f"Spark's state names layout {pointer.layout}, but the last one is {theirs.number}"
        raise RestoreError(f"operator {pointer.operator_uid!r}", (cause,))
    return pointer if pointer.layout == layout.number and theirs is layout else None


def _another(plan: OperatorPlan, pointer: Pointer) -> RestoreError:
    cause = f"Spark hands it the state of operator {pointer.operator_uid!r}"
    if not plan.settles:
        return RestoreError(f"operator {plan.uid!r}", (cause,))
    reason = f"{cause}; give an operator its uid back, or settle what has only changed its place"
    return UnsettledStartError(f"Operator {plan.uid!r}", reason, rescale_command(plan))


def committed_state(
    plan: OperatorPlan, layout: Layout, index: int, pointer: Pointer | None
) -> CommittedState:
    """What the committed pointer names, or after a rescale what the layout's sources hold."""
    if pointer is None:
        sources = tuple(layout.starting_points(index, plan.located, plan.config.restore))
        last = max((source.checkpoint_id for source in sources), default=None)
        return CommittedState(layout.number, None, sources, last)
    if pointer.key_group_range != layout.key_groups(index):
        cause = f"Spark's state is of {pointer.key_group_range}, not of {layout.key_groups(index)}"
        raise RestoreError(f"operator {plan.uid!r}", (cause,))
    own = KeyedStateHandle.from_json(pointer.handle, plan.storage()) if pointer.handle else None
    return CommittedState(layout.number, own, checkpoint_id=pointer.checkpoint_id)
