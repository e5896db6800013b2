"""The interfaces of keyed and operator states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, Self, TypeAlias, overload

from typing_extensions import TypeVar, override

from millpond.errors import BulkCallError

Column: TypeAlias = Any
"""An argument column: an Arrow or NumPy array, a pandas Series, a list or another iterable."""

Columns: TypeAlias = Any
"""A returned column: an Arrow array or a list."""


class ChosenKeys(Protocol):
    """Checked keys of the subtask, in the caller's order."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def __iter__(self) -> Iterator[Any]:
        """Make each key the current one in turn; then restore the current key."""

    def only(self, indices: Sequence[int]) -> ChosenKeys:
        """Return the keys at some indices, which may repeat."""


class ManyKeys(Protocol):
    """Chooses the keys of bulk calls, and converts their values from and to columns."""

    def chosen(self, keys: Column) -> AbstractContextManager[ChosenKeys]:
        """Check keys. While a frame of rows is processed, they must be keys of that frame.

        The end of the ``with`` block restores the current key, also after an error.
        """

    def select(self, key: Any) -> None:
        """Check a key in the same way, and make it the current key."""

    def column(self, values: list[Any]) -> Columns:
        """Return values as a column of the state's type, or as a list if it has no column type."""

    def checked(self, values: Column, keys: ChosenKeys) -> list[Any]:
        """Return a checked, isolated value for each key; null is None."""

    def contributions(
        self, keys: ChosenKeys, values: Column | None, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Return elements to add with their keys, reduced to one for each key if possible."""


BETWEEN_LAYERS = frozenset({"at", "read_many", "write_many", "append_many"})
"""Methods that a wrapper need not forward: ``at`` returns the state itself, and the others
implement the bulk calls of a state and its wrappers, with checked keys and values."""

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
D = TypeVar("D")
_MISSING: Any = object()


class State(ABC):
    """Any keyed state."""

    _many_keys: ManyKeys | None = None

    @abstractmethod
    def set_current_namespace(self, namespace: Any) -> None:
        """Choose the namespace of the following calls.

        Raises:
            NullValueError: the namespace is None.
            StateTypeError: it is not of the state's namespace type.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove the stored entry of the current key and namespace."""

    def at(self, key: Any) -> Self:
        """Choose the current key of all states, and return this state.

        It remains the current key until another one is chosen. In a function's method for rows or
        timers, the next row or timer sets its own key. In a window's function, trigger or evictor,
        the key remains until that call ends; a trigger's context always uses the key of its row or
        timer. A function that a state or a window assigner calls, such as a reduce function, must
        not choose a key: its result would be stored under that key.

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
        """The way to choose keys, which the backend attaches."""
        if self._many_keys is None:
            raise BulkCallError("", "operator state has no keys")
        return self._many_keys


class ValueState(State, Generic[V]):
    """One value."""

    @abstractmethod
    def value(self) -> V | None:
        """Return the value; if there is none, a copy of the descriptor's default, or None."""

    @abstractmethod
    def update(self, value: V | None) -> None:
        """Store a value; None clears. Raise StateTypeError for a value of another type."""

    def get_many(self, keys: Column) -> Columns:
        """Return the values of the keys as a column, with null for missing values.

        It is an Arrow array for int, float, bool, str, bytes, date and datetime, and a list for
        other types.

        Raises:
            BulkCallError: a key is not one of the frame's keys, or a value does not fit the column.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def update_many(self, keys: Column, values: Column) -> None:
        """Store a value for each key; null clears. If one is refused, nothing is changed.

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
    """State that grows by adding."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of all added elements; None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element. Raise NullValueError for None, before anything changes."""

    def get_many(self, keys: Column) -> Columns:
        """Return the result of :meth:`get` for each key as a column; see ``ValueState.get_many``.

        For an AggregateFunction it is an Arrow array if ``get_result`` is annotated with such a
        type.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def add_many(
        self, keys: Column, values: Column | None, positions: Column | None = None
    ) -> None:
        """Add elements: the i-th to the i-th key or, with positions, to the key at its position.

        With positions a key may get any number of elements, in their order. If the reduce function
        is one of ``millpond.functions``, the elements of each key are reduced first, so a sum of
        floats may differ in its last digits. Otherwise elements are added one after the other.

        Args:
            keys: the keys.
            values: the elements. None is allowed for the function ``count`` and adds 1 for each
                key.
            positions: for each element, the index of its key in ``keys``.

        Raises:
            BulkCallError: the numbers do not fit, or a key is not one of the frame's keys.
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
    """State whose namespaces can be merged."""

    @abstractmethod
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the entries of the source namespaces into the target, for the current key.

        Empty sources are skipped; without sources nothing changes. The target's elements come
        first, then those of the sources in the given order. The current namespace does not change.

        Raises:
            NullValueError: the target, the sources or one of them is None.
        """


class ListState(MergingState[V, "list[V]"]):
    """A list of elements in the order in which they were added."""

    @abstractmethod
    @override
    def get(self) -> list[V]:
        """Return the elements, ``[]`` if there are none, in a list that the caller may modify."""

    @abstractmethod
    def add_all(self, values: Iterable[V]) -> None:
        """Add several elements. If one is refused, nothing is changed."""

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
    """A map whose entries are stored one by one, in no particular order.

    During an iteration, entries may be removed and overwritten.
    """

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    @abstractmethod
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return the value of a key, or the default if there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of a key; None only if the value type allows it."""

    @abstractmethod
    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set several entries. If one is refused, nothing is changed."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry if it exists."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether there is an entry, even one whose value is None."""

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


def attach_bulk_keys(state: State, keys: ManyKeys) -> None:
    """Attach the way to choose keys to a state or its wrapper; backends call it."""
    state._many_keys = keys  # noqa: SLF001 - the base's own
