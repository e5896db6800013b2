"""What a table stores for each kind of state: the serializer of a cell.

The bytes of a list are those of its elements one after the other, so lists are joined by joining
their bytes. A portable row of a list state holds either a whole list, or (``APPENDED`` and then
cells) what is appended to the list that stands: no element is as long as that beginning says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import override

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import TypeSerializer

APPENDED = b"\xff\xff\xff\xff"
"""How a row begins that appends to a list."""


def join_cells(elements: Iterable[bytes]) -> bytes:
    """The cell of a list: each element's length (4 bytes, big-endian) and bytes."""
    parts: list[bytes] = []
    for data in elements:
        parts += (len(data).to_bytes(4, "big"), data)
    return b"".join(parts)


def split_cells(data: bytes) -> Iterator[bytes]:
    """The elements of a list's cell."""
    start = 0
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        yield data[start + 4 : end]
        start = end


def apply_to_lists(lists: dict[bytes, bytes], key: bytes, value: bytes) -> None:
    """Put a portable row of a list state: it replaces the list, or appends to it."""
    start = len(APPENDED)
    lists[key] = lists.get(key, b"") + value[start:] if value[:start] == APPENDED else value


class ListSerializer(TypeSerializer[list[Any]]):
    """The cell of a list state."""

    type_name = "list"

    def __init__(self, element: TypeSerializer[Any]) -> None:
        self.element = element

    @override
    def check(self, value: Any) -> list[Any]:
        return [self.element.check(item) for item in value]

    @override
    def serialize(self, value: list[Any]) -> bytes:
        return join_cells(map(self.element.serialize, value))

    @override
    def deserialize(self, data: bytes) -> list[Any]:
        return list(map(self.element.deserialize, split_cells(data)))

    @override
    def snapshot(self) -> Any:
        """That of the elements: the state's metadata says that it is a list."""
        return self.element.snapshot()

    @override
    def weight(self, value: list[Any]) -> int:
        return 64 + self.elements_weight(value)

    def elements_weight(self, elements: list[Any]) -> int:
        """The weights of elements together; where sizes do not vary, one is like another."""
        if not self.element.sized:
            return len(elements) * self.element.weight(elements[-1])
        return sum(map(self.element.weight, elements))


def cell_serializer(descriptor: StateDescriptor) -> TypeSerializer[Any]:
    """The serializer of what a table stores for a descriptor."""
    serializer = descriptor.value_serializer()
    return ListSerializer(serializer) if descriptor.kind is StateKind.LIST else serializer
