"""The six raw states, written once against tables.

They check types, keep the isolation rule and know their namespace; they hold no key. What a
table returns is the stored object itself, so everything mutable is copied on its way out;
``check`` returns a copy of what comes in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from typing_extensions import override

from millpond.arguments import check_type
from millpond.backend.states.base import RawState
from millpond.backend.states.map_state import RawMapState
from millpond.backend.tables import CellTable, MapTable
from millpond.errors import NullValueError, StateTypeError
from millpond.state.descriptors import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from millpond.state.interfaces import (
    AggregatingState,
    FoldingState,
    ListState,
    MergingState,
    ReducingState,
    State,
    ValueState,
)
from millpond.state.ttl.envelope import TtlSerializer
from millpond.types import VOID_NAMESPACE, KeyCodec, TypeSerializer

__all__ = ["make_state"]


class RawValueState(RawState, ValueState[Any]):
    """One value; what TTL needs to reach its table directly is public."""

    _table: CellTable

    @property
    def cells(self) -> CellTable:
        """The table."""
        return self._table

    @property
    def namespace(self) -> Any:
        """The current namespace, prepared by the table."""
        return self._namespace

    @property
    def value_serializer(self) -> TypeSerializer[Any]:
        """The serializer of the value itself, without a timestamp beside it."""
        serializer = self._serializer
        return serializer.inner if isinstance(serializer, TtlSerializer) else serializer

    def __init__(
        self, descriptor: ValueStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        default = descriptor.default
        self._default = None if default is None else self._check(default)

    @override
    def value(self) -> Any:
        value = self._table.get(self._namespace)
        if value is None:
            value = self._default
            if value is None:
                return None
        return value if self._immutable else self._copy(value)

    @override
    def update(self, value: Any) -> None:
        if value is None:
            self._table.remove(self._namespace)
            return
        try:
            checked = self._serializer.check(value)
        except StateTypeError as error:
            error.place = self._place
            raise
        self._table.put(self._namespace, checked)


class _MergingRawState(RawState, MergingState[Any, Any]):
    """Merging of namespaces, over how two stored values combine."""

    _table: CellTable

    def _combine(self, stored: list[Any]) -> Any:
        """What stored values become together; None where, with TTL, all of them have expired.

        They are the table's own, and a running snapshot may read them: users' functions, which
        may change both their arguments, get copies.
        """
        raise NotImplementedError

    def _moved(self, stored: Any) -> Any:
        """A stored value in the form in which another namespace takes it over."""
        return stored

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Nothing changes before the users' functions are done."""
        if sources is None:
            raise NullValueError("the source namespaces", self._place)
        check_type("sources", sources, Iterable)
        table, into = self._table, self._prepare(target)
        places = dict.fromkeys((into, *[self._prepare(source) for source in sources]))
        found = {place: each for place in places if (each := table.get(place)) is not None}
        if found.keys() <= {into}:
            return
        held = list(found.values())
        merged = self._moved(held[0]) if len(held) == 1 else self._combine(held)
        for place in found:
            table.remove(place)
        if merged is not None:
            table.put(into, merged)


class RawListState(_MergingRawState, ListState[Any]):
    """A list, stored as one cell."""

    @override
    def get(self) -> list[Any]:
        stored = self._table.get(self._namespace)
        if stored is None:
            return []
        return list(stored) if self._immutable else [self._copy(value) for value in stored]

    @override
    def add(self, value: Any) -> None:
        self._append([self._check(value)])

    @override
    def add_all(self, values: Iterable[Any]) -> None:
        self._append(self._check_all(values))

    @override
    def update(self, values: Iterable[Any]) -> None:
        checked = self._check_all(values)
        if checked:
            self._table.put(self._namespace, checked)
        else:
            self._table.remove(self._namespace)

    def _check_all(self, values: Iterable[Any]) -> list[Any]:
        if values is None:
            raise NullValueError("the list of elements", self._place)
        try:
            return [self._check(value) for value in values]
        except TypeError:
            check_type("values", values, Iterable)
            raise

    def _append(self, values: list[Any]) -> None:
        if values:
            stored = self._table.get_for_update(self._namespace)
            if stored is not None:
                # The table's own list, shared with nobody: growing it in place keeps an add O(1).
                stored.extend(values)
            self._table.put(self._namespace, values if stored is None else stored)

    @override
    def _combine(self, stored: list[Any]) -> Any:
        return [element for elements in stored for element in elements]

    @override
    def _moved(self, stored: Any) -> Any:
        return list(stored)  # since a list is grown in place


