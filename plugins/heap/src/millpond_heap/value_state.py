"""The heap's own state of single values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from millpond.backend import RawValueState
from millpond.spi import CellTable
from millpond.state.descriptors import ValueStateDescriptor
from millpond.types import KeyCodec
from typing_extensions import override

from millpond_heap.heap_key import HeapKey

Noted: TypeAlias = dict[Any, int | None] | None
Held: TypeAlias = dict[int | None, tuple[dict[Any, Any], Noted]]
"""By key group, the dictionary that is written to, and where to note the change, if anywhere."""

_NOTHING: Held = {}


class HeapValueState(RawValueState):
    """One value, in the dictionaries that its table holds.

    Where the key's dictionary is held, no method of the table is called: of a read-modify-write by
    hand, with the choice of its key, that saves a fifth (0.57 to 0.45 µs).

    Args:
        hold: has the table hold the current key's dictionary in a namespace, and gives what it
            holds of that namespace.
    """

    def __init__(
        self,
        descriptor: ValueStateDescriptor,
        namespace_codec: KeyCodec,
        table: CellTable,
        current: HeapKey,
        hold: Callable[[Any], Held],
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        self._current = current
        self._hold = hold
        self._held = _NOTHING

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
        if held is None:
            return super().value()
        value = held[0].get(current.address)
        if value is None:
            value = self._default
        return value if self._immutable or value is None else self._copy(value)

    @override
    def update(self, value: Any) -> None:
        if type(value) is not self._trusted:
            super().update(value)
            return
        current = self._current
        held = self._held.get(current.key_group)
        if held is None:
            self._held = self._hold(self._namespace)
            held = self._held[current.key_group]
        own, noted = held
        address = current.address
        own[address] = value
        if noted is not None:
            noted[address] = None
