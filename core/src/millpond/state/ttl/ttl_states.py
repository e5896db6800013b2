"""Wrappers of states whose entries expire, and the serializer that stores timestamps.

The backend stores a timestamp with each value: ``stamped_descriptor`` returns the descriptor for
that. ``wrap_with_ttl`` returns the state that users see, which adds timestamps to written values
and hides expired values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any

import attrs
from typing_extensions import override

from millpond.arguments import INT64, check_elements
from millpond.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from millpond.state.interfaces import (
    AggregatingState,
    AppendingState,
    ChosenKeys,
    FoldingState,
    ListState,
    MapState,
    MergingState,
    ReducingState,
    SortedMapState,
    State,
    ValueState,
    first_entries,
)
from millpond.state.ttl.expiry_rule import STAMP, has_expired, is_renewed, last_expired, lives_on
from millpond.state.ttl.ttl_config import StateTtlConfig, UpdateType
from millpond.state.ttl.ttl_times import TtlTimes
from millpond.types import SerializerSnapshot, TypeSerializer

_MISSING: Any = object()
_BEFORE_ALL = INT64[0]
_pack, _unpack = STAMP.pack, STAMP.unpack_from

Stamped = tuple[Any, int]
"""A value, and its timestamp in ms or its own expiry (see ``expiry_rule``)."""


class TtlSerializer(TypeSerializer[Stamped]):
    """The serializer of a value and its timestamp, which is written first (8 bytes, big-endian)."""

    def __init__(self, inner: TypeSerializer[Any]) -> None:
        self.inner = inner
        self._check = inner.check
        self._serialize = inner.serialize
        self._deserialize = inner.deserialize
        self.immutable = inner.immutable
        self.sized = inner.sized
        self.type_name = inner.type_name

    @override
    def check(self, value: Any) -> Stamped:
        checked = self._check(value[0])
        return value if checked is value[0] else (checked, value[1])

    @override
    def copy(self, value: Stamped) -> Stamped:
        return self.inner.copy(value[0]), value[1]

    @override
    def serialize(self, value: Stamped) -> bytes:
        return _pack(value[1]) + self._serialize(value[0])

    @override
    def deserialize(self, data: bytes) -> Stamped:
        return self._deserialize(data[STAMP.size :]), _unpack(data)[0]

    @override
    def snapshot(self) -> SerializerSnapshot:
        """Return the snapshot of the values' serializer; the state's metadata mentions the TTL."""
        return self.inner.snapshot()


@attrs.frozen
class _StampedFunctions:
    """The user's reduce and fold functions, changed to work on values with timestamps.

    The timestamp of a result is the current time. By event time it is that of an argument if it is
    later, because rows may come out of order. Expired values are ignored, unless the visibility
    says that reads return them.
    """

    ttl: StateTtlConfig
    times: TtlTimes

    def visible(self, stamped: Stamped | None, now: int) -> bool:
        """Return whether a read would return `stamped` at `now`; false for None."""
        if stamped is None:
            return False
        return self.ttl.shows_expired or not has_expired(stamped[1], self.ttl.ttl_ms, now)

    def latest(self, *arguments: Stamped | None) -> int:
        """Return the latest of the current time and the timestamps of the arguments."""
        stamps = [argument[1] for argument in arguments if argument is not None]
        return max(self.times.writes.now_ms, *stamps)

    def reduce(
        self, function: Callable[[Any, Any], Any], a: Stamped | None, b: Stamped
    ) -> Stamped | None:
        """Return the reduction of `a` and `b`, or None if both have expired."""
        now = self.times.reads.now_ms
        stamp = self.latest(a, b) if self.times.by_event else now
        if not self.visible(a, now):
            return (b[0], stamp) if self.visible(b, now) else None
        assert a is not None
        return (function(a[0], b[0]) if self.visible(b, now) else a[0]), stamp

    def fold(
        self,
        function: Callable[[Any, Any], Any],
        create: Callable[[], Any],
        accumulator: Stamped,
        value: Any,
    ) -> Stamped:
        """Return the accumulator with `value` folded in. If it has expired, use a new one."""
        now = self.times.reads.now_ms
        old = accumulator[0] if self.visible(accumulator, now) else create()
        stamp = self.latest(accumulator) if self.times.by_event else now
        return function(old, value), stamp


@attrs.frozen
class _StampedAggregate(AggregateFunction[Any, Stamped, Stamped]):
    """The user's AggregateFunction, changed to work on accumulators and results with timestamps."""

    inner: AggregateFunction[Any, Any, Any]
    functions: _StampedFunctions

    @override
    def create_accumulator(self) -> Stamped:
        return self.inner.create_accumulator(), self.functions.times.writes.now_ms

    @override
    def add(self, value: Any, accumulator: Stamped) -> Stamped:
        functions = self.functions
        now = functions.times.reads.now_ms
        seen = functions.visible(accumulator, now)
        old = accumulator[0] if seen else self.inner.create_accumulator()
        stamp = functions.latest(accumulator) if functions.times.by_event else now
        return self.inner.add(value, old), stamp

    @override
    def get_result(self, accumulator: Stamped) -> Stamped:
        return self.inner.get_result(accumulator[0]), accumulator[1]

    @override
    def merge(self, a: Stamped | None, b: Stamped) -> Any:
        return self.functions.reduce(self.inner.merge, a, b)


