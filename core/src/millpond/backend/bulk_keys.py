"""The keys of a bulk call or of a frame of rows, and the checks of a bulk call's arguments.

A bulk call is a method of a state for many keys, such as ``get_many``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, get_type_hints

from typing_extensions import override

from millpond.errors import BulkCallError, KeyGroupRangeError, NullValueError, StateTypeError, brief
from millpond.spi.keys import CurrentKey, SubtaskKeys
from millpond.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
)
from millpond.state.interfaces import Columns, ManyKeys
from millpond.state.reduce_functions import KNOWN, count, reduce_numbers, reduce_values
from millpond.types.column_input import (
    arrow_column,
    arrow_type_of,
    column_values,
    has_nulls,
    scalar_type,
)


class Frame(SubtaskKeys):
    """The distinct keys of a frame of rows.

    While a function processes the frame, its bulk calls accept no other keys.

    Attributes:
        column: the keys as the column that the function receives.
    """

    def __init__(
        self, current: CurrentKey, keys: list[Any], groups: list[int], column: Any
    ) -> None:
        super().__init__(current, keys, groups)
        self.column = column
        self.distinct = True
        for key, group in zip(keys, groups, strict=True):
            if group not in current.group_prefixes:
                current.select(key, group)  # raises the error, which names the key

    @cached_property
    def _places(self) -> dict[Any, int]:
        codec = self.current.codec
        names = self.keys if codec.exact else map(codec.encode, self.keys)
        return {name: index for index, name in enumerate(names)}

    def index_of(self, key: Any) -> int:
        """Return the index of `key` in the frame.

        Raises:
            BulkCallError: the frame does not contain `key`.
        """
        codec = self.current.codec
        checked = codec.check(_given(self.current, key))
        place = self._places.get(checked if codec.exact else codec.encode(checked))
        if place is None:
            reason = f"key {brief(key)} is none of this frame's keys: take them of context.keys"
            raise BulkCallError("", reason)
        return place

    def among(self, keys: list[Any]) -> SubtaskKeys:
        """Return the given keys of the frame, in the given order.

        Raises:
            BulkCallError: the frame does not contain one of the keys.
        """
        return self.only(list(map(self.index_of, keys)))


def _given(current: CurrentKey, key: Any) -> Any:
    if key is None:
        raise NullValueError("a key", str(current.operator))
    return key


def checked_key(current: CurrentKey, key: Any) -> tuple[Any, int]:
    """Return `key` in its canonical form, and its key group."""
    return current.codec.check_with_group(_given(current, key), current.max_parallelism)


def checked_keys(current: CurrentKey, given: Any) -> SubtaskKeys:
    """Return the checked keys of a bulk call.

    If a frame of rows is being processed, they must be keys of the frame. Otherwise they must be
    keys of this subtask.

    Raises:
        NullValueError, StateTypeError, BulkCallError, KeyGroupRangeError: a key is refused.
    """
    frame = current.frame
    if isinstance(frame, Frame):
        return frame if given is frame.column else frame.among(column_values(given, "keys"))
    keys = column_values(given, "keys")
    pairs = [checked_key(current, key) for key in keys]
    made = SubtaskKeys(current, [key for key, _ in pairs], [group for _, group in pairs])
    for key, group in pairs:
        if group not in current.group_prefixes:
            raise KeyGroupRangeError(current.foreign_key_message(key, group))
        current.check_reach(key)
    return made


_UNDECLARED = frozenset({StateKind.AGGREGATING, StateKind.FOLDING})
"""The kinds of states whose element type is known only to the user's function."""


