"""Changed savepoints: sealing after an edit, other numbers of key groups, copies of operators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Self, TypeVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments import nearest
from millpond.backend.operator_state import StateId
from millpond.config import RestoreConfig
from millpond.errors import (
    ArgumentValueError,
    CorruptSnapshotError,
    MaxParallelismError,
    NotInSavepointError,
)
from millpond.keygroups import KeyGroupRange, check_parallelism
from millpond.savepoints.operator_tables import (
    operator_state_folder,
    read_operator_states,
    save_operator_states,
    seal_operator_states,
)
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedOperatorState,
    SavedState,
    Savepoint,
    TableFile,
    read_savepoint,
    reserved,
    state_folder,
    write_savepoint,
)
from millpond.savepoints.table_reader import (
    checked_bytes,
    edited_bytes,
    named_files,
    read_state,
    read_table,
    state_codec,
)
from millpond.savepoints.table_rows import TableCodec
from millpond.savepoints.table_writer import TableWriter, write_table
from millpond.snapshots.handles import SavepointHandle
from millpond.state.descriptors import StateKind
from millpond.state.names import Scope, check_state_name
from millpond.state.state_meta import StateMeta

_Files = list[tuple[str, TableFile | pa.Table]]
"""A state's files by name: the description of an unchanged file, or the rows of an edited one."""


def seal_savepoint(
    handle: SavepointHandle, *, added: bool = False, limits: RestoreConfig = RestoreConfig()
) -> SavepointHandle:
    """Accept the present content of an edited savepoint's tables, and seal it again.

    Only files that the metadata names count; the log warns of other Parquet files next to them.
    Every row is checked: it must have the columns and types of the state, and a key that no other
    row of the state has and whose key group the savepoint holds. Its ``key_group`` is computed
    from its key.

    Args:
        handle: the savepoint.
        added: take all Parquet files in a state's folder instead, with any names.
        limits: how much memory may be needed.

    Raises:
        CorruptSnapshotError: a file is missing, or a table holds a row that cannot be stored,
            named by file and row; the savepoint is unchanged.
    """
    savepoint = read_savepoint(handle)
    checked = [_checked(handle, each, limits, added=added) for each in savepoint.operators]
    # Nothing is written before all tables are accepted.
    operators = tuple(
        attrs.evolve(
            operator,
            states=tuple(
                attrs.evolve(state, files=tuple(_written(handle, found)))
                for state, found in zip(operator.states, files, strict=True)
            ),
        )
        for operator, files in checked
    )
    write_savepoint(handle, attrs.evolve(savepoint, operators=operators))
    return handle


def _checked(
    handle: SavepointHandle, operator: SavedOperator, limits: RestoreConfig, *, added: bool
) -> tuple[SavedOperator, list[_Files]]:
    """Return an operator with its operator states sealed, and the checked files of each state."""
    others = {state.file.path for state in operator.operator_states if state.file is not None}
    found: list[_Files] = []
    for state in operator.states:
        known = [file.path for file in state.files]
        folder = state_folder(operator.uid, state.meta.name)
        names = named_files(handle, folder, known, added=added, others=others)
        found.append(_checked_files(handle, operator, state, names, limits))
    own = seal_operator_states(handle, operator, limits, added=added)
    return attrs.evolve(operator, operator_states=own), found


def _checked_files(
    handle: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    names: list[str],
    limits: RestoreConfig,
) -> _Files:
    codec = state_codec(handle, operator, state)
    known = {file.path: file for file in state.files}
    seen: dict[bytes, str] = {}
    found: _Files = []
    for name in names:
        data = edited_bytes(handle, name, limits)
        if name in known and known[name].digest == hashlib.sha256(data).hexdigest():
            found.append((name, known[name]))
        else:
            groups, path = operator.key_group_range, handle.path(name)
            found.append((name, _regrouped(codec, path, data, groups, limits, seen)))
    unchanged = tuple(file for _, file in found if isinstance(file, TableFile) and seen)
    for file in unchanged:
        alone = attrs.evolve(state, files=(file,))
        for rows in read_state(handle, operator, alone, operator.key_group_range, limits):
            twice = next((address for address, _ in rows if address in seen), None)
            if twice is not None:
                reason = _twice(codec, twice, handle.path(file.path))
                raise CorruptSnapshotError(seen[twice], reason)
    return found


def _written(handle: SavepointHandle, files: _Files) -> Iterator[TableFile]:
    for name, held in files:
        if isinstance(held, TableFile):
            yield held
        elif held.num_rows:
            groups = held.column("key_group")
            yield write_table(handle, name, held, first=groups[0].as_py(), last=groups[-1].as_py())