def stamped_descriptor(descriptor: StateDescriptor, times: TtlTimes | None) -> StateDescriptor:
    """Return the descriptor for values with timestamps, or `descriptor` itself if it has no TTL."""
    if descriptor.ttl_config is None or times is None:
        return descriptor
    functions = _StampedFunctions(descriptor.ttl_config, times)
    serializer = descriptor.value_serializer()
    stored = copy(descriptor)
    setattr(stored, stored.value_field, TtlSerializer(serializer))
    if isinstance(stored, ReducingStateDescriptor):
        stored.reduce_function = partial(functions.reduce, stored.reduce_function)
    elif isinstance(stored, AggregatingStateDescriptor):
        stored.aggregate_function = _StampedAggregate(stored.aggregate_function, functions)
    elif isinstance(stored, FoldingStateDescriptor):
        create = partial(serializer.copy, stored.initial)
        stored.fold_function = partial(functions.fold, stored.fold_function, create)
        stored.initial = (stored.initial, _BEFORE_ALL)
    return stored


# ---------------------------------------------------------------- wrappers


class _TtlState(State):
    """The base class of the wrappers. The wrapped state ``raw`` contains values with timestamps."""

    def __init__(self, raw: Any, ttl: StateTtlConfig, times: TtlTimes) -> None:
        self._raw = raw
        self._ttl_ms = ttl.ttl_ms
        self._times = times
        self._reads, self._writes = times.reads, times.writes
        self._touch_on_read = ttl.update_type is UpdateType.ON_READ_AND_WRITE
        self._return_expired = ttl.shows_expired

    @override
    def set_current_namespace(self, namespace: Any) -> None:
        self._raw.set_current_namespace(namespace)

    @override
    def clear(self) -> None:
        self._raw.clear()

    def _expired(self, stamped: Stamped) -> bool:
        return has_expired(stamped[1], self._ttl_ms, self._reads.now_ms)

    def _visible_values(
        self,
        keys: ChosenKeys,
        stamped: list[Stamped | None],
        write: Callable[[ChosenKeys, list[Stamped | None]], None],
    ) -> list[Any]:
        """Return the values that a bulk read of `keys` returns.

        Clear the expired values. If reads renew timestamps, store the other values with new
        timestamps.

        Args:
            keys: the keys.
            stamped: for each key, the stored value with its timestamp, or None.
            write: a function that stores values with timestamps for some keys, or clears a key for
                None.
        """
        now = self._reads.now_ms
        limit = last_expired(self._ttl_ms, now)
        expired = [
            at
            for at, each in enumerate(stamped)
            if each is not None and each[1] <= limit and not lives_on(each[1], now)
        ]
        seen = [None if each is None else each[0] for each in stamped]
        if expired:
            write(keys.only(expired), [None] * len(expired))
        if self._touch_on_read:
            stamp, gone = self._writes.now_ms, set(expired)
            older = [
                at
                for at, each in enumerate(stamped)
                if each is not None and at not in gone and is_renewed(each[1], stamp)
            ]
            own = self._raw.read_many(keys)  # read again: the caller may modify the first objects
            write(keys.only(older), [(own[at][0], stamp) for at in older])
        if not self._return_expired:
            for at in expired:
                seen[at] = None
        return seen


