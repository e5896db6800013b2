"""The raw state of single values."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond.backend.states.raw_state import RawState
from millpond.errors import StateTypeError
from millpond.spi.tables import CellTable
from millpond.state.descriptors import ValueStateDescriptor
from millpond.state.ttl.envelope import TtlSerializer
from millpond.state.value_over_cells import ValueOverCells
from millpond.types import KeyCodec, TypeSerializer


class RawValueState(RawState, ValueOverCells):
    """One value."""

    _table: CellTable

    @property
    @override
    def cells(self) -> CellTable:
        """The table."""
        return self._table

    @property
    @override
    def namespace(self) -> Any:
        """The current namespace, prepared by the table."""
        return self._namespace

    @property
    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        """The serializer of the value itself, without a timestamp beside it."""
        serializer = self._serializer
        return serializer.inner if isinstance(serializer, TtlSerializer) else serializer

    def __init__(
        self, descriptor: ValueStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        default = descriptor.default
        self._default = None if default is None else self._check(default)

    @override
    def value(self) -> Any:
        value = self._table.get(self._namespace)
        if value is None:
            value = self._default
            if value is None:
                return None
        return value if self._immutable else self._copy(value)

    @override
    def update(self, value: Any) -> None:
        if type(value) is self._trusted:
            # No check: a call less, 0.06 µs of an update's 0.3.
            self._table.put(self._namespace, value)
            return
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