class StateKeys(ManyKeys):
    """The checks and conversions for bulk calls of one state, such as ``state.get_many(keys)``."""

    def __init__(self, current: CurrentKey, descriptor: StateDescriptor) -> None:
        self._current = current
        self._name = descriptor.name
        self._place = f"state {descriptor.name!r}"
        self._serializer = descriptor.value_serializer()
        self._kind = scalar_type(self._serializer)
        self._checks_elements = descriptor.kind not in _UNDECLARED
        self._column = arrow_type_of(_result_type(descriptor, self._kind))
        self._map_keys = descriptor.map_key_codec()
        self._map_key_column = arrow_type_of(scalar_type(self._map_keys))
        reduces = isinstance(descriptor, ReducingStateDescriptor)
        function: Any = vars(descriptor)["reduce_function"] if reduces else None
        self._function = function if function in KNOWN else None

    # ---------------------------------------------------------------- keys

    @override
    @contextmanager
    def chosen(self, keys: Any) -> Iterator[SubtaskKeys]:
        with self._naming_state():
            found = checked_keys(self._current, keys)
        with self._current.restoring():
            yield found

    @override
    def select(self, key: Any) -> None:
        current, frame = self._current, self._current.frame
        with self._naming_state():
            if isinstance(frame, Frame):
                index = frame.index_of(key)
                current.select(frame.keys[index], frame.groups[index])
            else:
                checked, group = checked_key(current, key)
                current.check_reach(checked)
                current.select(checked, group)

    @contextmanager
    def _naming_state(self) -> Iterator[None]:
        """Add the name of the state to a BulkCallError in the ``with`` block."""
        try:
            yield
        except BulkCallError as error:
            error.state = self._name
            raise

    # ---------------------------------------------------------------- values

    @override
    def column(self, values: list[Any]) -> Columns:
        return self._arrow_or_list(values, self._column)

    @override
    def key_column(self, map_keys: list[Any]) -> Columns:
        return self._arrow_or_list(map_keys, self._map_key_column)

    def _arrow_or_list(self, values: list[Any], kind: Any) -> Columns:
        if kind is None:
            return values
        try:
            return arrow_column(values, kind)
        except ValueError as error:
            raise self._error(f"{error}: read such values by at(key)") from None

    @override
    def checked(self, values: Any, keys: SubtaskKeys) -> list[Any]:  # type: ignore[override]
        given = column_values(values, "values")
        self._check_length(
            "values", len(given), len(keys), "keys" if self._map_keys is None else "entries"
        )
        if self._map_keys is not None and type(None) in set(map(type, given)):
            self._check_null()
        return self._each_checked(given, keys)

    def _check_null(self) -> None:
        """Raise NullValueError if the values of the map cannot be None."""
        try:
            self._serializer.check(None)
        except StateTypeError:
            raise NullValueError("a map value of this type", self._place) from None

    @override
    def entries(
        self,
        keys: SubtaskKeys,  # type: ignore[override]
        map_keys: Any,
        positions: Any,
    ) -> tuple[SubtaskKeys, list[Any]]:
        assert self._map_keys is not None
        given, check = column_values(map_keys, "map_keys"), self._map_keys.check
        chosen = keys if positions is None else keys.only(self._places(positions, len(keys)))
        what = "keys" if positions is None else "positions"
        self._check_length("map keys", len(given), len(chosen), what)
        if type(None) in set(map(type, given)):
            raise NullValueError("a map key", self._place)
        try:
            return chosen, list(map(check, given))
        except (StateTypeError, NullValueError) as error:
            error.place = self._place
            raise

    def _each_checked(self, values: list[Any], keys: SubtaskKeys) -> list[Any]:
        serializer = self._serializer
        kinds = set(map(type, values)) - {type(None)}
        if kinds <= {serializer.trusted_type} or (kinds == {str} and self._is_text(values)):
            return values
        check, place = serializer.check, 0
        checked = list(values)
        try:
            for place, value in enumerate(values):
                checked[place] = None if value is None else check(value)
        except StateTypeError as error:
            error.place = f"{self._place}, key {brief(keys.keys[place])}"
            raise
        return checked

    def _is_text(self, values: list[Any]) -> bool:
        """Return whether the state stores strings and UTF-8 can encode all strings in `values`."""
        if self._kind is not str:
            return False
        try:
            "".join(filter(None, values)).encode()
        except UnicodeEncodeError:
            return False
        return True

    # ---------------------------------------------------------------- elements to add

    @override
    def contributions(
        self,
        keys: SubtaskKeys,  # type: ignore[override]
        values: Any,
        positions: Any,
    ) -> tuple[SubtaskKeys, list[Any]]:
        if values is None and self._function is not count:
            raise NullValueError("the column of elements", self._place)
        if positions is not None and self._function is not None:
            quick = self._by_arrays(keys, values, positions)
            if quick is not None:
                return self._at(keys, quick[0]), quick[1]
        places = range(len(keys)) if positions is None else self._places(positions, len(keys))
        given = [1] * len(places) if values is None else column_values(values, "values")
        self._check_length("elements", len(given), len(places), "keys")
        if type(None) in set(map(type, given)):
            raise NullValueError("an element", self._place)
        chosen = keys if positions is None else keys.only(places)
        ready = self._each_checked(given, chosen) if self._checks_elements else given
        if positions is None or self._function is None:
            return chosen, ready
        found = reduce_values(self._function, ready, places)
        return self._at(keys, list(found)), list(found.values())

    def _by_arrays(
        self, keys: SubtaskKeys, values: Any, positions: Any
    ) -> tuple[list[int], list[Any]] | None:
        """Reduce the elements with NumPy and return the indices of keys and the results.

        Return None if elements or positions are not arrays of numbers.
        """
        places, numbers = _numbers(positions), _numbers(values)
        if places is None or places.dtype.kind not in "iu":
            return None
        if values is None:
            numbers = places * 0 + 1
        if numbers is None or len(numbers) != len(places):
            return None
        if len(places) and not (places.min() >= 0 and places.max() < len(keys)):
            raise self._error(_OUTSIDE.format(len(keys)))
        return reduce_numbers(self._function or count, self._kind, numbers, places)

    @staticmethod
    def _at(keys: SubtaskKeys, indices: list[int]) -> SubtaskKeys:
        """Return the keys at `indices`, which are distinct.

        If these are all keys in their order, return `keys` itself.
        """
        whole = len(indices) == len(keys) and indices == list(range(len(keys)))
        return keys if whole else keys.only(indices)

    def _places(self, positions: Any, size: int) -> list[int]:
        places = column_values(positions, "positions")
        for place in places:
            if type(place) is not int or not 0 <= place < size:
                raise self._error(_OUTSIDE.format(size) + f", one is {brief(place)}")
        return places

    # ---------------------------------------------------------------- errors

    def _check_length(self, what: str, found: int, expected: int, of_what: str) -> None:
        if found != expected:
            raise self._error(f"{found:,} {what} for {expected:,} {of_what}")

    def _error(self, reason: str) -> BulkCallError:
        return BulkCallError(self._name, reason)


_OUTSIDE = "positions are indices of the {:,} keys, from 0"


def _numbers(column: Any) -> Any:
    """Return a column of numbers without nulls as a NumPy array, or None for any other column."""
    if has_nulls(column):
        return None
    to_numpy = getattr(column, "to_numpy", None)
    if to_numpy is not None:
        arrow = hasattr(column, "null_count") and not hasattr(column, "num_chunks")
        column = to_numpy(zero_copy_only=False) if arrow else to_numpy()
    numeric = getattr(getattr(column, "dtype", None), "kind", "O") in "iuf"
    return column if numeric and column.ndim == 1 else None


def _result_type(descriptor: StateDescriptor, kind: type | None) -> Any:
    """Return the type of the values that reads return.

    For an AggregateFunction, this is the return annotation of ``get_result``.
    """
    if not isinstance(descriptor, AggregatingStateDescriptor):
        return kind
    try:
        return get_type_hints(descriptor.aggregate_function.get_result).get("return")
    except (AttributeError, NameError, TypeError):
        return None
