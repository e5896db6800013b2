"""Sealing an edited savepoint, and re-keying one to another number of key groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import attrs
import pyarrow as pa

from millpond.checkpoint.savepoint.metadata import (
    SavedOperator,
    SavedState,
    Savepoint,
    SavepointHandle,
    TableFile,
    read_savepoint,
    state_folder,
    write_savepoint,
)
from millpond.checkpoint.savepoint.operator_tables import (
    read_operator_states,
    save_operator_states,
    seal_operator_states,
)
from millpond.checkpoint.savepoint.read import read_state, read_table
from millpond.checkpoint.savepoint.rows import TableCodec
from millpond.checkpoint.savepoint.write import TableWriter, write_table
from millpond.errors import MaxParallelismError
from millpond.keygroups import KeyGroupRange, check_parallelism

__all__ = ["rekey_savepoint", "seal_savepoint"]


def seal_savepoint(handle: SavepointHandle) -> SavepointHandle:
    """Accept what an edited savepoint's tables hold now, and seal it anew.

    All Parquet files in a state's folder count, whatever their names. Every row is checked: it
    must have the columns and types of the state; its ``key_group`` is computed from its key.

    Args:
        handle: the savepoint.

    Raises:
        CorruptSnapshotError: a table holds something that cannot be stored, named by file and
            row; the savepoint stays as it was.
    """
    savepoint = read_savepoint(handle)
    operators = tuple(_sealed_operator(handle, operator) for operator in savepoint.operators)
    write_savepoint(handle, attrs.evolve(savepoint, operators=operators))
    return handle


def _sealed_operator(handle: SavepointHandle, operator: SavedOperator) -> SavedOperator:
    states = tuple(
        attrs.evolve(state, files=tuple(_sealed_files(handle, operator, state)))
        for state in operator.states
    )
    operator_states = seal_operator_states(handle, operator)
    return attrs.evolve(operator, states=states, operator_states=operator_states)


def _sealed_files(
    handle: SavepointHandle, operator: SavedOperator, state: SavedState
) -> Iterator[TableFile]:
    codec = TableCodec(operator.key, state.meta, operator.max_parallelism, exact=state.exact)
    folder = handle.path(state_folder(operator.uid, state.meta.name))
    for path in handle.storage.list(folder):
        if not path.endswith(".parquet"):
            continue
        name = path.removeprefix(f"{handle.folder}/") if handle.folder else path
        data = handle.storage.read_all(path)
        known = next((file for file in state.files if file.path == name), None)
        if known is not None and known.digest == hashlib.sha256(data).hexdigest():
            yield known
            continue
        table = _regrouped(codec, path, data)
        if table.num_rows:
            groups = table.column("key_group").to_pylist()
            yield write_table(handle, name, table, first=groups[0], last=groups[-1])


def _regrouped(codec: TableCodec, path: str, data: bytes) -> pa.Table:
    """The rows with the key groups of their keys, in the order of these."""
    batches = []
    for batch in read_table(path, data, codec.schema):
        groups = pa.array(codec.groups(codec.from_batch(batch, path)), pa.int32())
        batches.append(batch.set_column(0, "key_group", groups))
    table = pa.Table.from_batches([batch.cast(codec.schema) for batch in batches], codec.schema)
    return table.sort_by("key_group")


def rekey_savepoint(
    source: SavepointHandle, target: SavepointHandle, max_parallelism: int
) -> SavepointHandle:
    """Write a savepoint anew with another number of key groups.

    Args:
        source: the savepoint to read; it stays as it is.
        target: where the new one is written.
        max_parallelism: the number of key groups from now on.

    Raises:
        CorruptSnapshotError: the source is damaged.
        MaxParallelismError: it holds only a part of an operator's key groups.
    """
    check_parallelism(max_parallelism)
    savepoint = read_savepoint(source)
    operators = tuple(
        _rekeyed_operator(source, target, operator, max_parallelism)
        for operator in savepoint.operators
    )
    write_savepoint(target, Savepoint(savepoint.checkpoint_id, operators))
    return target


def _rekeyed_operator(
    old: SavepointHandle, new: SavepointHandle, operator: SavedOperator, max_parallelism: int
) -> SavedOperator:
    if operator.key_group_range != KeyGroupRange(0, operator.max_parallelism - 1):
        raise MaxParallelismError(operator.max_parallelism, max_parallelism)
    states = tuple(
        _rekeyed_state(old, new, operator, state, max_parallelism) for state in operator.states
    )
    operator_states = save_operator_states(new, operator.uid, read_operator_states(old, operator))
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
) -> SavedState:
    before = TableCodec(operator.key, state.meta, operator.max_parallelism, exact=state.exact)
    after = TableCodec(operator.key, state.meta, max_parallelism, exact=state.exact)
    batches = []
    for rows in read_state(old, operator, state, operator.key_group_range):
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
