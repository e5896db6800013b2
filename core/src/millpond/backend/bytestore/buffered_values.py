"""The state of single values over a byte store, where it has no namespaces."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond.backend.bytestore.buffered_tables import UNREAD
from millpond.backend.bytestore.encoded_key import EncodedKey
from millpond.backend.states.value_state import RawValueState
from millpond.spi.tables import CellTable
from millpond.state.descriptors import ValueStateDescriptor
from millpond.types import KeyCodec


class BufferedValueState(RawValueState):
    """One value, in what its table has read and written since the flush.

    Where the key's entry is there already, no method of the table is called.

    Args:
        values: the values by address, as the table has them.
        changed: the addresses that the bundle has changed.
    """

    def __init__(
        self,
        descriptor: ValueStateDescriptor,
        namespace_codec: KeyCodec,
        table: CellTable,
        current: EncodedKey,
        values: dict[bytes, Any],
        changed: dict[bytes, None],
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        self._current = current
        self._values = values
        self._changed = changed
        # Values that may be large are weighed, which is the table's task.
        self._plain = None if self._serializer.sized else self._trusted

    @override
    def value(self) -> Any:
        value = self._values.get(self._current.address, UNREAD)
        if value is UNREAD:
            return super().value()
        if value is None:
            value = self._default
        return value if self._immutable or value is None else self._copy(value)

    @override
    def update(self, value: Any) -> None:
        address = self._current.address
        if type(value) is not self._plain or address not in self._values:
            super().update(value)
            return
        self._values[address] = value
        self._changed[address] = None
