"""The change of one key of one state by the command line. It writes a new savepoint."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, NoReturn, TypeVar

import attrs
import pyarrow as pa
from millpond.errors import MillpondError, StateTypeError, brief
from millpond.savepoints.collect import RowsInMemory
from millpond.savepoints.operator_tables import save_operator_states
from millpond.savepoints.savepoint_file import Savepoint, reserved
from millpond.savepoints.state_tables import TableCodec
from millpond.savepoints.table_files import save_operator
from millpond.snapshots.handles import SavepointHandle
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.portable_rows import Change
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta

from millpond_cli.inspection.stored_operator import StoredOperator, state_schema


@attrs.frozen
class Edit:
    """A change of the state of one key, or of one entry in the map of this key.

    Attributes:
        state: the name of the state.
        key: the key as text. It is the key itself if keys are strings, else JSON.
        value: the new value, of plain JSON types; ignored if ``remove`` is set.
        map_key: the key of the entry in a map state, as text like ``key``.
        remove: whether to remove the key's state, or the entry, in all namespaces.
        now_ms: the time of the edit, at which the time to live of a new value begins.
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
    """Write a savepoint of some operators, with a change of one state of one operator.

    Args:
        operators: all operators of the new savepoint.
        operator: the operator to change, one of `operators`.
        edit: the change.
        target: the new savepoint. If the edit is refused, nothing is written.

    Raises:
        DirectoryNotEmptyError: the target holds files.
        StateTypeError: the key or the value does not fit the state, or there is nothing to remove.
        RestoreError: the operator has no state of this name, or the elements of an operator state
            are unknown because of a rescale; see ``undivided_states``.
    """
    for each in operators:
        each.require_divided()
    meta = operator.state(edit.state)
    contents = operator.contents()
    codec = operator.codec(meta.name, exact=True)
    changes, edited = _Editor(operator, meta, codec, edit).changes(contents)
    contents.load_rows(meta.name, changes)
    with reserved(target, [each.uid for each in operators]) as reservation:
        saved = []
        for each in operators:
            view = (contents if each is operator else each.contents()).freeze()
            keyed = save_operator(view, target, each.uid, SnapshotTask())
            states = save_operator_states(target, each.uid, each.operator_states())
            saved.append(attrs.evolve(keyed, operator_states=states))
        reservation.complete(Savepoint(operator.checkpoint_id, tuple(saved)))
    return edited


class _Editor:
    """The conversion of an `Edit` to the changed rows of a state."""

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
        """Return the changed rows, and how many are added, changed and removed.

        A removed row has the value None.

        Args:
            contents: the present rows of the operator.
        """
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
        """Return the stored keys of the rows to change, each with the row's TTL timestamp."""
        group = self._stored(lambda: self._codec.group_of(self._key))
        found = []
        for row in contents.rows(self._meta.name, group):
            (typed,) = self._codec.to_batch([row]).to_pylist()
            is_entry = self._edit.map_key is None or typed["map_key"] == self._map_key
            if typed["key"] == self._key and is_entry:
                found.append((row[0], typed.get("ttl_timestamp")))
        return found

    def _bytes(self, value: Any, stamp: Any) -> bytes:
        """Return the stored bytes of a value.

        Args:
            value: the value, of the column's type.
            stamp: the TTL timestamp of the old row, which the new row keeps. If it is None, the new
                row gets the time of the edit. For a list state it is a list of timestamps, and the
                new row keeps the newest timestamp.
        """
        if self._meta.kind is StateKind.LIST:
            if value == []:
                self._raise_refusal("a list of one element or more", "to empty it, remove it")
            stamp = [max(stamp or (), default=self._edit.now_ms)] * len(value or ())
        elif stamp is None:
            stamp = self._edit.now_ms
        data: bytes = self._stored(lambda: self._codec.value_bytes(value, stamp))
        return data

    def _stored(self, make: Callable[[], Any]) -> Any:
        """Return the result of `make`; raise StateTypeError if it refuses the key or value."""
        return stored_as(self._place, str(self._meta.value), self._given(), make)

    def _given(self) -> str:
        """Return the key and the value of the edit as text for an error message."""
        value = "" if self._edit.remove else f" and value {brief(self._edit.value)}"
        return f"key {self._edit.key!r}{value}"

    def _raise_refusal(self, expected: str, reason: str) -> NoReturn:
        """Raise StateTypeError for this edit, with the reason why it is refused."""
        raise StateTypeError(expected, self._given(), self._place, reason)


T = TypeVar("T")

_UNFIT = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    struct.error,
    MillpondError,
)
"""The errors that types and codecs raise for a value that they cannot store."""


def key_value(text: str, kind: pa.DataType, place: str) -> Any:
    """Return the key that the user has written as `text`.

    Args:
        text: the text. For string keys it is the key itself, for other keys it is JSON.
        kind: the type of the key column.
        place: the state and the part of its key, for errors.

    Raises:
        StateTypeError: the text is not a key of this type.
    """
    if pa.types.is_string(kind):
        return text
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        plain = text
    return column_value(plain, kind, place)


