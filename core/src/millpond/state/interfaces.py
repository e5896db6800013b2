"""The interfaces of keyed and operator states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, Self, TypeAlias, overload

from typing_extensions import TypeVar, override

from millpond.errors import BulkCallError

Column: TypeAlias = Any
"""What callers may give: an Arrow or NumPy array, a pandas Series, a list or another iterable."""

Columns: TypeAlias = Any
"""What they get: an Arrow array, or a list."""


class ChosenKeys(Protocol):
    """Checked keys of the subtask, in the order in which the caller gave them."""

    def __len__(self) -> int:
        """How many."""

    def __iter__(self) -> Iterator[Any]:
        """Make each the current key in turn; at the end the one before is current again."""

    def only(self, indices: Sequence[int]) -> ChosenKeys:
        """Those at some indices; an index may come again."""


class ManyKeys(Protocol):
    """How the keys of bulk calls are chosen, and their values brought into columns and back."""

    def chosen(self, keys: Column) -> AbstractContextManager[ChosenKeys]:
        """Check keys; while a frame of rows is processed, they must be of that frame.

        At the end of the ``with`` block the current key is the one before, whatever happened.
        """

    def select(self, key: Any) -> None:
        """Check a key in the same way, and make it the current one."""

    def column(self, values: list[Any]) -> Columns:
        """Values as a column of the state's type, a list where it has none."""

    def checked(self, values: Column, keys: ChosenKeys) -> list[Any]:
        """A value of the state's type for each key, None for null, isolated from the caller's."""

    def contributions(
        self, keys: ChosenKeys, values: Column | None, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Elements to add, with the key of each; reduced to one a key where that may be."""


BETWEEN_LAYERS = frozenset({"at", "read_many", "write_many", "append_many"})
"""What a wrapper need not forward: ``at`` returns the state itself, and the others are what a state
and its wrappers make their bulk calls of, with keys and values that are checked."""

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
        """Choose the namespace that the following calls work on.

        Raises:
            NullValueError: the namespace is None.
            StateTypeError: it is not of the state's namespace type.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove what is stored for the current key and namespace."""

    def at(self, key: Any) -> Self:
        """Choose the current key, of all states, and return this state.

        It stays the current one until another is chosen; in a function's method for rows or timers,
        until the next row or timer, which comes with its own; in a windows' function, trigger or
        evictor, until that call ends, and a trigger's context always works on the key of its row
        or timer. What a state or a window assigner calls by itself, such as the function of a
        ``ReducingState``, must choose none: what it gives would be stored under that key.

        Raises:
            BulkCallError: a frame of rows is being processed, and the key is none of its keys; or
                it is batch execution, and the key is another than that of the rows.
        """
        self._many.select(key)
        return self

    def clear_many(self, keys: Column) -> None:
        """Remove what is stored for each of the keys."""
        with self._many.chosen(keys) as chosen:
            for _ in chosen:
                self.clear()

    @property
    def _many(self) -> ManyKeys:
        """How keys are chosen; whoever makes a state for a backend sees to it."""
        if self._many_keys is None:
            raise BulkCallError("", "this state belongs to no key, as that of an operator does not")
        return self._many_keys


class ValueState(State, Generic[V]):
    """One value."""

    @abstractmethod
    def value(self) -> V | None:
        """The value; where there is none, a copy of the descriptor's default, or None."""

    @abstractmethod
    def update(self, value: V | None) -> None:
        """Store a value; None clears. Raises StateTypeError for a value of another type."""

    def get_many(self, keys: Column) -> Columns:
        """The values of the keys, as :meth:`value` gives them: a column, null where there is none.

        It is an Arrow array where the type has one: int, float, bool, str, bytes, date, datetime.
        For any other type it is a list.

        Raises:
            BulkCallError: a key is none of the frame's, or a value does not fit the column.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def update_many(self, keys: Column, values: Column) -> None:
        """Store a value for each key, null clears: all of them or, if one is refused, none.

        Raises:
            BulkCallError: there are not as many values as keys, or a key is none of the frame's.
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
        """The value of each key."""
        return [self.value() for _ in keys]

    def write_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        """Store what was checked; None clears."""
        for _, value in zip(keys, values, strict=True):
            self.update(value)


class AppendingState(State, Generic[IN, OUT]):
    """State that grows by adding."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of all added elements; None where nothing was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element. Raises NullValueError for None, before anything changes."""

    def get_many(self, keys: Column) -> Columns:
        """What :meth:`get` gives for each key, as a column; see ``ValueState.get_many``.

        What an AggregateFunction makes is a column where its ``get_result`` is annotated with a
        type that has one.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def add_many(
        self, keys: Column, values: Column | None, positions: Column | None = None
    ) -> None:
        """Add elements: the i-th to the i-th key or, with positions, to the key at its position.

        With positions a key may get any number of elements, in their order. Where a reducing
        state's function is one of ``millpond.functions``, those of each key are reduced first, so
        a sum of floats may differ in its last digits; otherwise one is added after the other.

        Args:
            keys: the keys.
            values: the elements. None counts: each is 1, for the function ``count`` alone.
            positions: for each element, the index of its key in ``keys``.

        Raises:
            BulkCallError: the numbers do not fit, or a key is none of the frame's.
            NullValueError: an element is null.
            StateTypeError: an element is of another type.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            self.append_many(*many.contributions(chosen, values, positions))

    def read_many(self, keys: ChosenKeys) -> list[Any]:
        """What ``get`` gives for each key."""
        return [self.get() for _ in keys]

    def append_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        """Add the i-th element to the i-th key; a key may come again."""
        for _, value in zip(keys, values, strict=True):
            self.add(value)


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


def attach_bulk_keys(state: State, keys: ManyKeys) -> None:
    """Give a state, or what wraps it, the way to choose keys: whoever makes one calls this."""
    state._many_keys = keys  # noqa: SLF001 - the base's own
