"""Operators of a savepoint that are copied to another one: whole, in part or under other names."""

from __future__ import annotations

from itertools import count
from typing import Self, TypeVar

import attrs

from millpond.arguments import nearest
from millpond.backend.operator_state import StateId
from millpond.config import RestoreConfig
from millpond.errors import ArgumentValueError, NotInSavepointError
from millpond.savepoints.operator_tables import operator_state_folder
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedOperatorState,
    SavedState,
    TableFile,
    state_folder,
)
from millpond.savepoints.table_reader import checked_bytes
from millpond.snapshots.handles import SavepointHandle
from millpond.state.names import Scope, check_state_name
from millpond.state.state_meta import StateMeta

S = TypeVar("S", SavedState, SavedOperatorState)


@attrs.frozen
class KeptOperator:
    """An operator for a new savepoint whose tables are still in another savepoint.

    Attributes:
        source: the savepoint with the tables.
        saved: the operator in the new savepoint; the files' paths are those in the source.
    """

    source: SavepointHandle
    saved: SavedOperator

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of its states; operator states come last."""
        return tuple(name for name, _ in self._ids)

    @property
    def _ids(self) -> tuple[StateId, ...]:
        own = (state.meta.id for state in self.saved.operator_states)
        return (*((state.meta.name, "keyed") for state in self.saved.states), *own)

    def without_state(self, name: str, scope: Scope | None = None) -> Self:
        """Return the operator without a state.

        Raises:
            NotInSavepointError: it has no state of that name.
            ArgumentValueError: it has several states of that name, and no scope selects one.
        """
        chosen = self._chosen(name, scope)

        def kept(states: tuple[S, ...]) -> tuple[S, ...]:
            return tuple(state for state in states if _id(state) != chosen)

        return self._with_states(kept(self.saved.states), kept(self.saved.operator_states))

    def with_state_renamed(self, old: str, new: str, scope: Scope | None = None) -> Self:
        """Return the operator with another name for one of its states.

        Raises:
            NotInSavepointError: it has no state of the old name.
            ArgumentValueError: it has a state of the new name in the same scope, or several of the
                old name, and no scope selects one.
            StateNameError: one of the names belongs to Millpond, as those of timers, or the new
                name is not allowed.
        """
        chosen = self._chosen(old, scope)
        check_state_name(old)
        if (check_state_name(new), chosen[1]) in self._ids:
            raise ArgumentValueError("new_name", "the name of no other state", repr(new))

        def named(state: S) -> S:
            if _id(state) != chosen:
                return state
            return attrs.evolve(state, meta=attrs.evolve(state.meta, name=new))

        return self._with_states(
            tuple(map(named, self.saved.states)), tuple(map(named, self.saved.operator_states))
        )

    def _chosen(self, name: str, scope: Scope | None) -> StateId:
        """Return the one state of a name, in a scope or in all."""
        known = self.state_names
        named = [each for each in self._ids if each[0] == name]
        found = [each for each in named if scope in (None, each[1])]
        if not named:
            what = f"Operator {self.saved.uid!r}"
            raise NotInSavepointError(
                what, kind="state", name=name, known=known, suggestion=nearest(name, known)
            )
        if len(found) != 1:
            there = " or ".join(repr(where) for _, where in named)
            raise ArgumentValueError("scope", f"{there}, which has a state {name!r}", repr(scope))
        return found[0]

    def _with_states(
        self, states: tuple[SavedState, ...], own: tuple[SavedOperatorState, ...]
    ) -> Self:
        saved = attrs.evolve(self.saved, states=states, operator_states=own)
        return attrs.evolve(self, saved=saved)

    def copied(self, uid: str, target: SavepointHandle, limits: RestoreConfig) -> SavedOperator:
        """Copy its checked tables to another savepoint, and return the operator there.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, or edited but not sealed.
        """
        copies = _Copies(self.source, target, limits)
        states = []
        for state in self.saved.states:
            folder = state_folder(uid, state.meta.name)
            files = (
                copies.add(file, f"{folder}/kg-{file.first_group:05d}-{file.last_group:05d}")
                for file in state.files
            )
            states.append(attrs.evolve(state, files=tuple(files)))
        own = []
        for each in self.saved.operator_states:
            stem = f"{operator_state_folder(uid, each.meta, self._ids)}/operator"
            file = None if each.file is None else copies.add(each.file, stem)
            own.append(attrs.evolve(each, file=file))
        return attrs.evolve(self.saved, uid=uid, states=tuple(states), operator_states=tuple(own))


def _id(state: SavedState | SavedOperatorState) -> StateId:
    meta = state.meta
    return (meta.name, "keyed") if isinstance(meta, StateMeta) else meta.id


@attrs.frozen
class _Copies:
    """Copies tables to another savepoint, each under its own name."""

    source: SavepointHandle
    target: SavepointHandle
    limits: RestoreConfig
    _used: set[str] = attrs.field(factory=set)

    def add(self, file: TableFile, stem: str) -> TableFile:
        names = (f"{stem}-{number}.parquet" if number else f"{stem}.parquet" for number in count())
        path = next(name for name in names if name not in self._used)
        self._used.add(path)
        data = checked_bytes(self.source, file, self.limits)
        self.target.storage.write(self.target.path(path), [data])
        return attrs.evolve(file, path=path)
