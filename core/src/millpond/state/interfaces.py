"""The interfaces of keyed and operator states."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import chain, count, islice, repeat
from typing import Any, Generic, Protocol, Self, TypeAlias, overload

import pyarrow as pa
from typing_extensions import TypeVar, override

from millpond.arguments import check_within
from millpond.errors import BulkCallError, ConfigError

Column: TypeAlias = Any
"""A column as an argument: an Arrow or NumPy array, a pandas Series, a list or another iterable."""

Columns: TypeAlias = Any
"""A column as a result: an Arrow array or a list."""


class ChosenKeys(Protocol):
    """The checked keys of a bulk call such as ``get_many``, in the caller's order."""

    def __len__(self) -> int:
        """Return the number of keys."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys, and make each key the current key of the backend in turn."""

    def only(self, indices: Sequence[int]) -> ChosenKeys:
        """Return the keys at `indices`. An index may occur several times."""


class ManyKeys(Protocol):
    """An object of the backend that checks the arguments of bulk calls and converts columns."""

    def chosen(self, keys: Column) -> AbstractContextManager[ChosenKeys]:
        """Return the checked `keys` of a bulk call, for a ``with`` block.

        The end of the block restores the current key. While a function processes a frame of rows,
        all keys must be keys of that frame.
        """

    def select(self, key: Any) -> None:
        """Check `key` as ``chosen`` does, and make it the current key."""

    def column(self, values: list[Any]) -> Columns:
        """Return `values` as an Arrow array, or as a list if the state's type has no Arrow type."""

    def checked(self, values: Column, keys: ChosenKeys) -> list[Any]:
        """Return the checked value for each key, with None for null.

        The returned values share no mutable parts with the column `values`.
        """

    def contributions(
        self, keys: ChosenKeys, values: Column | None, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Return the arguments of ``append_many``: keys, and an element for each key.

        If possible, the elements of each key are reduced to one. See ``AppendingState.add_many``
        for `values` and `positions`.
        """

    def entries(
        self, keys: ChosenKeys, map_keys: Column, positions: Column | None
    ) -> tuple[ChosenKeys, list[Any]]:
        """Return the key and the checked map key of each map entry of a bulk call."""

    def key_column(self, map_keys: list[Any]) -> Columns:
        """Return `map_keys` as an Arrow array, or as a list if their type has no Arrow type."""


BETWEEN_LAYERS = frozenset({"at", "read_many", "write_many", "append_many"})
"""Methods that the metrics wrapper does not count.

``at`` reads and writes nothing. The others are parts of bulk calls such as ``get_many``, which are
counted.
"""

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
OUT = TypeVar("OUT", default=Any)
D = TypeVar("D")
T = TypeVar("T")
_MISSING: Any = object()


class State(ABC):
    """The base class of all keyed states."""

    _many_keys: ManyKeys | None = None

    @abstractmethod
    def set_current_namespace(self, namespace: Any) -> None:
        """Set the namespace that the following calls read and write.

        Raises:
            NullValueError: the namespace is None.
            StateTypeError: the namespace is not of the state's namespace type.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove the value, list or map that is stored for the current key and namespace."""

    def at(self, key: Any) -> Self:
        """Make `key` the current key of all states, and return this state.

        The key remains the current key until another key is selected. In a function that processes
        rows or timers, the next row or timer selects its own key. In the function, trigger or
        evictor of a window, the earlier key is restored when the call ends. The context of a
        trigger always uses the key of its row or timer.

        Do not call this method in a function that a state or a window assigner calls, such as a
        reduce function: the result would be stored under the selected key.

        Raises:
            BulkCallError: a frame of rows is being processed, and `key` is not one of its keys; or
                in batch execution, `key` is not the key of the rows.
        """
        self._many.select(key)
        return self

    def clear_many(self, keys: Column) -> None:
        """Remove the value, list or map that is stored for each key."""
        with self._many.chosen(keys) as chosen:
            for _ in chosen:
                self.clear()

    @property
    def _many(self) -> ManyKeys:
        """The backend's object for bulk calls; raises BulkCallError for operator state."""
        if self._many_keys is None:
            raise BulkCallError("", "operator state has no keys")
        return self._many_keys


class ValueState(State, Generic[V]):
    """A state with one value."""

    @abstractmethod
    def value(self) -> V | None:
        """Return the value. If no value is stored, return a copy of the default, or None."""

    @abstractmethod
    def update(self, value: V | None, ttl: timedelta | None = None) -> None:
        """Store a value. None clears the state.

        Args:
            value: the value.
            ttl: the time to live of this value, if it differs from that of the state. Reads do not
                renew it.

        Raises:
            StateTypeError: the value is not of the declared type.
            ConfigError: `ttl` is wrong, or the state has no time to live.
        """

    def get_many(self, keys: Column) -> Columns:
        """Return the value of each key as a column, with null for missing values.

        The column is an Arrow array if the type of the state is int, float, bool, str, bytes, date
        or datetime. For other types it is a list.

        Raises:
            BulkCallError: a key is not one of the frame's keys, or the column cannot store a value.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def update_many(self, keys: Column, values: Column) -> None:
        """Store a value for each key. Null clears the state.

        If a key or value is refused, no value is stored.

        Raises:
            BulkCallError: the numbers of keys and values differ, or a key is not one of the frame's
                keys.
            StateTypeError: a value is not of the declared type.
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
        """Store a checked value for each key. None clears the state."""
        for _, value in zip(keys, values, strict=True):
            self.update(value)


class AppendingState(State, Generic[IN, OUT]):
    """The base class of states to which elements are added one by one."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the result of all added elements, or None if there are none."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add an element.

        Raises:
            NullValueError: the element is None. The state does not change then.
        """

    def get_many(self, keys: Column) -> Columns:
        """Return the result of ``get`` for each key as a column, as in ``ValueState.get_many``.

        For an AggregateFunction, the column is an Arrow array only if the return annotation of
        ``get_result`` is one of the types that ``ValueState.get_many`` lists.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            return many.column(self.read_many(chosen))

    def add_many(
        self, keys: Column, values: Column | None, positions: Column | None = None
    ) -> None:
        """Add elements to many keys.

        Without `positions`, the i-th element is added to the i-th key. With `positions`, each key
        may get any number of elements, in their order.

        If the reduce function is one of ``millpond.functions``, the elements of each key are first
        reduced to one. So the sum of floats may differ in the last digits. Other functions get the
        elements one after the other.

        Args:
            keys: the keys.
            values: the elements. For the function ``count`` they may be None, which adds 1 for each
                key.
            positions: for each element, the index of its key in `keys`.

        Raises:
            BulkCallError: the columns have different lengths, or a key is not one of the frame's
                keys.
            NullValueError: an element is null.
            StateTypeError: an element is not of the declared type.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            self.append_many(*many.contributions(chosen, values, positions))

    def read_many(self, keys: ChosenKeys) -> list[Any]:
        """Return the result of ``get`` for each key."""
        return [self.get() for _ in keys]

    def append_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        """Add the i-th element to the i-th key. A key may occur several times."""
        for _, value in zip(keys, values, strict=True):
            self.add(value)


class MergingState(AppendingState[IN, OUT]):
    """The base class of states whose namespaces can be merged. Session windows use it."""

    @abstractmethod
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the entries in the namespaces `sources` into the namespace `target`.

        Only the entries of the current key are merged. The result has the elements of `target`
        first, and then the elements of `sources`, in the given order. Sources without an entry are
        skipped. If there are no sources, nothing changes. The current namespace remains as it is.

        Raises:
            NullValueError: `target`, `sources` or an element of `sources` is None.
        """


class ListState(MergingState[V, "list[V]"]):
    """A state with a list of elements, in the order in which they were added."""

    @abstractmethod
    @override
    def get(self) -> list[V]:
        """Return a list of the elements, which the caller may modify; ``[]`` if there are none."""

    @abstractmethod
    @override
    def add(self, value: V, ttl: timedelta | None = None) -> None:
        """Add an element, with its own time to live if `ttl` is given.

        Raises:
            NullValueError: the element is None. The state does not change then.
            ConfigError: `ttl` is wrong, or the state has no time to live.
        """

    @abstractmethod
    def add_all(self, values: Iterable[V], ttl: timedelta | None = None) -> None:
        """Add several elements. If an element is refused, no element is added."""

    @abstractmethod
    def update(self, values: Iterable[V], ttl: timedelta | None = None) -> None:
        """Replace all elements. An empty iterable clears the state."""

    @override
    def get_many(self, keys: Column) -> list[list[V]]:
        """Return the list of elements for each key."""
        with self._many.chosen(keys) as chosen:
            return self.read_many(chosen)

    def items_many(self, keys: Column) -> tuple[Columns, Columns]:
        """Return the elements of many keys as two columns of the same length.

        The first column has, for each element, the index of its key in `keys`. The second column
        has the elements. Keys and elements keep their order. The columns are Arrow arrays, as in
        ``ValueState.get_many``.

        Raises:
            BulkCallError: a key is not one of the frame's keys, or the column cannot store a value.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            lists = self.read_many(chosen)
        return _indices(lists), many.column([value for values in lists for value in values])

    def __iter__(self) -> Iterator[V]:
        return iter(self.get())


class ReducingState(MergingState[V, V]):
    """A state with one value, into which the descriptor's reduce function combines all elements."""


class AggregatingState(MergingState[IN, OUT]):
    """A state with an accumulator, to which the descriptor's AggregateFunction adds elements."""


class FoldingState(AppendingState[IN, OUT]):
    """A state with an accumulator, into which the descriptor's fold function folds elements."""


class MapState(State, Generic[K, V]):
    """A state with a map, whose entries are stored separately and in no particular order.

    During an iteration over the map, the caller may remove and overwrite entries.
    """

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    @abstractmethod
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return the value of `key`, or `default` if the map does not contain `key`."""

    @abstractmethod
    def put(self, key: K, value: V, ttl: timedelta | None = None) -> None:
        """Set the value of `key`. Only a type such as ``X | None`` allows the value None.

        Args:
            key: the key.
            value: the value.
            ttl: the time to live of this entry, if it differs from that of the state. Reads do not
                renew it.

        Raises:
            ConfigError: `ttl` is wrong, or the state has no time to live.
        """

    @abstractmethod
    def put_all(self, entries: Mapping[K, V], ttl: timedelta | None = None) -> None:
        """Set several entries. If an entry is refused, no entry is set."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry of `key` if it exists."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether the map contains `key`, even if the value is None."""

    @abstractmethod
    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the pairs of key and value."""

    def keys(self) -> Iterator[K]:
        """Iterate over the keys."""
        return (key for key, _ in self.items())

    def values(self) -> Iterator[V]:
        """Iterate over the values."""
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        """Return whether the map has no entries."""
        return next(iter(self.items()), None) is None

    def get_many(self, keys: Column, map_keys: Column, positions: Column | None = None) -> Columns:
        """Return the values of map entries of many keys as a column, with null for missing entries.

        The column is an Arrow array or a list, as in ``ValueState.get_many``.

        Args:
            keys: the keys.
            map_keys: the map key of each entry.
            positions: for each entry, the index of its key in `keys`. If it is None, the i-th entry
                is one of the i-th key.

        Raises:
            BulkCallError: the columns have different lengths, or a key is not one of the frame's
                keys, or the column cannot store a value.
            NullValueError, StateTypeError: a map key is refused.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            each, checked = many.entries(chosen, map_keys, positions)
            pairs = zip(each, checked, strict=True)
            return many.column([self.get(map_key) for _, map_key in pairs])

    def put_many(
        self, keys: Column, map_keys: Column, values: Column, positions: Column | None = None
    ) -> None:
        """Set map entries of many keys. If any entry is refused, no entry is set.

        If several of the entries have the same key and map key, the last one counts.

        Args:
            keys: the keys.
            map_keys: the map key of each entry.
            values: the value of each entry.
            positions: as in ``get_many``.

        Raises:
            BulkCallError: the columns have different lengths, or a key is not one of the frame's
                keys.
            NullValueError, StateTypeError: a map key or a value is refused.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            each, checked = many.entries(chosen, map_keys, positions)
            ready = many.checked(values, each)
            for _, map_key, value in zip(each, checked, ready, strict=True):
                self.put(map_key, value)

    def items_many(self, keys: Column) -> tuple[Columns, Columns, Columns]:
        """Return the entries of many keys as three columns of the same length.

        The first column has, for each entry, the index of its key in `keys`. The others have the
        map keys and the values. The columns are Arrow arrays, as in ``ValueState.get_many``. The
        entries of a key are next to each other, in the order of ``items``.

        Raises:
            BulkCallError: a key is not one of the frame's keys, or a column cannot store a value.
        """
        many = self._many
        with many.chosen(keys) as chosen:
            maps = [list(self.items()) for _ in chosen]
        entries = [entry for each in maps for entry in each]
        map_keys, values = [key for key, _ in entries], [value for _, value in entries]
        return _indices(maps), many.key_column(map_keys), many.column(values)

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
    """A state with a map that iterates in the order of its keys.

    ``items``, ``keys`` and ``values`` use this order too.

    An iteration looks for the next entry only when the caller asks for it. It then returns the
    entry with the next key in the current map. So it also returns entries that were added after the
    current position, and does not end if the caller always adds entries there.
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

        If the keys are tuples, `start` and `stop` may have fewer parts than the keys. For example,
        ``range((5,), (6,))`` returns all entries whose keys begin with 5.

        Args:
            start: the first key of the range, or None to begin at the first key of the map.
            stop: the first key after the range, or None to end at the last key of the map.
            reverse: whether to iterate from the end of the range to its beginning.
            limit: the maximum number of entries.

        Raises:
            StateTypeError: `start` or `stop` is not of the key type.
            ArgumentTypeError, ArgumentValueError: `limit` is not an int, or is negative.
        """

    def first(self) -> tuple[K, V] | None:
        """Return the entry with the least key, or None if the map is empty."""
        return next(self.range(), None)

    def last(self) -> tuple[K, V] | None:
        """Return the entry with the greatest key, or None if the map is empty."""
        return next(self.range(reverse=True), None)

    def pop_first(self) -> tuple[K, V] | None:
        """Remove and return the entry with the least key, or return None if the map is empty."""
        entry = self.first()
        if entry is not None:
            self.remove(entry[0])
        return entry

    @abstractmethod
    def remove_range(self, start: K | None = None, stop: K | None = None) -> None:
        """Remove all entries whose keys are in a range. The arguments are those of ``range``."""

    @override
    def items(self) -> Iterator[tuple[K, V]]:
        return self.range()


def _indices(parts: Sequence[Sequence[Any]]) -> pa.Array[Any]:
    """Return, for each element of each part, the index of its part."""
    lengths = map(len, parts)
    return pa.array(list(chain.from_iterable(map(repeat, count(), lengths))), pa.int64())


def first_entries(entries: Iterator[T], limit: int | None) -> Iterator[T]:
    """Return the first `limit` entries, or all if `limit` is None.

    Raises:
        ArgumentTypeError, ArgumentValueError: `limit` is not an int, or is negative.
    """
    if limit is None:
        return entries
    check_within("limit", limit, 0, sys.maxsize)
    return islice(entries, limit)


def no_ttl_error(place: str) -> ConfigError:
    """Return the error for a write with a `ttl` to a state without time to live."""
    cure = "call enable_time_to_live on its descriptor, with another update type than DISABLED"
    reason = f"the state has no time to live: {cure}"
    return ConfigError("ttl", reason, place)


def attach_bulk_keys(state: State, keys: ManyKeys) -> None:
    """Set the backend's object for bulk calls in a state or in a wrapper of a state."""
    state._many_keys = keys  # noqa: SLF001 - this module defines the attribute
