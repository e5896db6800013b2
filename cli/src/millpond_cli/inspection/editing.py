"""A change of one key of one state, written as a new savepoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs
from millpond.errors import StateTypeError, brief
from millpond.savepoints.collect import RowsInMemory
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.savepoint_file import Savepoint, reserved, write_savepoint
from millpond.savepoints.table_rows import TableCodec
from millpond.savepoints.tables import save_operator
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.rows import Change
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta

from millpond_cli.inspection.plain_values import column_value, key_value, stored_as
from millpond_cli.inspection.stored_operator import StoredOperator, state_schema


@attrs.frozen
class Edit:
    """A change of one key.

    Attributes:
        state: its name, or query name.
        key: a string, or JSON for keys of another type.
        value: the new value, of plain JSON types; ignored if ``remove`` is set.
        map_key: the key of an entry in a map state, in the form of ``key``.
        remove: whether to remove the key's state (or the entry), in all namespaces.
        now_ms: the time of the edit, when a new value's time to live begins.
    """

    state: str
    key: str
    value: Any = None
    map_key: str | None = None
    remove: bool = False
    now_ms: int = 0


@attrs.frozen
class Edited:
    """The number of rows that an edit has added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def edit_value(
    operators: Sequence[StoredOperator],
    operator: StoredOperator,
    edit: Edit,
    target: SavepointHandle,
) -> Edited:
    """Write all operators to a savepoint, one of them changed.

    Args:
        operators: all operators of the new savepoint.
        operator: the one to change.
        edit: the change.
        target: the savepoint's directory; nothing is written if the edit is refused.

    Raises:
        DirectoryNotEmptyError: the target holds files.
        StateTypeError: the key or the value does not fit the state, or there is nothing to remove.
        RestoreError: the checkpoint has no state of that name, or does not record which elements
            of a list are valid.
    """
    for each in operators:
        each.require_divided()
    meta = operator.state(edit.state)
    contents = operator.contents()
    codec = operator.codec(meta.name, exact=True)
    changes, edited = _Editor(operator, meta, codec, edit).changes(contents)
    contents.load_rows(meta.name, changes)
    with reserved(target, [each.uid for each in operators]):
        saved = []
        for each in operators:
            view = (contents if each is operator else each.contents()).freeze()
            keyed = save_operator(view, target, each.uid, SnapshotTask())
            states = save_operator_states(target, each.uid, each.operator_states())
            saved.append(attrs.evolve(keyed, operator_states=states))
        write_savepoint(target, Savepoint(operator.checkpoint_id, tuple(saved)))
    return edited


class _Editor:
    """A finder of the rows of a key, and maker of new ones."""

    def __init__(
        self, operator: StoredOperator, meta: StateMeta, codec: TableCodec, edit: Edit
    ) -> None:
        self._meta, self._codec, self._edit = meta, codec, edit
        self._natural = state_schema(operator, meta.name, "keyed")
        self._place = f"state {meta.name!r}"
        is_map = meta.map_key is not None
        if edit.map_key is not None and not is_map:
            self._raise_refusal("no map key", "it is not a map state; leave --map-key out")
        if not edit.remove and meta.kind is StateKind.TIMER:
            self._raise_refusal("a timer to remove", "a timer has no value to set")
        if not edit.remove and is_map and edit.map_key is None:
            self._raise_refusal("a map key", "say with --map-key which entry of the map to set")
        self._key = key_value(edit.key, codec.schema.field("key").type, f"{self._place}: key")
        self._map_key = None
        if edit.map_key is not None:
            kind = codec.schema.field("map_key").type
            self._map_key = key_value(edit.map_key, kind, f"{self._place}: map key")

    def changes(self, contents: RowsInMemory) -> tuple[list[Change], Edited]:
        """Return the rows to write, with None for a removed row."""
        found = self._found(contents)
        if self._edit.remove:
            if not found:
                self._raise_refusal("a key that holds something", "there is nothing to remove")
            return [(row, None) for row, _ in found], Edited(removed=len(found))
        value = column_value(
            self._edit.value,
            self._natural.field("value").type,
            self._place,
            self._codec.schema.field("value").type,
        )
        done = Edited(changed=len(found))
        if not found:
            done, required = Edited(added=1), "a key that holds something"
            if self._meta.namespace.id != "void":
                self._raise_refusal(required, "a new entry would need a namespace")
            make = partial(self._codec.physical, self._key, map_key=self._map_key)
            found = [(self._stored(make), None)]
        return [(row, self._bytes(value, stamp)) for row, stamp in found], done

    def _found(self, contents: RowsInMemory) -> list[tuple[bytes, Any]]:
        """Return the key's rows, with the times when their time to live began."""
        group = self._stored(lambda: self._codec.group_of(self._key))
        found = []
        for row in contents.rows(self._meta.name, group):
            (typed,) = self._codec.to_batch([row]).to_pylist()
            is_entry = self._edit.map_key is None or typed["map_key"] == self._map_key
            if typed["key"] == self._key and is_entry:
                found.append((row[0], typed.get("ttl_timestamp")))
        return found

    def _bytes(self, value: Any, stamp: Any) -> bytes:
        """Return the stored form of a value; it keeps the row's time to live, or starts one now."""
        if self._meta.kind is StateKind.LIST:
            if value == []:
                self._raise_refusal("a list of one element or more", "to empty it, remove it")
            stamp = [max(stamp or (), default=self._edit.now_ms)] * len(value or ())
        elif stamp is None:
            stamp = self._edit.now_ms
        data: bytes = self._stored(lambda: self._codec.value_bytes(value, stamp))
        return data

    def _stored(self, make: Callable[[], Any]) -> Any:
        return stored_as(self._place, str(self._meta.value), self._given(), make)

    def _given(self) -> str:
        value = "" if self._edit.remove else f" and value {brief(self._edit.value)}"
        return f"key {self._edit.key!r}{value}"

    def _raise_refusal(self, expected: str, reason: str) -> NoReturn:
        raise StateTypeError(expected, self._given(), self._place, reason)
