"""Writing a savepoint in which one key of one state holds something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from millpond.backend.changes import Change
from millpond.checkpoint.contents import Contents
from millpond.checkpoint.inspect import StoredOperator
from millpond.checkpoint.savepoint.metadata import Savepoint, SavepointHandle, write_savepoint
from millpond.checkpoint.savepoint.operator_tables import save_operator_states
from millpond.checkpoint.savepoint.rows import TableCodec
from millpond.checkpoint.savepoint.write import save_operator
from millpond.checkpoint.tasks import SnapshotTask
from millpond.errors import StateTypeError, brief

__all__ = ["edit_value"]


def edit_value(
    operators: Sequence[StoredOperator],
    operator: StoredOperator,
    state: str,
    key: Any,
    target: SavepointHandle,
    *,
    value: Any = None,
    map_key: str | None = None,
    remove: bool = False,
) -> int:
    """Write all operators to a savepoint, one of them changed.

    Args:
        operators: everything that the savepoint is to hold.
        operator: the one to change.
        state: its state.
        key: as the state's table holds it.
        target: where the savepoint goes.
        value: the new value, of plain JSON types.
        map_key: of a map state, which entry.
        remove: remove what the key (or the entry) holds, in all namespaces.

    Returns:
        How many rows were changed, added or removed.

    Raises:
        StateTypeError: the value does not fit the state.
    """
    saved = []
    changed = 0
    for each in operators:
        with each.contents() as contents:
            if each is operator:
                changes = _changes(contents, each.codec(state), key, value, map_key, remove=remove)
                contents.load_rows(state, changes)
                changed = len(changes)
            keyed = save_operator(contents.freeze(), target, each.uid, SnapshotTask())
        own = save_operator_states(target, each.uid, each.operator_states())
        saved.append(attrs.evolve(keyed, operator_states=own))
    write_savepoint(target, Savepoint(operator.checkpoint_id, tuple(saved)))
    return changed


def _changes(
    contents: Contents,
    codec: TableCodec,
    key: Any,
    value: Any,
    map_key: str | None,
    *,
    remove: bool,
) -> list[Change]:
    wanted = _cast([key], codec.schema.field("key").type)[0]
    rows = contents.rows(codec.meta.name, codec.group_of(wanted))
    found: list[tuple[bytes, dict[str, Any]]] = []
    for row in rows:
        (typed,) = codec.to_batch([row]).to_pylist()
        if typed["key"] == wanted and (map_key is None or str(typed["map_key"]) == map_key):
            found.append((row[0], typed))
    if remove:
        return [(physical, None) for physical, _ in found]
    made = _cast([value], codec.schema.field("value").type)[0]
    if not found:
        entry = None if map_key is None else _cast([map_key], codec.schema.field("map_key").type)[0]
        found = [(codec.physical(wanted, map_key=entry), {"ttl_timestamp": None})]
    return [
        (physical, codec.value_bytes(made, typed.get("ttl_timestamp"))) for physical, typed in found
    ]


def _cast(values: list[Any], kind: pa.DataType) -> list[Any]:
    """Plain JSON values in a column's type; numbers and ISO texts are converted."""
    try:
        try:
            return list(pa.array(values, kind).to_pylist())
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return list(pa.array(values).cast(kind).to_pylist())
    except pa.ArrowException as error:
        raise StateTypeError(str(kind), brief(values[0]), reason=str(error)) from error
