"""What an operator over rows that end starts from: nothing, or the configured savepoint."""

from __future__ import annotations

import attrs
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    CorruptSnapshotError,
    MaxParallelismError,
    UnclaimedStateError,
)
from millpond.savepoints.savepoint_file import SavedOperator, read_savepoint
from millpond.snapshots.handles import SavepointHandle

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.retained_checkpoint import names_checkpoint

_SAVEPOINTS = "a batch starts from savepoints only: take one of the query, and name that"


def starting_from_savepoint(plan: OperatorPlan) -> OperatorPlan:
    """The plan, with whether the operator's state is in the savepoint that configuration names.

    Raises:
        ConfigError: it names a query's checkpoint, or rows are to come sorted by key, for which
            state is kept for one key at a time.
        UnclaimedStateError: the savepoint holds other operators' state, and not this one's.
        MaxParallelismError: its state is of another number of key groups.
        CorruptSnapshotError: it cannot be read.
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
    stored = {saved.uid: saved.max_parallelism for saved in _operators_in(plan, handle)}
    if plan.uid not in stored:
        if plan.config.checkpoint.ignore_unclaimed_state:
            return plan
        what = f"The savepoint {plan.config.checkpoint.restore} of {SPARK_PREFIX}checkpoint.restore"
        raise UnclaimedStateError(what, tuple(sorted(stored)), (plan.uid,))
    if stored[plan.uid] != plan.max_parallelism:
        raise MaxParallelismError(stored[plan.uid], plan.max_parallelism)
    return attrs.evolve(plan, restores=True)


def _operators_in(plan: OperatorPlan, handle: SavepointHandle) -> tuple[SavedOperator, ...]:
    """The operators of the savepoint; of a query's checkpoint without its batch, what to name."""
    try:
        return read_savepoint(handle).operators
    except CorruptSnapshotError as error:
        if names_checkpoint(plan.config.checkpoint.restore or "", handle.storage):
            raise ConfigError(
                "checkpoint.restore", f"{error} If it is a query's: {_SAVEPOINTS}"
            ) from error
        raise
