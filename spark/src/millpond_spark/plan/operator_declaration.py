"""Operators as ``process`` calls declare them, and the layouts that new ones begin with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import attrs
from millpond.config import RestoreConfig
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    CorruptSnapshotError,
    MaxParallelismError,
    RestoreError,
    StorageAccessError,
    UnclaimedStateError,
)
from millpond.functions.user_code import Place
from millpond.savepoints.savepoint_file import SavedOperator, read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import SerializerSnapshot

from millpond_spark.plan.layout import Layout
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.retained_checkpoint import (
    RetainedCheckpoint,
    names_checkpoint,
    without_batch,
)


@attrs.frozen
class DeclaredOperator:
    """How an operator is divided and where its state is, as a ``process`` call says.

    Attributes:
        savepoint: what it starts from, as configuration names it.
        restore: the same, located, if it is a savepoint.
        retained: the same, if it is a checkpoint of another query.
        timed: whether Spark keeps a timeout beside each pointer.
        by_event_time: whether the operator may hold rows back until the watermark has passed.
        made_at: the user's line at which the operator was made.
        key: the type of its keys.
        retains: how many checkpoints stay restorable.
        limits: how large what is read of snapshots may be.
    """

    uid: str
    parallelism: int
    max_parallelism: int
    storage: CheckpointStorage
    savepoint: str
    restore: SavepointHandle | None
    retained: RetainedCheckpoint | None
    ignore_unclaimed: bool
    time_mode: str | None
    timed: bool
    by_event_time: bool
    made_at: Place | None
    key: SerializerSnapshot
    retains: int
    limits: RestoreConfig

    @classmethod
    def of(cls, plan: OperatorPlan) -> Self:
        """What a plan declares."""
        return cls(
            uid=plan.uid,
            parallelism=plan.parallelism,
            max_parallelism=plan.max_parallelism,
            storage=plan.storage(),
            savepoint=plan.config.checkpoint.restore or "",
            restore=plan.savepoint(),
            retained=plan.retained_checkpoint,
            ignore_unclaimed=plan.config.checkpoint.ignore_unclaimed_state,
            time_mode=plan.time_mode,
            timed=plan.timed,
            by_event_time=plan.watermarked and plan.time_mode is not None,
            made_at=plan.made_at,
            key=plan.key_codec().snapshot(),
            retains=plan.config.checkpoint.retained,
            limits=plan.config.restore,
        )


def first_layout(declared: DeclaredOperator, number: int, roster: tuple[str, ...]) -> Layout:
    """The layout of a new operator, which starts from the savepoint if that holds it.

    Args:
        declared: the operator.
        number: the layout's.
        roster: the query's operators, as far as they are known.

    Raises:
        UnclaimedStateError: the savepoint holds state of an operator that is not in the roster.
        MaxParallelismError, RestoreError: the savepoint does not fit, or cannot be read.
    """
    layout = _beginning(declared, number, roster)
    if declared.restore is None:
        return layout
    saved = _operators_in(declared.restore, declared.savepoint)
    stored = {operator.uid: operator.max_parallelism for operator in saved}
    _require_claimed(declared, f"The savepoint {declared.savepoint}", stored, roster)
    found = _fits(declared, stored)
    return attrs.evolve(layout, savepoint=declared.savepoint if found else "")


def layout_of_retained(
    declared: DeclaredOperator,
    number: int,
    roster: tuple[str, ...],
    handles: Mapping[str, Sequence[KeyedStateHandle]],
) -> Layout:
    """The layout of a new operator, which starts from another query's checkpoint if that holds it.

    Args:
        declared: the operator.
        number: the layout's.
        roster: the query's operators.
        handles: what the checkpoint holds, by uid.

    Raises:
        UnclaimedStateError: it holds state of an operator that is not in the roster.
        MaxParallelismError: it is of another number of key groups.
    """
    stored = {uid: parts[0].max_parallelism for uid, parts in handles.items() if parts}
    _require_claimed(declared, f"The checkpoint {declared.retained}", stored, roster)
    sources = tuple(handles[declared.uid]) if _fits(declared, stored) else ()
    return attrs.evolve(_beginning(declared, number, roster), sources=sources)


def _require_claimed(
    declared: DeclaredOperator, where: str, stored: Iterable[str], roster: tuple[str, ...]
) -> None:
    others = set(stored) - set(roster)
    if others and not declared.ignore_unclaimed:
        raise UnclaimedStateError(where, tuple(sorted(others)), roster)


def _fits(declared: DeclaredOperator, stored: Mapping[str, int]) -> bool:
    """Whether there is state of the operator; it must be of as many key groups."""
    found = stored.get(declared.uid)
    if found not in (None, declared.max_parallelism):
        raise MaxParallelismError(found, declared.max_parallelism)
    return found is not None


def plain_layout(declared: DeclaredOperator, number: int, roster: tuple[str, ...]) -> Layout:
    """A layout that starts from nothing."""
    return Layout(
        number,
        declared.parallelism,
        declared.max_parallelism,
        roster=roster,
        timed=declared.timed,
        key=declared.key,
    )


def _beginning(declared: DeclaredOperator, number: int, roster: tuple[str, ...]) -> Layout:
    """A layout that notes with what an operator begins."""
    return attrs.evolve(plain_layout(declared, number, roster), restore=declared.savepoint)


def _operators_in(handle: SavepointHandle, named: str) -> Sequence[SavedOperator]:
    """The operators of the savepoint that configuration names."""
    try:
        return read_savepoint(handle).operators
    except (CorruptSnapshotError, StorageAccessError) as error:
        what = f"the savepoint {named} of {SPARK_PREFIX}checkpoint.restore"
        raise RestoreError(what, _causes(error, handle, named)) from error


def _causes(
    error: CorruptSnapshotError | StorageAccessError, handle: SavepointHandle, named: str
) -> tuple[str, ...]:
    """Why there is no savepoint; of a checkpoint without its batch, how it is named."""
    if isinstance(error, CorruptSnapshotError) and names_checkpoint(named, handle.storage):
        query = without_batch(named)
        return (str(error), f"a query's checkpoint is named with its batch, as {query}@41")
    return (str(error),)