def stored_as(place: str, expected: str, given: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, which encodes a value from the command line.

    Args:
        place: the state and the column, for errors.
        expected: the type of the value, for errors.
        given: the value as the user has written it, for errors.
        make: a function that calls a codec with the value.

    Raises:
        StateTypeError: the codec refuses the value.
    """
    try:
        return make()
    except _UNFIT as error:
        reason = getattr(error, "reason", "") or str(error) or type(error).__name__
        raise StateTypeError(expected, given, place, reason) from error


def column_value(
    value: Any, kind: pa.DataType, place: str, exact: pa.DataType | None = None
) -> Any:
    """Convert a plain JSON value to a column's type.

    In JSON, numbers are numbers, bytes are base64 strings, and timestamps are ISO strings.
    Structures are objects, or lists of all their fields. Maps are objects or lists of pairs. The
    caller must check for nulls.

    Args:
        value: the JSON value.
        kind: the column's usual type.
        place: the state and the column, for errors.
        exact: the column's type in the exact form, if the result must have this form; see
            ``SavedState``.

    Raises:
        StateTypeError: the value is not of this type.
    """
    try:
        return _converted(value, kind, kind if exact is None else exact)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise StateTypeError(str(kind), brief(value), place, str(error)) from error


def _converted(value: Any, kind: pa.DataType, exact: pa.DataType) -> Any:
    """Convert a value to the type `kind`, in the form that `exact` describes.

    The two types are equal unless the result must have the exact form.

    Raises:
        ValueError, TypeError: the value is not of this type.
    """
    if value is None:
        return None
    if pa.types.is_list(kind):
        items = _typed(value, list, "a JSON array")
        return [_converted(item, kind.value_type, exact.value_type) for item in items]
    if pa.types.is_struct(kind):
        return _struct(value, kind, exact)
    if pa.types.is_map(kind):
        return _map(value, kind, exact)
    made = _SCALARS[str(kind)](value)
    if exact == kind:
        if pa.types.is_int64(kind) and not -(1 << 63) <= made < 1 << 63:
            raise ValueError("it does not fit 64 bits")
        return made
    return made.isoformat() if isinstance(made, datetime) else str(made)


def _struct(value: Any, kind: pa.DataType, exact: pa.DataType) -> dict[str, Any]:
    """Convert a JSON object, or a list of all fields, to the fields of a struct."""
    names = [field.name for field in kind]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != len(names):
            raise ValueError(f"it has {len(value)} fields, expected {len(names)}")
        value = dict(zip(names, value, strict=True))
    given = _typed(value, Mapping, "a JSON object")
    if set(given) != set(names):
        raise ValueError(f"its fields are {_listed(given)}, expected {_listed(names)}")
    pairs = zip(kind, exact, strict=True)
    return {own.name: _converted(given[own.name], own.type, other.type) for own, other in pairs}


def _map(value: Any, kind: pa.DataType, exact: pa.DataType) -> list[tuple[Any, Any]]:
    """Convert a JSON object, or a list of pairs, to the pairs of a map."""
    pairs = list(value.items()) if isinstance(value, Mapping) else _typed(value, list, "an object")
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):  # noqa: PLR2004
        raise ValueError("expected an object, or an array of [key, value] pairs")
    made = [
        (
            _converted(key, kind.key_type, exact.key_type),
            _converted(item, kind.item_type, exact.item_type),
        )
        for key, item in pairs
    ]
    if any(key is None for key, _ in made):
        raise ValueError("a key is null")
    if len({repr(key) for key, _ in made}) != len(made):
        raise ValueError("a key appears twice")
    return made


def _listed(names: Any) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"


def _typed(value: Any, kind: type, words: str) -> Any:
    """Return `value`; raise TypeError if it is not an instance of `kind`.

    A bool does not count as an int. `words` is the name of the type in the error.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {words}")
    return value


def _float(value: Any) -> float:
    """Return `value`, a number or one of the strings "nan", "inf" and "-inf", as a float."""
    if value in ("nan", "inf", "-inf"):
        return float(value)
    return float(_typed(value, (int, float), "a number"))  # type: ignore[arg-type]


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int32": lambda value: _typed(value, int, "a whole number"),
    "int64": lambda value: _typed(value, int, "a whole number"),
    "double": _float,
    "bool": lambda value: _typed(value, bool, "true or false"),
    "string": lambda value: _typed(value, str, "a JSON text"),
    "binary": lambda value: base64.b64decode(_typed(value, str, "base64"), validate=True),
    "timestamp[us, tz=UTC]": lambda value: datetime.fromisoformat(
        _typed(value, str, "an ISO date and time")
    ),
    "date32[day]": lambda value: date.fromisoformat(_typed(value, str, "an ISO date")),
}