def _regrouped(
    codec: TableCodec,
    path: str,
    data: bytes,
    key_groups: KeyGroupRange,
    limits: RestoreConfig,
    seen: dict[bytes, str],
) -> pa.Table:
    """Return the checked rows of an edited file, in the order of their keys' key groups.

    Args:
        codec: of the state.
        path: the file, for errors.
        data: its bytes.
        key_groups: the key groups that the savepoint holds.
        limits: how much memory may be needed.
        seen: the file of each address in edited files so far; the rows' addresses are added.

    Raises:
        CorruptSnapshotError: a row cannot be stored, or would be lost.
    """
    batches, number = [], 0
    is_list = codec.meta.kind is StateKind.LIST
    for batch in read_table(path, data, codec.schema, limits):
        rows = codec.from_batch(batch, path)
        groups = codec.groups(rows)
        for (address, value), group in zip(rows, groups, strict=True):
            reason, other = "", seen.get(address)
            if group not in key_groups:
                reason = f"its key is of key group {group}, the savepoint holds {key_groups}: "
                reason += "take the row out"
            elif is_list and not value:
                reason = "its list is empty: take the row out"
            elif other == path:
                reason = "an earlier one has the same key: take one of them out"
            elif other is not None:
                reason = _twice(codec, address, other)
            if reason:
                raise CorruptSnapshotError(path, f"row {number}: {reason}")
            seen[address] = path
            number += 1
        batches.append(_with_groups(batch, groups, codec.schema))
    return pa.Table.from_batches(batches, codec.schema).sort_by("key_group")


def _twice(codec: TableCodec, address: bytes, other: str) -> str:
    cure = "take one of the two rows out, or the file that is outdated"
    return f"{codec.described(address)} is in {other}, too: {cure}"


def _with_groups(batch: pa.RecordBatch, groups: list[int], schema: pa.Schema) -> pa.RecordBatch:
    return batch.set_column(0, "key_group", pa.array(groups, pa.int32())).cast(schema)


def rekey_savepoint(
    source: SavepointHandle,
    target: SavepointHandle,
    max_parallelism: int,
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """Write a copy of a savepoint with another number of key groups.

    Args:
        source: the savepoint to read; it is not changed.
        target: the place of the copy.
        max_parallelism: the new number of key groups.
        limits: how much memory the source's files may need.

    Raises:
        CorruptSnapshotError: the source is damaged.
        DirectoryNotEmptyError: the target holds files.
        MaxParallelismError: it holds only a part of an operator's key groups.
    """
    check_parallelism(max_parallelism)
    savepoint = read_savepoint(source)
    with reserved(target, [operator.uid for operator in savepoint.operators]):
        operators = tuple(
            _rekeyed_operator(source, target, operator, max_parallelism, limits)
            for operator in savepoint.operators
        )
        write_savepoint(target, Savepoint(savepoint.checkpoint_id, operators))
        return target


def _rekeyed_operator(
    old: SavepointHandle,
    new: SavepointHandle,
    operator: SavedOperator,
    max_parallelism: int,
    limits: RestoreConfig,
) -> SavedOperator:
    if operator.key_group_range != KeyGroupRange(0, operator.max_parallelism - 1):
        raise MaxParallelismError(operator.max_parallelism, max_parallelism)
    states = tuple(
        _rekeyed_state(old, new, operator, state, max_parallelism, limits)
        for state in operator.states
    )
    own = read_operator_states(old, operator, limits)
    operator_states = save_operator_states(new, operator.uid, own)
    return attrs.evolve(
        operator,
        operator_states=operator_states,
        max_parallelism=max_parallelism,
        key_group_range=KeyGroupRange(0, max_parallelism - 1),
        states=states,
    )


def _rekeyed_state(
    old: SavepointHandle,
    new: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    max_parallelism: int,
    limits: RestoreConfig,
) -> SavedState:
    before = state_codec(old, operator, state)
    after = TableCodec(operator.key, state.meta, max_parallelism, exact=state.exact)
    batches = []
    for rows in read_state(old, operator, state, operator.key_group_range, limits):
        batch = before.to_batch(rows)
        groups = after.groups(after.from_batch(batch, state.meta.name))
        batches.append(_with_groups(batch, groups, after.schema))
    table = pa.Table.from_batches(batches, after.schema).sort_by("key_group")
    writer = TableWriter(new, state_folder(operator.uid, state.meta.name), after.schema)
    for batch in table.to_batches(max_chunksize=1 << 16):
        runs = pc.run_end_encode(batch.column("key_group"))
        start = 0
        for group, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            writer.add(batch.slice(start, end - start), group)
            start = end
    writer.cut()
    return attrs.evolve(state, files=tuple(writer.files))


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
