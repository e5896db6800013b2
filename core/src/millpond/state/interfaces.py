"""The state interfaces; names and meaning are PyFlink's (``pyflink.datastream.state``).

All of them work on the current key of their backend and on the namespace that was set last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, overload

from typing_extensions import TypeVar, override

__all__ = [
    "AggregatingState",
    "AppendingState",
    "FoldingState",
    "ListState",
    "MapState",
    "MergingState",
    "ReducingState",
    "State",
    "ValueState",
]

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
D = TypeVar("D")
_MISSING: Any = object()


class State(ABC):
    """Any keyed state."""

    @abstractmethod
    def set_current_namespace(self, namespace: Any) -> None:
        """Choose the namespace that the following calls work on.

        Raises:
            NullValueError: the namespace is None.
            StateTypeError: it is not of the state's namespace type.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove what is stored for the current key and namespace."""


class ValueState(State, Generic[V]):
    """One value."""

    @abstractmethod
    def value(self) -> V | None:
        """The value; where there is none, a copy of the descriptor's default, or None."""

    @abstractmethod
    def update(self, value: V | None) -> None:
        """Store a value; None clears. Raises StateTypeError for a value of another type."""


class AppendingState(State, Generic[IN, OUT]):
    """State that grows by adding."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of all added elements; None where nothing was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element. Raises NullValueError for None, before anything changes."""


class MergingState(AppendingState[IN, OUT]):
    """State whose namespaces can be merged."""

    @abstractmethod
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Move what the source namespaces hold into the target, for the current key.

        Sources that hold nothing are skipped and no sources at all change nothing. The target
        comes first, then the sources in the given order. The current namespace stays.

        Raises:
            NullValueError: target, sources or one of them is None.
        """


class ListState(MergingState[V, "list[V]"]):
    """A list of elements in the order they were added."""

    @abstractmethod
    @override
    def get(self) -> list[V]:
        """The elements, ``[]`` where there are none; a list of the caller's own."""

    @abstractmethod
    def add_all(self, values: Iterable[V]) -> None:
        """Add several elements; all of them or, if one is refused, none."""

    @abstractmethod
    def update(self, values: Iterable[V]) -> None:
        """Replace all elements; an empty iterable clears."""

    def __iter__(self) -> Iterator[V]:
        return iter(self.get())


class ReducingState(MergingState[V, V]):
    """The reduction of all added elements by the descriptor's function."""


class AggregatingState(MergingState[IN, OUT]):
    """The result of the descriptor's AggregateFunction over all added elements."""


class FoldingState(AppendingState[IN, OUT]):
    """The fold of all added elements into the descriptor's initial value."""


class MapState(State, Generic[K, V]):
    """A map whose entries are stored one by one, in no promised order.

    During an iteration, entries may be removed and overwritten.
    """

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    @abstractmethod
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The value of a key, or the default where there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key; None only where the value type admits it."""

    @abstractmethod
    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set several entries; all of them or, if one is refused, none."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry; no error where there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is an entry, even one whose value is None."""

    @abstractmethod
    def items(self) -> Iterator[tuple[K, V]]:
        """The entries."""

    def keys(self) -> Iterator[K]:
        """The keys of the entries."""
        return (key for key, _ in self.items())

    def values(self) -> Iterator[V]:
        """The values of the entries."""
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return next(iter(self.items()), None) is None

    def __getitem__(self, key: K) -> V:
        value = self.get(key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if not self.contains(key):
            raise KeyError(key)
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return self.keys()

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def __bool__(self) -> bool:
        return not self.is_empty()
