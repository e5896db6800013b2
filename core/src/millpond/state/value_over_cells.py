"""What lets a wrapper of a value state do its work itself, on the state's own cells."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

from millpond.state.interfaces import ValueState
from millpond.types import TypeSerializer


class Cells(Protocol):
    """Where the values are; works on the current key."""

    def get(self, namespace: Any, /) -> Any:
        """The stored object itself, or None."""

    def put(self, namespace: Any, value: Any, /) -> None:
        """Store a checked object."""


class ValueOverCells(ValueState[Any]):
    """A value state whose cells may be read and written past it: the fast path of wrappers.

    Only immutable values may be read so, since nothing copies them, and only those of the
    serializer's trusted type written, since nothing checks them. For all others, and where there
    is no value, ask the state. The core's value state is one; a plugin's need not be.
    """

    @property
    @abstractmethod
    def cells(self) -> Cells:
        """The cells, the same for as long as the state lives."""

    @property
    @abstractmethod
    def namespace(self) -> Any:
        """The current namespace, as the cells take it."""

    @property
    @abstractmethod
    def value_serializer(self) -> TypeSerializer[Any]:
        """The serializer of the value itself, without a timestamp beside it."""
