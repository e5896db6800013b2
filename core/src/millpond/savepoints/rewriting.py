"""Tools to change savepoints: accept edits, change the number of key groups, copy operators."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from millpond.arguments import nearest
from millpond.backend.operator_state import StateId
from millpond.errors import (
    ArgumentValueError,
    CorruptSnapshotError,
    MaxParallelismError,
    NotInSavepointError,
)
from millpond.keygroups import KeyGroupRange, check_parallelism
from millpond.savepoints.operator_tables import (
    operator_state_folder,
    read_elements,
    read_operator_states,
    save_operator_states,
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
from millpond.savepoints.state_tables import TableCodec
from millpond.savepoints.table_files import (
    TableWriter,
    read_state,
    read_table,
    state_codec,
    table_bytes,
    write_table,
)
from millpond.snapshots.handles import SavepointHandle
from millpond.state.descriptors import StateKind
from millpond.state.names import Scope, check_state_name
from millpond.state.state_meta import StateMeta

_LOG = logging.getLogger("millpond.savepoint")
_Files = list[tuple[str, TableFile | pa.Table]]
"""The names of a state's files, each with its description if unchanged, else with its rows."""


def seal_savepoint(handle: SavepointHandle, *, added: bool = False) -> SavepointHandle:
    """Accept the present contents of an edited savepoint's tables; return `handle`.

    A restore refuses an edited table until this function has written the table's new digest to the
    metadata. If a state's folder has files that the metadata does not name, they are ignored, and a
    warning is logged.

    Every row of an edited table is checked. It must have the columns and types of the state. Its
    key must be in a key group of the savepoint, and no other row of the state may have the same
    key. The column ``key_group`` is computed again from the key.

    Args:
        handle: the savepoint.
        added: whether to accept all Parquet files in a keyed state's folder, instead of only the
            files that the metadata names.

    Raises:
        CorruptSnapshotError: a file is missing, or a row cannot be stored. The error names the file
            and the row. The savepoint is unchanged.
    """
    savepoint = read_savepoint(handle)
    checked = [
        (_sealed_operator_states(handle, operator), _checked(handle, operator, added=added))
        for operator in savepoint.operators
    ]
    # Nothing is written before all tables are accepted.
    operators = []
    for operator, (operator_states, files_by_state) in zip(
        savepoint.operators, checked, strict=True
    ):
        states = []
        for state, files in zip(operator.states, files_by_state, strict=True):
            written = []
            for name, found in files:
                if isinstance(found, TableFile):
                    written.append(found)
                elif found.num_rows:
                    groups = found.column("key_group")
                    first, last = groups[0].as_py(), groups[-1].as_py()
                    written.append(write_table(handle, name, found, first=first, last=last))
            states.append(attrs.evolve(state, files=tuple(written)))
        operators.append(
            attrs.evolve(operator, states=tuple(states), operator_states=operator_states)
        )
    write_savepoint(handle, attrs.evolve(savepoint, operators=tuple(operators)))
    return handle


def _checked(handle: SavepointHandle, operator: SavedOperator, *, added: bool) -> list[_Files]:
    """Return the files of each keyed state of an operator, with the checked rows of edited files.

    See `seal_savepoint` for the checks.
    """
    others = {state.file.path for state in operator.operator_states if state.file is not None}
    checked: list[_Files] = []
    for state in operator.states:
        codec = state_codec(handle, operator, state)
        known = {file.path: file for file in state.files}
        seen: dict[bytes, str] = {}
        found: _Files = []
        folder = state_folder(operator.uid, state.meta.name)
        for name in _named_files(handle, folder, list(known), added=added, others=others):
            data = table_bytes(handle, name)
            if name in known and known[name].digest == hashlib.sha256(data).hexdigest():
                found.append((name, known[name]))
            else:
                found.append((name, _checked_rows(handle, operator, codec, name, data, seen)))
        unchanged = tuple(file for _, file in found if isinstance(file, TableFile) and seen)
        for file in unchanged:
            alone = attrs.evolve(state, files=(file,))
            for rows in read_state(handle, operator, alone, operator.key_group_range):
                twice = next((address for address, _ in rows if address in seen), None)
                if twice is not None:
                    reason = _twice(codec, twice, handle.path(file.path))
                    raise CorruptSnapshotError(seen[twice], reason)
        checked.append(found)
    return checked


def _sealed_operator_states(
    handle: SavepointHandle, operator: SavedOperator
) -> tuple[SavedOperatorState, ...]:
    """Check the tables of an operator's operator states, and return new records of them."""
    sealed = []
    for state in operator.operator_states:
        file = state.file
        if file is not None:
            data = table_bytes(handle, file.path)
            rows = sum(map(len, read_elements(handle, state, file.path, data).values()))
            digest = hashlib.sha256(data).hexdigest()
            file = attrs.evolve(file, size=len(data), digest=digest, rows=rows)
        sealed.append(attrs.evolve(state, file=file))
    return tuple(sealed)


