"""The envelope of a value with TTL: the value and its timestamp."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import attrs
from typing_extensions import override

from millpond.clock import Clock
from millpond.state.descriptors import (
    AggregateFunction,
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from millpond.state.ttl.stamp import STAMP
from millpond.state.ttl.ttl_config import StateTtlConfig
from millpond.types import SerializerSnapshot, TypeSerializer

_pack, _unpack = STAMP.pack, STAMP.unpack_from

Stamped = tuple[Any, int]
"""A value and its timestamp in ms."""


class TtlSerializer(TypeSerializer[Stamped]):
    """Writes the timestamp before the bytes of the value: 8 bytes, big-endian."""

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
    def deserialize_many(self, rows: list[bytes]) -> list[Stamped]:
        stamps = [_unpack(data)[0] for data in rows]
        values = self.inner.deserialize_many([data[STAMP.size :] for data in rows])
        return list(zip(values, stamps, strict=True))

    @override
    def snapshot(self) -> SerializerSnapshot:
        """Return the inner serializer's snapshot; the state's metadata says that TTL is on."""
        return self.inner.snapshot()


@attrs.frozen
class _Time:
    ttl: StateTtlConfig
    clock: Clock

    def visible(self, stamped: Stamped | None, now: int) -> bool:
        """Return whether a read would return the value; None is no value."""
        if stamped is None:
            return False
        return self.ttl.shows_expired or not self.ttl.expired(stamped[1], now)


def _stamped_reduce(
    function: Callable[[Any, Any], Any], time: _Time
) -> Callable[[Stamped | None, Stamped], Stamped | None]:
    """Return a function that reduces two values to one, stamped now; None if both have expired."""

    def reduce(a: Stamped | None, b: Stamped) -> Stamped | None:
        now = time.clock.now_ms
        if a is None or not time.visible(a, now):
            return (b[0], now) if time.visible(b, now) else None
        return (function(a[0], b[0]) if time.visible(b, now) else a[0]), now

    return reduce


@attrs.frozen
class _StampedAggregate(AggregateFunction[Any, Stamped, Stamped]):
    """Keeps a timestamp with the accumulator and with the result."""

    inner: AggregateFunction[Any, Any, Any]
    time: _Time

    @override
    def create_accumulator(self) -> Stamped:
        return self.inner.create_accumulator(), self.time.clock.now_ms

    @override
    def add(self, value: Any, accumulator: Stamped) -> Stamped:
        now = self.time.clock.now_ms
        seen = self.time.visible(accumulator, now)
        old = accumulator[0] if seen else self.inner.create_accumulator()
        return self.inner.add(value, old), now

    @override
    def get_result(self, accumulator: Stamped) -> Stamped:
        return self.inner.get_result(accumulator[0]), accumulator[1]

    @override
    def merge(self, a: Stamped | None, b: Stamped) -> Any:
        return _stamped_reduce(self.inner.merge, self.time)(a, b)


def _stamped_fold(
    descriptor: FoldingStateDescriptor, serializer: TypeSerializer[Any], time: _Time
) -> Callable[[Stamped, Any], Stamped]:
    initial, function = descriptor.initial, descriptor.fold_function

    def fold(accumulator: Stamped, value: Any) -> Stamped:
        now = time.clock.now_ms
        seen = time.visible(accumulator, now)
        old = accumulator[0] if seen else serializer.copy(initial)
        return function(old, value), now

    return fold


def stamped_descriptor(descriptor: StateDescriptor, clock: Clock) -> StateDescriptor:
    """Return the descriptor as the backend stores it: values with TTL have timestamps."""
    if descriptor.ttl_config is None:
        return descriptor
    time = _Time(descriptor.ttl_config, clock)
    serializer = descriptor.value_serializer()
    stored = copy(descriptor)
    setattr(stored, stored.value_field, TtlSerializer(serializer))
    if isinstance(stored, ReducingStateDescriptor):
        stored.reduce_function = _stamped_reduce(stored.reduce_function, time)
    elif isinstance(stored, AggregatingStateDescriptor):
        stored.aggregate_function = _StampedAggregate(stored.aggregate_function, time)
    elif isinstance(stored, FoldingStateDescriptor):
        stored.fold_function = _stamped_fold(stored, serializer, time)
        stored.initial = (stored.initial, clock.now_ms)
    return stored
