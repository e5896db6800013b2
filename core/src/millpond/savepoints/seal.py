"""Sealing an edited savepoint, and re-keying one to another number of key groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NoReturn

import attrs
import pyarrow as pa

from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError, MaxParallelismError
from millpond.keygroups import KeyGroupRange, check_parallelism
from millpond.savepoints.operator_tables import (
    read_operator_states,
    save_operator_states,
    seal_operator_states,
)
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedState,
    Savepoint,
    TableFile,
    read_savepoint,
    reserved,
    state_folder,
    write_savepoint,
)
from millpond.savepoints.table_reader import (
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


def seal_savepoint(
    handle: SavepointHandle,
    *,
    added: bool = False,
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """Accept what an edited savepoint's tables hold now, and seal it anew.

    The files that the metadata names count, and of other Parquet files beside them a warning
    says that they do not. Every row is checked: it must have the columns and types of the
    state, and a key that no other row of the state has and whose key group the savepoint holds; its
    ``key_group`` is computed from its key.

    Args:
        handle: the savepoint.
        added: take all Parquet files in a state's folder instead, whatever their names.
        limits: how much memory may be needed.

    Raises:
        CorruptSnapshotError: a file is gone, or a table holds something that cannot be stored,
            named by file and row; the savepoint stays as it was.
    """
    savepoint = read_savepoint(handle)
    checked = [_checked_operator(handle, each, limits, added=added) for each in savepoint.operators]
    operators = tuple(_sealed_operator(handle, each, limits, names) for each, names in checked)
    write_savepoint(handle, attrs.evolve(savepoint, operators=operators))
    return handle


def _checked_operator(
    handle: SavepointHandle, operator: SavedOperator, limits: RestoreConfig, *, added: bool
) -> tuple[SavedOperator, dict[str, list[str]]]:
    """An operator with its own states sealed, and each keyed state's files; no table is written.

    A refused table shows here, as long as all files are as they were.
    """
    files = {}
    others = {state.file.path for state in operator.operator_states if state.file is not None}
    for state in operator.states:
        known, folder = (
            [file.path for file in state.files],
            state_folder(operator.uid, state.meta.name),
        )
        names = named_files(handle, folder, known, added=added, others=others)
        seen: dict[bytes, str] = {}
        tables = _edited_tables(handle, operator, state, names, limits, seen)
        same = tuple(held for _, held in tables if isinstance(held, TableFile))
        if seen:
            _refuse_again(handle, operator, attrs.evolve(state, files=same), limits, seen)
        files[state.meta.name] = names
    operator_states = seal_operator_states(handle, operator, limits, added=added)
    return attrs.evolve(operator, operator_states=operator_states), files


def _refuse_again(
    handle: SavepointHandle,
    operator: SavedOperator,
    unchanged: SavedState,
    limits: RestoreConfig,
    seen: Mapping[bytes, str],
) -> None:
    """Refuse a row of an edited file whose key is in one that nobody has changed, too."""
    codec = state_codec(handle, operator, unchanged)
    for file in unchanged.files:
        alone = attrs.evolve(unchanged, files=(file,))
        for rows in read_state(handle, operator, alone, operator.key_group_range, limits):
            twice = next((address for address, _ in rows if address in seen), None)
            if twice is not None:
                reason = _twice(codec, twice, handle.path(file.path))
                raise CorruptSnapshotError(seen[twice], reason)


def _twice(codec: TableCodec, address: bytes, other: str) -> str:
    cure = "take one of the two rows out, or the file that is outdated"
    return f"{codec.described(address)} is in {other}, too: {cure}"


def _sealed_operator(
    handle: SavepointHandle,
    operator: SavedOperator,
    limits: RestoreConfig,
    names: Mapping[str, list[str]],
) -> SavedOperator:
    states = []
    for state in operator.states:
        files = tuple(_sealed_files(handle, operator, state, names[state.meta.name], limits))
        states.append(attrs.evolve(state, files=files))
    return attrs.evolve(operator, states=tuple(states))


def _sealed_files(
    handle: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    names: list[str],
    limits: RestoreConfig,
) -> Iterator[TableFile]:
    for name, held in _edited_tables(handle, operator, state, names, limits, {}):
        if isinstance(held, TableFile):
            yield held
        elif held.num_rows:
            groups = held.column("key_group").to_pylist()
            yield write_table(handle, name, held, first=groups[0], last=groups[-1])


def _edited_tables(
    handle: SavepointHandle,
    operator: SavedOperator,
    state: SavedState,
    names: list[str],
    limits: RestoreConfig,
    seen: dict[bytes, str],
) -> Iterator[tuple[str, TableFile | pa.Table]]:
    """By name, each file's checked rows; of one that nobody has changed, its description.

    ``seen`` takes the addresses of the checked rows, each with the path of its file.
    """
    codec = state_codec(handle, operator, state)
    for name in names:
        path = handle.path(name)
        data = edited_bytes(handle, name, limits)
        known = next((file for file in state.files if file.path == name), None)
        if known is not None and known.digest == hashlib.sha256(data).hexdigest():
            yield name, known
        else:
            checks = _RowChecks(path, codec, operator.key_group_range, seen)
            yield name, _regrouped(codec, checks, data, limits)


@attrs.define
class _RowChecks:
    """Finds rows of a file that could be stored, and would be lost or never have been there."""

    path: str
    codec: TableCodec
    key_groups: KeyGroupRange
    _seen: dict[bytes, str]
    _rows: int = 0

    def groups(self, batch: pa.RecordBatch) -> list[int]:
        """The key groups of the next rows.

        Raises:
            CorruptSnapshotError: one is not the savepoint's, or a row says what no state has.
        """
        first, rows = self._rows, self.codec.from_batch(batch, self.path)
        groups = self.codec.groups(rows)
        is_list = self.codec.meta.kind is StateKind.LIST
        for number, ((address, value), group) in enumerate(zip(rows, groups, strict=True), first):
            if group not in self.key_groups:
                reason = f"its key is of key group {group}, the savepoint holds {self.key_groups}"
                self._refuse(number, f"{reason}: take the row out")
            if is_list and not value:
                self._refuse(number, "its list is empty: take the row out")
            other = self._seen.get(address)
            if other == self.path:
                self._refuse(number, "an earlier one has the same key: take one of them out")
            if other is not None:
                self._refuse(number, _twice(self.codec, address, other))
            self._seen[address] = self.path
        self._rows += len(rows)
        return groups

    def _refuse(self, number: int, reason: str) -> NoReturn:
        raise CorruptSnapshotError(self.path, f"row {number}: {reason}")


def _regrouped(
    codec: TableCodec, checks: _RowChecks, data: bytes, limits: RestoreConfig
) -> pa.Table:
    """The rows with the key groups of their keys, in the order of these."""
    batches = []
    for batch in read_table(checks.path, data, codec.schema, limits):
        groups = pa.array(checks.groups(batch), pa.int32())
        batches.append(batch.set_column(0, "key_group", groups))
    table = pa.Table.from_batches([batch.cast(codec.schema) for batch in batches], codec.schema)
    return table.sort_by("key_group")


def rekey_savepoint(
    source: SavepointHandle,
    target: SavepointHandle,
    max_parallelism: int,
    limits: RestoreConfig = RestoreConfig(),
) -> SavepointHandle:
    """Write a savepoint anew with another number of key groups.

    Args:
        source: the savepoint to read; it stays as it is.
        target: where the new one is written.
        max_parallelism: the number of key groups from now on.
        limits: what the source's files may ask for.

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
        batches.append(batch.set_column(0, "key_group", pa.array(groups, pa.int32())))
    table = pa.Table.from_batches([b.cast(after.schema) for b in batches], after.schema)
    writer = TableWriter(new, state_folder(operator.uid, state.meta.name), after.schema)
    for batch in table.sort_by("key_group").to_batches(max_chunksize=1 << 16):
        groups = batch.column("key_group").to_pylist()
        start = 0
        while start < len(groups):
            end = start
            while end < len(groups) and groups[end] == groups[start]:
                end += 1
            writer.add(batch.slice(start, end - start), groups[start])
            start = end
    writer.cut()
    return attrs.evolve(state, files=tuple(writer.files))