def _named_files(
    handle: SavepointHandle,
    folder: str,
    named: Sequence[str],
    *,
    added: bool,
    others: Collection[str],
) -> list[str]:
    """Return the Parquet files of a keyed state that `seal_savepoint` accepts.

    Args:
        handle: the savepoint.
        folder: the state's folder.
        named: the files that the metadata names.
        added: whether to return all Parquet files in the folder instead of `named`.
        others: files in the folder that belong to another state.

    Raises:
        CorruptSnapshotError: a file in `named` is missing.
    """
    root = handle.path("x")[:-1]
    found = [path.removeprefix(root) for path in handle.storage.list(handle.path(folder))]
    tables = [path for path in found if path.endswith(".parquet") and path not in others]
    if added:
        return tables
    unnamed = sorted(set(tables) - set(named))
    if missing := sorted(set(named) - set(tables)):
        there = f"; there are {', '.join(unnamed)}" if unnamed else ""
        cure = "give the edited table its name, or take all tables with added=True"
        raise CorruptSnapshotError(handle.path(missing[0]), f"it is missing{there}; {cure}")
    for path in unnamed:
        _LOG.warning("%s is not part of the savepoint: savepoint.json does not name it", path)
    return list(named)


def _checked_rows(
    handle: SavepointHandle,
    operator: SavedOperator,
    codec: TableCodec,
    name: str,
    data: bytes,
    seen: dict[bytes, str],
) -> pa.Table:
    """Check the rows of an edited file, and return them sorted by key group.

    Args:
        handle: the savepoint.
        operator: the record of the state's operator.
        codec: the codec of the state's table.
        name: the file.
        data: the file's bytes.
        seen: the stored keys in the state's edited files so far, each with the name of the file.
            The keys of this file are added.

    Raises:
        CorruptSnapshotError: a row cannot be stored, its key group is not in the savepoint, or
            another row has the same key.
    """
    path, held = handle.path(name), operator.key_group_range
    batches, number = [], 0
    for batch in read_table(path, data, codec.schema, handle.limits):
        rows = codec.from_batch(batch, path)
        groups = codec.groups(rows)
        for (address, value), group in zip(rows, groups, strict=True):
            reason, other = "", seen.get(address)
            if group not in held:
                reason = f"its key is of key group {group}, the savepoint holds {held}: "
                reason += "take the row out"
            elif codec.meta.kind is StateKind.LIST and not value:
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
    """Return the error message for a row whose stored key `address` is also in the file `other`."""
    cure = "take one of the two rows out, or the file that is outdated"
    return f"{codec.described(address)} is in {other}, too: {cure}"


def _with_groups(batch: pa.RecordBatch, groups: list[int], schema: pa.Schema) -> pa.RecordBatch:
    """Return a copy of `batch` with `groups` as its first column ``key_group``."""
    return batch.set_column(0, "key_group", pa.array(groups, pa.int32())).cast(schema)


def rekey_savepoint(
    source: SavepointHandle, target: SavepointHandle, max_parallelism: int
) -> SavepointHandle:
    """Write a copy of a savepoint with another number of key groups; return `target`.

    Args:
        source: the savepoint to read; it is not changed.
        target: the location of the copy.
        max_parallelism: the new number of key groups.

    Raises:
        CorruptSnapshotError: the source is damaged.
        DirectoryNotEmptyError: the target holds files.
        MaxParallelismError: the source has only some of an operator's key groups.
    """
    check_parallelism(max_parallelism)
    savepoint = read_savepoint(source)
    with reserved(target, [operator.uid for operator in savepoint.operators]) as reservation:
        operators = []
        for operator in savepoint.operators:
            if operator.key_group_range != KeyGroupRange(0, operator.max_parallelism - 1):
                raise MaxParallelismError(operator.max_parallelism, max_parallelism)
            states = tuple(
                _rekeyed_state(source, target, operator, state, max_parallelism)
                for state in operator.states
            )
            elements = read_operator_states(source, operator)
            operators.append(
                attrs.evolve(
                    operator,
                    operator_states=save_operator_states(target, operator.uid, elements),
                    max_parallelism=max_parallelism,
                    key_group_range=KeyGroupRange(0, max_parallelism - 1),
                    states=states,
                )
            )
        reservation.complete(Savepoint(savepoint.checkpoint_id, tuple(operators)))
        return target


def _rekeyed_state(
    old: SavepointHandle,
    new: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    max_parallelism: int,
) -> SavedState:
    """Write the table of a keyed state with new key groups; return the record of the new table.

    Args:
        old: the savepoint to read.
        new: the savepoint to write.
        operator: the record of the operator in the old savepoint.
        state: the record of the state in the old savepoint.
        max_parallelism: the new number of key groups.
    """
    before = state_codec(old, operator, state)
    after = TableCodec(operator.key, state.meta, max_parallelism, exact=state.exact)
    batches = []
    for rows in read_state(old, operator, state, operator.key_group_range):
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


