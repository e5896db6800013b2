"""The raw state of single values."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond.backend.states.raw_state import RawState
from millpond.errors import StateTypeError
from millpond.spi.tables import CellTable, Held
from millpond.state.descriptors import ValueStateDescriptor
from millpond.state.interfaces import ValueState
from millpond.types import KeyCodec

_NOTHING: Held = {}


class RawValueState(RawState, ValueState[Any]):
    """One value.

    If the table shares its dictionaries (``CellTable.hold``), the state reads and overwrites the
    values in them, without a call: a read-modify-write with the choice of its key takes 0.45 µs
    instead of 0.57 on heap (benchmarks/by_hand.py).
    """

    _table: CellTable

    def __init__(
        self, descriptor: ValueStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        default = descriptor.default
        self._default = None if default is None else self._check(default)
        self._current = table.current
        self._held = _NOTHING
        # The table has to account for the size of a value that may be large.
        self._plain = None if self._serializer.sized else self._trusted

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        before = self._namespace
        super().set_current_namespace(namespace)
        if self._namespace is not before:
            self._held = _NOTHING

    @override
    def value(self) -> Any:
        current = self._current
        held = self._held.get(current.key_group)
        value = None if held is None else held[0].get(current.address)
        if value is None:
            value = self._table.get(self._namespace)
            if value is None:
                value = self._default
                if value is None:
                    return None
        return value if self._immutable else self._copy(value)

    @override
    def update(self, value: Any) -> None:
        current = self._current
        held = self._held.get(current.key_group)
        if held is None:
            self._held = self._table.hold(self._namespace)
        elif type(value) is self._plain:
            values, changed = held
            address = current.address
            if address in values:
                values[address] = value
                if changed is not None:
                    changed[address] = None
                return
        if type(value) is self._trusted:
            self._table.put(self._namespace, value)
            return
        self._store(value)

    def _store(self, value: Any) -> None:
        if value is None:
            self._table.remove(self._namespace)
            return
        try:
            checked = self._serializer.check(value)
        except StateTypeError as error:
            error.place = self._place
            raise
        if self._is_null(checked):  # it was pandas' NaT or NA
            self._table.remove(self._namespace)
            return
        self._table.put(self._namespace, checked)

    @override
    def read_many(self, keys: Any) -> list[Any]:
        stored = self._table.get_many(self._namespace, keys)
        default, copy = self._default, self._copy
        if default is not None:
            stored = [default if value is None else value for value in stored]
        return stored if self._immutable else [None if v is None else copy(v) for v in stored]

    @override
    def write_many(self, keys: Any, values: list[Any]) -> None:
        self._table.put_many(self._namespace, keys, values)
