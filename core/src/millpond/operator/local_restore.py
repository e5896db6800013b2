"""What an operator in this process starts from: snapshots, or a savepoint."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Self

import attrs

from millpond.config import Config, RestoreConfig
from millpond.errors import RestoreError
from millpond.operator.opening import Restorable, restorable
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.savepoints.operator_tables import operator_state_share
from millpond.savepoints.savepoint_file import SavedOperator, read_savepoint
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.types import SerializerSnapshot


@attrs.frozen
class StartingPoint:
    """Handles to start from.

    Attributes:
        handles: snapshots and savepoints, opened.
        given: whether something was given at all, if only a snapshot without state.
        limits: what savepoints may ask for.
    """

    handles: tuple[KeyedStateHandle | SavepointHandle, ...]
    given: bool
    limits: RestoreConfig = RestoreConfig()

    @classmethod
    def of(
        cls, restore: Restorable | Iterable[Restorable | None] | None, config: Config | None
    ) -> Self:
        """What a ``restore`` argument names.

        Raises:
            RestoreError: it is neither a handle nor a savepoint's path.
        """
        each = _listed(restore)
        config = config or Config()
        registry = get_registry(config.plugins)
        opened = (restorable(one, registry, config) for one in each if one is not None)
        return cls(tuple(opened), bool(each), config.restore)

    @property
    def checkpoint_id(self) -> int | None:
        """Of the newest handle; None where there is none."""
        return max((handle.checkpoint_id for handle in self.handles), default=None)

    def key(self, uid: str) -> SerializerSnapshot | None:
        """The type of an operator's stored keys; None where there are none.

        Raises:
            CorruptSnapshotError, RestoreError: a savepoint cannot be read, or lacks the operator.
        """
        for handle in self.handles:
            return handle.key if isinstance(handle, KeyedStateHandle) else _saved(handle, uid).key
        return None

    def max_parallelism(self, uid: str, otherwise: int) -> int:
        """The number of key groups of an operator's state; another number where there is none.

        Raises:
            CorruptSnapshotError, RestoreError: a savepoint cannot be read, or lacks the operator.
        """
        for handle in self.handles:
            if isinstance(handle, KeyedStateHandle):
                return handle.max_parallelism
            return _saved(handle, uid).max_parallelism
        return otherwise

    def operator_state(
        self, uid: str, index: int = 0, parallelism: int = 1
    ) -> list[OperatorStateHandle]:
        """A subtask's share of an operator's own state."""
        return operator_state_share(self.handles, uid, index, parallelism, self.limits)


def _listed(
    restore: Restorable | Iterable[Restorable | None] | None,
) -> list[Restorable | None]:
    if restore is None:
        return []
    if isinstance(restore, (KeyedStateHandle, SavepointHandle, str, PathLike)):
        return [restore]
    return list(restore)


def _saved(handle: SavepointHandle, uid: str) -> SavedOperator:
    savepoint = read_savepoint(handle)
    known = [operator.uid for operator in savepoint.operators]
    if uid and uid not in known:
        there = ", ".join(map(repr, known))
        raise RestoreError(uid, (f"no operator {uid!r} in the savepoint; there: {there}",))
    return savepoint.operator(OperatorId(uid=uid))
