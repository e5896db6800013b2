"""Operator state in a savepoint. Each state is a table, each list element or map entry a row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.operator_state import FrozenState, Mode, OperatorStateMeta, StateId
from millpond.config import RestoreConfig
from millpond.errors import CorruptSnapshotError
from millpond.operator_id import OperatorId
from millpond.safe_decoding import decoding, unreadable
from millpond.savepoints.savepoint_file import (
    SavedOperator,
    SavedOperatorState,
    read_savepoint,
    state_folder,
)
from millpond.savepoints.table_files import read_table, table_bytes, write_table
from millpond.snapshots.handles import KeyedStateHandle, OperatorStateHandle, SavepointHandle
from millpond.snapshots.operator_state import operator_state_parts, write_operator_state
from millpond.snapshots.redistribution import redistributed
from millpond.storage.memory import MemoryStorage
from millpond.types.key_columns import codec_from_snapshot, key_column
from millpond.types.scalar_base import UnfitError
from millpond.types.value_columns import column_form

_KEY_LENGTH = 4


class OperatorTableCodec:
    """The conversion of one operator state's elements to a table and back.

    Attributes:
        schema: the columns of the table. A list has ``subtask, value``, and a broadcast map has
            ``subtask, map_key, value``.
    """

    def __init__(self, meta: OperatorStateMeta, *, exact: bool) -> None:
        self.meta = meta
        self._form = column_form(meta.value, exact=exact)
        fields = [("subtask", pa.int32()), ("value", self._form.arrow_type)]
        if meta.map_key is not None:
            self._codec, self._map_key = codec_from_snapshot(meta.map_key), key_column(meta.map_key)
            fields.insert(1, ("map_key", self._map_key.arrow_type))
        self.schema = pa.schema(fields)

    def to_table(self, partitions: Mapping[int, Sequence[bytes]]) -> pa.Table:
        """Return the table with the elements of each subtask, in their order.

        Args:
            partitions: the bytes of the elements, by the number of the subtask.

        Raises:
            UnfitError: a value does not fit the column type for its state, such as int64.
        """
        rows: list[dict[str, Any]] = []
        for subtask, parts in sorted(partitions.items()):
            for data in parts:
                try:
                    rows.append({"subtask": subtask, **self._row(data)})
                except UnfitError:
                    raise
                except Exception as error:
                    raise unreadable("operator state", self.meta.name, data, error) from error
        return pa.Table.from_pylist(rows, self.schema)

    def _row(self, data: bytes) -> dict[str, Any]:
        """Return the column values of one element, from its bytes."""
        if self.meta.map_key is None:
            return {"value": self._form.to_column(data)}
        end = _KEY_LENGTH + int.from_bytes(data[:_KEY_LENGTH], "big")
        key, _ = self._codec.decode(data[:end], _KEY_LENGTH)
        return {"map_key": self._map_key.to_column(key), "value": self._form.to_column(data[end:])}

    def element(self, row: Mapping[str, Any]) -> bytes:
        """Return the bytes of an element from the column values in `row`.

        If a value does not fit, an exception of any class may be raised.
        """
        value: bytes = self._form.from_column(row["value"])
        if self.meta.map_key is None:
            return value
        key = self._codec.encode(self._codec.check(self._map_key.from_column(row["map_key"])))
        return len(key).to_bytes(_KEY_LENGTH, "big") + key + value


def save_operator_states(
    handle: SavepointHandle, uid: str, subtasks: Sequence[Sequence[FrozenState]]
) -> tuple[SavedOperatorState, ...]:
    """Write a table for each operator state; return the records of the tables.

    Args:
        handle: the savepoint.
        uid: the operator.
        subtasks: the states of each subtask, in the order of the subtasks.
    """
    metas = {state.meta.id: state.meta for states in subtasks for state in states}
    saved = []
    for known, meta in sorted(metas.items()):
        partitions = {
            number: state.partitions
            for number, states in enumerate(subtasks)
            for state in states
            if state.meta.id == known
        }
        if meta.mode is Mode.BROADCAST:  # one copy; a subtask may have none, or one without entries
            partitions = {0: next(filter(None, partitions.values()), ())}
        exact, table = _fitting_table(meta, partitions)
        path = f"{operator_state_folder(uid, meta, metas)}/operator.parquet"
        file = write_table(handle, path, table, first=0, last=0) if table.num_rows else None
        saved.append(SavedOperatorState(meta, len(subtasks), file, exact))
    return tuple(saved)


def operator_state_folder(uid: str, meta: OperatorStateMeta, known: Collection[StateId]) -> str:
    """Return the folder for the table of an operator state.

    If a list state has the same name as a broadcast state, the folder of the broadcast state ends
    with ``!broadcast``. No other state can have a folder with this ending.

    Args:
        uid: the operator.
        meta: the state.
        known: the names and scopes of all states of the operator.
    """
    shared = meta.scope == "broadcast" and (meta.name, "list") in known
    return state_folder(uid, meta.name, "!broadcast" if shared else "")


def _fitting_table(
    meta: OperatorStateMeta, partitions: Mapping[int, Sequence[bytes]]
) -> tuple[bool, pa.Table]:
    """Return whether the table of an operator state has the exact form, and the table.

    It has the exact form (see ``SavedState``) if a value does not fit the usual column type.
    """
    try:
        return False, OperatorTableCodec(meta, exact=False).to_table(partitions)
    except (UnfitError, pa.ArrowInvalid):
        return True, OperatorTableCodec(meta, exact=True).to_table(partitions)


def read_operator_states(
    handle: SavepointHandle, operator: SavedOperator
) -> list[list[FrozenState]]:
    """Return the operator states of each subtask from a savepoint.

    Only the first subtask has the broadcast maps, because all subtasks' maps are equal.

    Raises:
        CorruptSnapshotError: a file is damaged, missing, or holds other columns or values.
    """
    count = max((state.subtasks for state in operator.operator_states), default=0)
    subtasks: list[list[FrozenState]] = [[] for _ in range(count)]
    for state in operator.operator_states:
        partitions: dict[int, list[bytes]] = {}
        if state.file is not None:
            data = table_bytes(handle, state.file.path, state.file)
            partitions = read_elements(handle, state, state.file.path, data)
        if state.meta.mode is Mode.BROADCAST:
            entries = (entry for _, each in sorted(partitions.items()) for entry in each)
            subtasks[0].append(FrozenState(state.meta, tuple(entries)))
            continue
        for number, found in enumerate(subtasks):
            found.append(FrozenState(state.meta, tuple(partitions.get(number, ()))))
    return subtasks


def read_elements(
    handle: SavepointHandle, state: SavedOperatorState, name: str, data: bytes
) -> dict[int, list[bytes]]:
    """Return the elements of an operator state as bytes, by the number of the subtask.

    Args:
        handle: the savepoint.
        state: the record of the state in the savepoint's metadata.
        name: the file of the state's table.
        data: the bytes of the file.

    Raises:
        CorruptSnapshotError: a value is null or does not fit the type of its column, or the number
            of a subtask is out of range.
    """
    path = handle.path(name)
    with decoding(path, f"the types of operator state {state.meta.name!r}"):
        codec = OperatorTableCodec(state.meta, exact=state.exact)
    batches = read_table(path, data, codec.schema, handle.limits)
    elements: dict[int, list[bytes]] = {}
    for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
        try:
            elements.setdefault(int(row["subtask"]), []).append(codec.element(row))
        except MemoryError:
            raise
        except Exception as error:
            raise CorruptSnapshotError(path, f"row {number} is not an entry: {error}") from error
    if elements and not 0 <= min(elements) <= max(elements) < state.subtasks:
        raise CorruptSnapshotError(path, f"a subtask is not within the {state.subtasks} of before")
    return elements


def operator_state_share(
    handles: Sequence[KeyedStateHandle | SavepointHandle],
    uid: str,
    subtask: int,
    parallelism: int,
    limits: RestoreConfig,
) -> list[OperatorStateHandle]:
    """Return the operator state with which one new subtask starts, from snapshots or savepoints.

    Args:
        handles: the snapshots of the old subtasks, or savepoints.
        uid: the operator to look up in savepoints.
        subtask: the number of the new subtask, counted from 0.
        parallelism: the number of new subtasks.
        limits: the limits for the memory that the files may need.

    Raises:
        CorruptSnapshotError, RestoreError: a snapshot or savepoint cannot be read.
    """
    snapshots = (each for each in handles if isinstance(each, KeyedStateHandle))
    old = operator_state_parts(snapshots, limits)
    for handle in handles:
        if isinstance(handle, SavepointHandle):
            operator = read_savepoint(handle).operator(OperatorId(uid=uid))
            # A handle cannot refer to a table, so the elements are copied to a storage in memory.
            storage, saved = MemoryStorage.private(), OperatorId(uid=operator.uid)
            limited = attrs.evolve(handle, limits=limits)
            for states in read_operator_states(limited, operator):
                written = write_operator_state(saved, handle.checkpoint_id, storage, states)
                found: Any = written.result().handle
                old.append([] if found is None else [found])
    return redistributed(old, parallelism)[subtask] if any(old) else []
