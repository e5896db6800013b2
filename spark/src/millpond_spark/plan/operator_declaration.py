"""Operators as ``process`` calls declare them, and the state that they begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import attrs
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    CorruptSnapshotError,
    MaxParallelismError,
    RestoreError,
    StorageAccessError,
    UnclaimedStateError,
)
from millpond.functions.user_code import Place
from millpond.savepoints.savepoint_file import read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import SerializerSnapshot

from millpond_spark.plan.layout import Layout
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import names_checkpoint, without_batch


@attrs.frozen
class DeclaredOperator:
    """An operator's division, its state's place and its time, as a ``process`` call declares them.

    Attributes:
        savepoint: the savepoint that it starts from, if it has no state yet.
        by_event_time: whether the operator may hold rows back until the watermark has passed.
        made_at: the user's line at which the operator was made.
        key: the type of its keys.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    storage: CheckpointStorage
    config: Config
    savepoint: SavepointHandle | None
    time_mode: str | None
    by_event_time: bool
    made_at: Place | None
    key: SerializerSnapshot

    @classmethod
    def from_plan(cls, plan: OperatorPlan) -> Self:
        """Return the operator that a plan declares."""
        return cls(
            uid=plan.uid,
            parallelism=plan.parallelism,
            max_parallelism=plan.max_parallelism,
            storage=plan.storage(),
            config=plan.config,
            savepoint=plan.savepoint(),
            time_mode=plan.time_mode,
            by_event_time=plan.watermarked and plan.time_mode is not None,
            made_at=plan.made_at,
            key=plan.key_codec().snapshot(),
        )

    @property
    def restore(self) -> str:
        """The value of ``checkpoint.restore``; empty if it is not set."""
        return self.config.checkpoint.restore or ""

    def layout(self, roster: tuple[str, ...]) -> Layout:
        """Return the layout that the operator would have if it were new, without its sources."""
        return Layout(
            0,
            self.parallelism,
            self.max_parallelism,
            roster=roster,
            restore=self.restore,
            key=self.key,
        )


def restored_layout(
    declared: DeclaredOperator,
    layout: Layout,
    retained: Mapping[str, Sequence[KeyedStateHandle]] | None = None,
) -> Layout:
    """Return the first layout of a new operator with the state that ``checkpoint.restore`` names.

    Args:
        declared: the operator.
        layout: the layout without sources. Its roster has the query's operators that are known.
        retained: the snapshots by uid, if a checkpoint of another query is named.

    Raises:
        UnclaimedStateError: there is state of an operator that is not in the roster.
        MaxParallelismError: the state has another number of key groups.
        RestoreError: the savepoint cannot be read.
    """
    if retained is not None:
        where = f"The checkpoint {declared.restore}"
        stored = {uid: parts[0].max_parallelism for uid, parts in retained.items() if parts}
    elif declared.savepoint is not None:
        where = f"The savepoint {declared.restore}"
        stored = _stored_operators(declared.savepoint, declared.restore)
    else:
        return layout
    others = stored.keys() - set(layout.roster)
    if others and not declared.config.checkpoint.ignore_unclaimed_state:
        raise UnclaimedStateError(where, uids=tuple(sorted(others)), operators=layout.roster)
    groups = stored.get(declared.uid)
    if groups is None:
        return layout
    if groups != declared.max_parallelism:
        raise MaxParallelismError(groups, declared.max_parallelism)
    if retained is None:
        return attrs.evolve(layout, savepoint=declared.restore)
    return attrs.evolve(layout, sources=tuple(retained[declared.uid]))


def _stored_operators(handle: SavepointHandle, named: str) -> dict[str, int]:
    """Return the uids of a savepoint's operators with their numbers of key groups."""
    try:
        return {saved.uid: saved.max_parallelism for saved in read_savepoint(handle).operators}
    except (CorruptSnapshotError, StorageAccessError) as error:
        causes = [str(error)]
        if isinstance(error, CorruptSnapshotError) and names_checkpoint(named, handle.storage):
            query = without_batch(named)
            causes.append(f"a query's checkpoint is named with its batch, as {query}@41")
        what = f"the savepoint {named} of {SPARK_PREFIX}checkpoint.restore"
        raise RestoreError(what, tuple(causes)) from error


_SAVEPOINTS = "a batch starts from savepoints only: take one of the query, and name that"


def restore_bounded(plan: OperatorPlan) -> OperatorPlan:
    """Return the plan of an operator over bounded rows; it restores a savepoint with its state.

    Raises:
        ConfigError: ``checkpoint.restore`` names a query's checkpoint; or the rows are sorted by
            key, a mode that keeps the state of one key and cannot restore.
        UnclaimedStateError: the savepoint holds other operators' state, but not this operator's.
        MaxParallelismError: the state has another number of key groups.
        CorruptSnapshotError: the savepoint cannot be read.
    """
    restore, handle = plan.config.checkpoint.restore or "", plan.savepoint()
    if plan.retained_checkpoint is not None:
        raise ConfigError("checkpoint.restore", _SAVEPOINTS)
    if handle is None:
        return plan
    if plan.batch:
        reason = "batch keeps the state of one key at a time, and checkpoint.restore names that of "
        reason += "many: leave it at streaming"
        raise ConfigError("execution_mode", reason, "process(...)")
    try:
        operators = read_savepoint(handle).operators
    except CorruptSnapshotError as error:
        if not names_checkpoint(restore, handle.storage):
            raise
        reason = f"{error} If it is a query's: {_SAVEPOINTS}"
        raise ConfigError("checkpoint.restore", reason) from error
    stored = {saved.uid: saved.max_parallelism for saved in operators}
    if plan.uid not in stored:
        if plan.config.checkpoint.ignore_unclaimed_state:
            return plan
        what = f"The savepoint {restore} of {SPARK_PREFIX}checkpoint.restore"
        raise UnclaimedStateError(what, uids=tuple(sorted(stored)), operators=(plan.uid,))
    if stored[plan.uid] != plan.max_parallelism:
        raise MaxParallelismError(stored[plan.uid], plan.max_parallelism)
    return attrs.evolve(plan, restores=True)