class _AppendingRawState(_MergingRawState):
    """States whose cell is an accumulator."""

    _merge_two: Callable[[Any, Any], Any]

    def _result(self, accumulator: Any) -> Any:
        return accumulator

    def _accumulate(self, accumulator: Any | None, value: Any) -> Any:
        raise NotImplementedError

    @override
    def _combine(self, stored: list[Any]) -> Any:
        own = stored if self._immutable else list(map(self._copy, stored))
        merged = own[0]
        for value in own[1:]:
            merged = self._merge_two(merged, value)
            if merged is not None or not self._expires:
                merged = self._check(merged, "the merged accumulator")
        return merged

    @override
    def get(self) -> Any:
        accumulator = self.get_internal()
        return None if accumulator is None else self._result(accumulator)

    @override
    def add(self, value: Any) -> None:
        if value is None:
            raise NullValueError("an element", self._place)
        self.update_internal(self._accumulate(self.get_internal(), value))

    def get_internal(self) -> Any:
        """A copy of the accumulator, or None."""
        stored = self._table.get(self._namespace)
        return stored if stored is None or self._immutable else self._copy(stored)

    def update_internal(self, accumulator: Any) -> None:
        """Store an accumulator."""
        self._table.put(self._namespace, self._check(accumulator, "the accumulator"))


class RawReducingState(_AppendingRawState, ReducingState[Any]):
    """A reduction."""

    def __init__(
        self, descriptor: ReducingStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        self._reduce = self._merge_two = descriptor.reduce_function

    @override
    def _accumulate(self, accumulator: Any | None, value: Any) -> Any:
        checked = self._check(value)
        return checked if accumulator is None else self._reduce(accumulator, checked)


class RawAggregatingState(_AppendingRawState, AggregatingState[Any, Any]):
    """An aggregate."""

    def __init__(
        self, descriptor: AggregatingStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        self._function = descriptor.aggregate_function
        self._merge_two = self._function.merge

    @override
    def _result(self, accumulator: Any) -> Any:
        return self._function.get_result(accumulator)

    @override
    def _accumulate(self, accumulator: Any | None, value: Any) -> Any:
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        return self._function.add(value, accumulator)


class RawFoldingState(_AppendingRawState, FoldingState[Any, Any]):
    """A fold."""

    def __init__(
        self, descriptor: FoldingStateDescriptor, namespace_codec: KeyCodec, table: CellTable
    ) -> None:
        super().__init__(descriptor, namespace_codec, table)
        self._fold = descriptor.fold_function
        self._initial = self._check(descriptor.initial, "the initial value")

    @override
    def _accumulate(self, accumulator: Any | None, value: Any) -> Any:
        start = copy.copy(self._copy(self._initial)) if accumulator is None else accumulator
        return self._fold(start, value)


_STATES: dict[StateKind, Any] = {
    StateKind.VALUE: RawValueState,
    StateKind.LIST: RawListState,
    StateKind.MAP: RawMapState,
    StateKind.REDUCING: RawReducingState,
    StateKind.AGGREGATING: RawAggregatingState,
    StateKind.FOLDING: RawFoldingState,
}


def make_state(
    descriptor: StateDescriptor, namespace_codec: KeyCodec, table: CellTable | MapTable
) -> State:
    """The raw state of a descriptor over a table, set to no namespace yet."""
    state: State = _STATES[descriptor.kind](descriptor, namespace_codec, table)
    if namespace_codec.snapshot().id == "void":
        state.set_current_namespace(VOID_NAMESPACE)
    return state
