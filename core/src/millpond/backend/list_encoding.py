"""What a table stores for each kind of state: the serializer of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import override

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import TypeSerializer

__all__ = ["ListSerializer", "cell_serializer", "join_cells", "split_cells"]


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


class ListSerializer(TypeSerializer[list[Any]]):
    """The cell of a list state."""

    type_name = "list"

    def __init__(self, element: TypeSerializer[Any]) -> None:
        self._element = element

    @override
    def check(self, value: Any) -> list[Any]:
        return [self._element.check(item) for item in value]

    @override
    def serialize(self, value: list[Any]) -> bytes:
        return join_cells(map(self._element.serialize, value))

    @override
    def deserialize(self, data: bytes) -> list[Any]:
        return list(map(self._element.deserialize, split_cells(data)))

    @override
    def snapshot(self) -> Any:
        """That of the elements: the state's metadata says that it is a list."""
        return self._element.snapshot()

    @override
    def weight(self, value: list[Any]) -> int:
        return 64 + len(value) * self._element.weight(value[-1])


def cell_serializer(descriptor: StateDescriptor) -> TypeSerializer[Any]:
    """The serializer of what a table stores for a descriptor."""
    serializer = descriptor.value_serializer()
    return ListSerializer(serializer) if descriptor.kind is StateKind.LIST else serializer
