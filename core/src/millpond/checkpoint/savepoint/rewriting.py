"""Operators of a savepoint that another one is to have, whole, in part or under other names."""

from __future__ import annotations

from itertools import count
from typing import Self, TypeVar

import attrs

from millpond.arguments import nearest
from millpond.checkpoint.savepoint.savepoint_file import (
    SavedOperator,
    SavedOperatorState,
    SavedState,
    SavepointHandle,
    TableFile,
    state_folder,
)
from millpond.checkpoint.savepoint.table_reader import checked_bytes
from millpond.config import RestoreConfig
from millpond.errors import ArgumentValueError, NotInSavepointError
from millpond.state.names import check_state_name

__all__ = ["KeptOperator"]

S = TypeVar("S", SavedState, SavedOperatorState)


@attrs.frozen
class KeptOperator:
    """An operator as it is to be, its tables still lying in the savepoint that it is from.

    Attributes:
        source: that savepoint.
        saved: what is to be said of it; the files' paths are those in the source.
    """

    source: SavepointHandle
    saved: SavedOperator

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of its states, those of the operator last."""
        own = (state.meta.name for state in self.saved.operator_states)
        return (*(state.meta.name for state in self.saved.states), *own)

    def without_state(self, name: str) -> Self:
        """The operator without a state.

        Raises:
            NotInSavepointError: it has none of that name.
        """
        self._require(name)

        def kept(states: tuple[S, ...]) -> tuple[S, ...]:
            return tuple(state for state in states if state.meta.name != name)

        return self._with_states(kept(self.saved.states), kept(self.saved.operator_states))

    def with_state_renamed(self, old: str, new: str) -> Self:
        """The operator, one of its states under another name.

        Raises:
            NotInSavepointError: it has none of the old name.
            ArgumentValueError: it has one of the new name.
            StateNameError: one of the names is Millpond's own, as those of timers are, or the new
                one cannot be a state's.
        """
        self._require(old)
        check_state_name(old)
        if check_state_name(new) in self.state_names:
            raise ArgumentValueError("new_name", "the name of no other state", repr(new))

        def named(state: S) -> S:
            if state.meta.name != old:
                return state
            return attrs.evolve(state, meta=attrs.evolve(state.meta, name=new))

        return self._with_states(
            tuple(map(named, self.saved.states)), tuple(map(named, self.saved.operator_states))
        )

    def _require(self, name: str) -> None:
        known = self.state_names
        if name not in known:
            what = f"Operator {self.saved.uid!r}"
            raise NotInSavepointError(what, "state", name, known, nearest(name, known))

    def _with_states(
        self, states: tuple[SavedState, ...], own: tuple[SavedOperatorState, ...]
    ) -> Self:
        saved = attrs.evolve(self.saved, states=states, operator_states=own)
        return attrs.evolve(self, saved=saved)

    def copied(self, uid: str, target: SavepointHandle, limits: RestoreConfig) -> SavedOperator:
        """Copy its tables to another savepoint, and say what is there; bytes that are checked.

        Raises:
            CorruptSnapshotError: a file is damaged, missing, or edited but not sealed.
        """
        copies = _Copies(self.source, target, limits)
        states = []
        for state in self.saved.states:
            folder = state_folder(uid, state.meta.name)
            files = (copies.add(file, f"{folder}/{_stem(file)}") for file in state.files)
            states.append(attrs.evolve(state, files=tuple(files)))
        own = []
        for each in self.saved.operator_states:
            stem = f"{state_folder(uid, each.meta.name)}/operator"
            file = None if each.file is None else copies.add(each.file, stem)
            own.append(attrs.evolve(each, file=file))
        return attrs.evolve(self.saved, uid=uid, states=tuple(states), operator_states=tuple(own))


def _stem(file: TableFile) -> str:
    return f"kg-{file.first_group:05d}-{file.last_group:05d}"


@attrs.frozen
class _Copies:
    """Tables' files on their way to another savepoint, each under a name of its own there."""

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