class _TtlMergingState(_TtlState, MergingState[Any, Any]):
    """The base class of the wrappers of states whose namespaces can be merged."""

    @override
    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the values that reads would return. Elements of lists keep their timestamps."""
        self._raw.merge_namespaces(target, sources)


class TtlValueState(_TtlState, ValueState[Any]):
    """A value state whose value expires."""

    @override
    def value(self) -> Any:
        stamped = self._raw.value()
        if stamped is None:
            return None
        value = stamped[0]
        if self._expired(stamped):
            self._raw.clear()
            return value if self._return_expired else None
        if self._touch_on_read and is_renewed(stamped[1], now := self._writes.now_ms):
            self._raw.update((value, now))
        return value

    @override
    def update(self, value: Any, ttl: timedelta | None = None) -> None:
        stamp = self._writes.now_ms if ttl is None else self._times.own_expiry(ttl)
        self._raw.update(None if value is None else (value, stamp))

    @override
    def read_many(self, keys: ChosenKeys) -> list[Any]:
        stamped = self._raw.read_many(keys)
        return self._visible_values(keys, stamped, self._raw.write_many)

    @override
    def write_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        stamp = self._writes.now_ms
        stamped = [None if value is None else (value, stamp) for value in values]
        self._raw.write_many(keys, stamped)


class TtlListState(_TtlMergingState, ListState[Any]):
    """A list state whose elements expire separately."""

    @override
    def get(self) -> list[Any]:
        stored = self._raw.get()
        live = [stamped for stamped in stored if not self._expired(stamped)]
        if self._touch_on_read and live:
            now = self._writes.now_ms
            self._raw.update([(v, now if is_renewed(stamp, now) else stamp) for v, stamp in live])
        elif len(live) < len(stored):
            self._raw.update(live)
        seen = stored if self._return_expired else live
        return [value for value, _ in seen]

    @override
    def add(self, value: Any, ttl: timedelta | None = None) -> None:
        stamp = self._writes.now_ms if ttl is None else self._times.own_expiry(ttl)
        self._raw.add((value, stamp))

    @override
    def add_all(self, values: Iterable[Any], ttl: timedelta | None = None) -> None:
        self._raw.add_all(self._stamp_all(values, ttl))

    @override
    def update(self, values: Iterable[Any], ttl: timedelta | None = None) -> None:
        self._raw.update(self._stamp_all(values, ttl))

    def _stamp_all(self, values: Iterable[Any], ttl: timedelta | None) -> list[Stamped] | None:
        if values is None:
            return None
        check_elements("values", values)
        stamp = self._writes.now_ms if ttl is None else self._times.own_expiry(ttl)
        return [(value, stamp) for value in values]


class TtlMapState(_TtlState, MapState[Any, Any]):
    """A map state whose entries expire separately."""

    @override
    def get(self, key: Any, default: Any = None) -> Any:
        stamped = self._raw.get(key, _MISSING)
        if stamped is _MISSING:
            return default
        if self._expired(stamped):
            self._raw.remove(key)
            return stamped[0] if self._return_expired else default
        if self._touch_on_read and is_renewed(stamped[1], now := self._writes.now_ms):
            self._raw.put(key, (stamped[0], now))
        return stamped[0]

    @override
    def put(self, key: Any, value: Any, ttl: timedelta | None = None) -> None:
        stamp = self._writes.now_ms if ttl is None else self._times.own_expiry(ttl)
        self._raw.put(key, (value, stamp))

    @override
    def put_all(self, entries: Mapping[Any, Any], ttl: timedelta | None = None) -> None:
        stamp = self._writes.now_ms if ttl is None else self._times.own_expiry(ttl)
        stamped = entries
        if hasattr(entries, "items"):  # otherwise the raw state raises the error
            stamped = {key: (value, stamp) for key, value in entries.items()}
        self._raw.put_all(stamped)

    @override
    def remove(self, key: Any) -> None:
        self._raw.remove(key)

    @override
    def contains(self, key: Any) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    @override
    def items(self) -> Iterator[tuple[Any, Any]]:
        return self._visible(self._raw.walk())

    def _visible(self, walk: Any) -> Iterator[tuple[Any, Any]]:
        for key, stamped in walk:
            if self._expired(stamped):
                walk.remove(key)
                if not self._return_expired:
                    continue
            elif self._touch_on_read and is_renewed(stamped[1], now := self._writes.now_ms):
                walk.put(key, (stamped[0], now))
            yield key, stamped[0]

    @override
    def is_empty(self) -> bool:
        """Return whether reads would find no entry."""
        if self._return_expired:
            return bool(self._raw.is_empty())
        return all(self._expired(stamped) for _, stamped in self._raw.items())


class TtlSortedMapState(TtlMapState, SortedMapState[Any, Any]):
    """A sorted map state whose entries expire separately."""

    @override
    def range(
        self,
        start: Any = None,
        stop: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        walk = self._raw.walk_range(start, stop, reverse=reverse)
        return first_entries(self._visible(walk), limit)

    @override
    def remove_range(self, start: Any = None, stop: Any = None) -> None:
        self._raw.remove_range(start, stop)


class _TtlAppendingState(_TtlState, AppendingState[Any, Any]):
    """The base class of wrappers of states with an accumulator, which expires as a whole."""

    @override
    def get(self) -> Any:
        stamped = self._raw.get()
        if stamped is None:
            return None
        if self._expired(stamped):
            self._raw.clear()
            return stamped[0] if self._return_expired else None
        if self._touch_on_read and is_renewed(stamped[1], now := self._writes.now_ms):
            accumulator, _ = self._raw.get_internal()
            self._raw.update_internal((accumulator, now))
        return stamped[0]

    @override
    def add(self, value: Any) -> None:
        self._raw.add(value)

    @override
    def read_many(self, keys: ChosenKeys) -> list[Any]:
        if self._touch_on_read:
            return super().read_many(keys)
        return self._visible_values(keys, self._raw.read_many(keys), self._clear_each)

    def _clear_each(self, keys: ChosenKeys, _: list[Any]) -> None:
        for _key in keys:
            self._raw.clear()

    @override
    def append_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        self._raw.append_many(keys, values)


class TtlReducingState(_TtlAppendingState, _TtlMergingState, ReducingState[Any]):
    """A reducing state whose value expires."""

    @override
    def add(self, value: Any) -> None:
        self._raw.add((value, self._writes.now_ms))

    @override
    def append_many(self, keys: ChosenKeys, values: list[Any]) -> None:
        stamp = self._writes.now_ms
        self._raw.append_many(keys, [(value, stamp) for value in values])


class TtlAggregatingState(_TtlAppendingState, _TtlMergingState, AggregatingState[Any, Any]):
    """An aggregating state whose accumulator expires."""


class TtlFoldingState(_TtlAppendingState, FoldingState[Any, Any]):
    """A folding state whose accumulator expires."""


_WRAPPERS: dict[type, type[_TtlState]] = {
    ValueState: TtlValueState,
    ListState: TtlListState,
    SortedMapState: TtlSortedMapState,  # before MapState, its base class
    MapState: TtlMapState,
    ReducingState: TtlReducingState,
    AggregatingState: TtlAggregatingState,
    FoldingState: TtlFoldingState,
}


def wrap_with_ttl(state: State, ttl: StateTtlConfig, times: TtlTimes) -> State:
    """Wrap `state` in a state that applies the TTL. The values in `state` have timestamps."""
    wrapper = next(made for kind, made in _WRAPPERS.items() if isinstance(state, kind))
    return wrapper(state, ttl, times)
