"""The interfaces of keyed and operator states."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeAlias, overload

from typing_extensions import TypeVar, override

from millpond.arguments import check_within
from millpond.errors import BulkCallError

Column: TypeAlias = Any
"""An argument column: an Arrow or NumPy array, a pandas Series, a list or another iterable."""

Columns: TypeAlias = Any
"""A returned column: an Arrow array or a list."""


class ChosenKeys(Protocol):
    """The checked keys of a bulk call such as ``get_many``, in the caller's order."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys; each one is the backend's current key during its step."""

    def only(self, indices: Sequence[int]) -> ChosenKeys:
        """Return the keys at these indices, which may repeat."""


class ManyKeys(Protocol):
    """A backend's part in bulk calls: it checks keys, and converts values from and to columns."""

    def chosen(self, keys: Column) -> AbstractContextManager[ChosenKeys]:
        """Check the keys of a bulk call; the end of the ``with`` block restores the current key.

        While the operator processes a frame of rows, all keys must occur in that frame.
        """

    def select(self, key: Any) -> None:
        """Check one key like ``chosen``, and make it the current key."""

    def column(self, values: list[Any]) -> Columns:
        """Return values as an Arrow array, or as a list if the state's type has no Arrow type."""

    def checked(self, values: Column, keys: ChosenKeys) -> list[Any]:
        """Return a checked value for each key, which shares nothing mutable with the column.

        Null is None.
        """

    def contributions(
        self, keys: ChosenKeys, values: Column | None, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Return the keys and elements for ``append_many``: reduced to one per key if possible.

        See ``AppendingState.add_many`` for the arguments.
        """


BETWEEN_LAYERS = frozenset({"at", "read_many", "write_many", "append_many"})
"""Methods that the metrics wrapper does not count: ``at`` returns the wrapper, and the others do
the work of bulk calls such as ``get_many``, which it counts."""

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
D = TypeVar("D")
T = TypeVar("T")
_MISSING: Any = object()


class State(ABC):
    """The base of all keyed states."""

    _many_keys: ManyKeys | None = None

    @abstractmethod
    def set_current_namespace(self, namespace: Any) -> None:
        """Choose the namespace of the following calls.

        Raises:
            NullValueError: the namespace is None.
            StateTypeError: the namespace is not of the state's namespace type.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove the stored entry of the current key and namespace."""

    def at(self, key: Any) -> Self:
        """Choose the current key of all states, and return this state.

        The key remains current until another key is chosen. In a function's method for rows or
        timers, the next row or timer sets its own key. In a window's function, trigger or evictor,
        the key remains until that call ends; a trigger's context always uses the key of its row or
        timer.

        A function that a state or a window assigner calls, such as a reduce function, must not
        choose a key, because its result would be stored under that key.

        Raises:
            BulkCallError: a frame of rows is being processed, and the key is not one of its keys;
                or in batch execution, the key differs from the key of the rows.
        """
        self._many.select(key)
        return self

    def clear_many(self, keys: Column) -> None:
        """Remove the stored entry of each key."""
        with self._many.chosen(keys) as chosen:
            for _ in chosen:
                self.clear()

    @property
    def _many(self) -> ManyKeys:
        """The backend's part in bulk calls; raises BulkCallError for operator state."""
        if self._many_keys is None:
            raise BulkCallError("", "operator state has no keys")
        return self._many_keys


class ValueState(State, Generic[V]):
    """State of one value."""

    @abstractmethod
    def value(self) -> V | None:
        """Return the value; if there is none, a copy of the descriptor's default, or None."""

    @abstractmethod
    def update(self, value: V | None) -> None:
        """Store a value; None clears the state.

        Raises:
            StateTypeError: the value is not of the declared type.
        """

    def get_many(self, keys: Column) -> Columns:
        """Return the values of the keys as a column, with null for missing values.

        The column is an Arrow array for int, float, bool, str, bytes, date and datetime, and a list
        for other types.

        Raises:
            BulkCallError: a key is not one of the frame's keys, or a value does not fit the column.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def update_many(self, keys: Column, values: Column) -> None:
        """Store a value for each key; null clears the state. If a value is refused, none is stored.

        Raises:
            BulkCallError: the numbers of keys and values differ, or a key is not one of the frame's
                keys.
            StateTypeError: a value is of another type.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            self.write_many(chosen, many.checked(values, chosen))

    @override
    def clear_many(self, keys: Column) -> None:
        with self._many.chosen(keys) as chosen:
            self.write_many(chosen, [None] * len(chosen))

    def read_many(self, keys: ChosenKeys) -> list[Any]:
        """Return the value of each key."""
        return [self.value() for _ in keys]

    def write_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        """Store checked values; None clears."""
        for _, value in zip(keys, values, strict=True):
            self.update(value)


class AppendingState(State, Generic[IN, OUT]):
    """The base of states to which elements are added one by one."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of all added elements; None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element.

        Raises:
            NullValueError: the element is None; the state does not change.
        """

    def get_many(self, keys: Column) -> Columns:
        """Return the result of :meth:`get` for each key as a column; see ``ValueState.get_many``.

        The results of an AggregateFunction are an Arrow array only if ``get_result`` has an
        annotation with one of the types that are listed there.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def add_many(
        self, keys: Column, values: Column | None, positions: Column | None = None
    ) -> None:
        """Add elements to many keys.

        Without ``positions``, the i-th element is added to the i-th key. With ``positions``, a key
        may get any number of elements, in their order.

        If the reduce function is one of ``millpond.functions``, the elements of each key are
        reduced first, so a sum of floats may differ in its last digits. Otherwise elements are
        added one after the other.

        Args:
            keys: the keys.
            values: the elements. None is allowed for the function ``count`` and adds 1 for each
                key.
            positions: for each element, the index of its key in ``keys``.

        Raises:
            BulkCallError: the columns have different lengths, or a key is not one of the frame's
                keys.
            NullValueError: an element is null.
            StateTypeError: an element is of another type.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            self.append_many(*many.contributions(chosen, values, positions))

    def read_many(self, keys: ChosenKeys) -> list[Any]:
        """Return the result of ``get`` for each key."""
        return [self.get() for _ in keys]

    def append_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        """Add the i-th element to the i-th key; keys may repeat."""
        for _, value in zip(keys, values, strict=True):
            self.add(value)


class MergingState(AppendingState[IN, OUT]):
    """The base of states that can merge namespaces, such as session windows."""

    @abstractmethod
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the entries of the source namespaces into the target, for the current key.

        Empty sources are skipped; without sources nothing changes. In the result, the target's
        elements are followed by the elements of the sources, in the given order. The current
        namespace does not change.

        Raises:
            NullValueError: the target, the sources or one of the sources is None.
        """


class ListState(MergingState[V, "list[V]"]):
    """State of a list of elements, in the order in which they were added."""

    @abstractmethod
    @override
    def get(self) -> list[V]:
        """Return the elements, ``[]`` if there are none, in a list that the caller may modify."""

    @abstractmethod
    def add_all(self, values: Iterable[V]) -> None:
        """Add several elements. If an element is refused, none is added."""

    @abstractmethod
    def update(self, values: Iterable[V]) -> None:
        """Replace all elements; an empty iterable clears the state."""

    def __iter__(self) -> Iterator[V]:
        return iter(self.get())


class ReducingState(MergingState[V, V]):
    """State of one value: the reduction of all added elements by the descriptor's function."""


class AggregatingState(MergingState[IN, OUT]):
    """State of an accumulator, to which the descriptor's AggregateFunction adds elements."""


class FoldingState(AppendingState[IN, OUT]):
    """State of an accumulator, into which the descriptor's function folds elements."""


class MapState(State, Generic[K, V]):
    """State of a map, whose entries are stored one by one and in no particular order.

    During an iteration, entries may be removed and overwritten.
    """

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    @abstractmethod
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return the value of a key, or ``default`` if the map does not contain the key."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key. None is allowed only for a value type such as ``X | None``."""

    @abstractmethod
    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set several entries. If an entry is refused, none is set."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry if it exists."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether the map contains a key, even if its value is None."""

    @abstractmethod
    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the entries."""

    def keys(self) -> Iterator[K]:
        """Iterate over the keys."""
        return (key for key, _ in self.items())

    def values(self) -> Iterator[V]:
        """Iterate over the values."""
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        """Return whether there are no entries."""
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


class SortedMapState(MapState[K, V]):
    """State of a map that iterates in the order of its keys.

    ``items``, ``keys`` and ``values`` are in this order too.

    An iteration looks for its next entry only when the caller asks for it: it returns the entry
    whose key follows the key that it returned last, in the map as it is then. So it also returns
    entries that are added ahead of it, and an iteration to whose end entries are added again and
    again does not end.
    """

    @abstractmethod
    def range(
        self,
        start: K | None = None,
        stop: K | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[K, V]]:
        """Iterate over the entries whose keys are in a range, in the order of the keys.

        Args:
            start: the first key of the range; None for a range without beginning.
            stop: the first key after the range; None for a range without end. If the keys are
                tuples, ``start`` and ``stop`` may have fewer parts: ``range((5,), (6,))`` returns
                all entries whose keys begin with 5.
            reverse: whether to iterate from the end of the range to its beginning.
            limit: the maximum number of entries.

        Raises:
            StateTypeError: a bound is not of the key type.
            ArgumentTypeError, ArgumentValueError: the limit is not an int from 0 on.
        """

    def first(self) -> tuple[K, V] | None:
        """Return the entry with the least key; None if the map is empty."""
        return next(self.range(), None)

    def last(self) -> tuple[K, V] | None:
        """Return the entry with the greatest key; None if the map is empty."""
        return next(self.range(reverse=True), None)

    def pop_first(self) -> tuple[K, V] | None:
        """Remove and return the entry with the least key; None if the map is empty."""
        entry = self.first()
        if entry is not None:
            self.remove(entry[0])
        return entry

    @abstractmethod
    def remove_range(self, start: K | None = None, stop: K | None = None) -> None:
        """Remove all entries whose keys are in a range; see ``range`` for the bounds."""

    @override
    def items(self) -> Iterator[tuple[K, V]]:
        return self.range()


def first_entries(entries: Iterator[T], limit: int | None) -> Iterator[T]:
    """Return the first ``limit`` entries, or all; raise ArgumentError for a wrong limit."""
    if limit is None:
        return entries
    check_within("limit", limit, 0, sys.maxsize)
    return islice(entries, limit)


def attach_bulk_keys(state: State, keys: ManyKeys) -> None:
    """Let a state, or the wrapper of a state, do bulk calls with the backend's ``ManyKeys``."""
    state._many_keys = keys  # noqa: SLF001 - the base's own