@attrs.frozen
class KeptOperator:
    """An operator of an old savepoint that is to be copied into a new savepoint.

    Attributes:
        source: the old savepoint, which holds the tables.
        saved: the record of the operator for the new savepoint. Until the tables are copied, it has
            their paths in `source`.
    """

    source: SavepointHandle
    saved: SavedOperator

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states; operator states come last."""
        return tuple(name for name, _ in self._ids)

    @property
    def _ids(self) -> tuple[StateId, ...]:
        """The name and the scope of each state; operator states come last."""
        own = (state.meta.id for state in self.saved.operator_states)
        return (*((state.meta.name, "keyed") for state in self.saved.states), *own)

    def without_state(self, name: str, scope: Scope | None = None) -> Self:
        """Return a copy of the operator without the state `name`.

        Args:
            name: the state.
            scope: the scope of the state; needed only if several states have this name.

        Raises:
            NotInSavepointError: there is no state of this name.
            ArgumentValueError: there are several states of this name, and `scope` does not select
                one of them.
        """
        chosen = self._chosen(name, scope)
        return self._with_states(lambda state: None if _id(state) == chosen else state)

    def with_state_renamed(self, old: str, new: str, scope: Scope | None = None) -> Self:
        """Return a copy of the operator in which the state `old` has the name `new`.

        Args:
            old: the present name of the state.
            new: the new name of the state.
            scope: the scope of the state; needed only if several states have the old name.

        Raises:
            NotInSavepointError: there is no state of the old name.
            ArgumentValueError: the new name is in use in the same scope, or several states have the
                old name and `scope` does not select one of them.
            StateNameError: the new name is not allowed, or one of the names belongs to Millpond
                itself, for example to its timers.
        """
        chosen = self._chosen(old, scope)
        check_state_name(old)
        if (check_state_name(new), chosen[1]) in self._ids:
            raise ArgumentValueError("new_name", "the name of no other state", repr(new))

        def named(state: Any) -> Any:
            if _id(state) != chosen:
                return state
            return attrs.evolve(state, meta=attrs.evolve(state.meta, name=new))

        return self._with_states(named)

    def _chosen(self, name: str, scope: Scope | None) -> StateId:
        """Return the name and the scope of the state that `name` and `scope` select.

        Raises:
            NotInSavepointError: there is no state of this name.
            ArgumentValueError: `scope` does not select exactly one of the states of this name.
        """
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

    def _with_states(self, change: Callable[[Any], Any]) -> Self:
        """Return a copy of the operator in which each state is replaced by `change(state)`.

        If `change` returns None, the state is removed.
        """
        states = tuple(filter(None, map(change, self.saved.states)))
        own = tuple(filter(None, map(change, self.saved.operator_states)))
        return attrs.evolve(
            self, saved=attrs.evolve(self.saved, states=states, operator_states=own)
        )

    def copied(self, uid: str, target: SavepointHandle) -> SavedOperator:
        """Copy the operator's tables to the savepoint `target`; return the operator's new record.

        Args:
            uid: the operator's uid in `target`.
            target: the new savepoint.

        Raises:
            CorruptSnapshotError: a file is damaged or missing, or was edited without a call of
                `seal_savepoint`.
        """
        used, source = set[str](), attrs.evolve(self.source, limits=target.limits)

        def copy(file: TableFile, stem: str) -> TableFile:
            """Copy the table `file` to a new name that begins with `stem`; return its record."""
            endings = ("", *(f"-{number}" for number in range(1, len(self.saved.files))))
            path = next(
                name for ending in endings if (name := f"{stem}{ending}.parquet") not in used
            )
            used.add(path)
            data = table_bytes(source, file.path, file)
            target.storage.write(target.path(path), [data])
            return attrs.evolve(file, path=path)

        states = []
        for state in self.saved.states:
            folder = state_folder(uid, state.meta.name)
            files = (
                copy(file, f"{folder}/kg-{file.first_group:05d}-{file.last_group:05d}")
                for file in state.files
            )
            states.append(attrs.evolve(state, files=tuple(files)))
        own = []
        for each in self.saved.operator_states:
            stem = f"{operator_state_folder(uid, each.meta, self._ids)}/operator"
            own.append(attrs.evolve(each, file=each.file and copy(each.file, stem)))
        return attrs.evolve(self.saved, uid=uid, states=tuple(states), operator_states=tuple(own))


def _id(state: SavedState | SavedOperatorState) -> StateId:
    meta = state.meta
    return (meta.name, "keyed") if isinstance(meta, StateMeta) else meta.id
