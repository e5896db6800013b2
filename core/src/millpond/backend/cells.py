"""What a table stores for each kind of state: the serializer of a cell."""

from __future__ import annotations

from typing import Any

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import TypeSerializer

__all__ = ["ListSerializer", "cell_serializer"]


class ListSerializer(TypeSerializer[list[Any]]):
    """The cell of a list state: each element's length (4 bytes, big-endian) and bytes."""

    type_name = "list"

    def __init__(self, element: TypeSerializer[Any]) -> None:
        self._element = element

    def check(self, value: Any) -> list[Any]:
        """See the base class."""
        return [self._element.check(item) for item in value]

    def serialize(self, value: list[Any]) -> bytes:
        """See the base class."""
        serialize = self._element.serialize
        parts: list[bytes] = []
        for item in value:
            data = serialize(item)
            parts += (len(data).to_bytes(4, "big"), data)
        return b"".join(parts)

    def deserialize(self, data: bytes) -> list[Any]:
        """See the base class."""
        values, start = [], 0
        deserialize = self._element.deserialize
        while start < len(data):
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            values.append(deserialize(data[start + 4 : end]))
            start = end
        return values

    def snapshot(self) -> Any:
        """The element's: that the state is a list is written beside it."""
        return self._element.snapshot()

    def weight(self, value: list[Any]) -> int:
        """See the base class."""
        return 64 + len(value) * self._element.weight(value[-1])


def cell_serializer(descriptor: StateDescriptor) -> TypeSerializer[Any]:
    """The serializer of what a table stores for a descriptor."""
    serializer = descriptor.value_serializer()
    return ListSerializer(serializer) if descriptor.kind is StateKind.LIST else serializer
