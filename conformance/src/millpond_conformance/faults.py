"""Serializers that fail on demand, for clauses about failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import millpond as mp
from millpond.types import SerializerSnapshot, TypeSerializer
from typing_extensions import override


class InjectedError(Exception):
    """The error that a `Fault` raises."""


class Fault:
    """A fault that lets one call fail: the n-th call after the fault was armed."""

    def __init__(self) -> None:
        self._left = 0

    @contextmanager
    def armed(self, call: int = 1) -> Iterator[Fault]:
        """Let the call with this number, counted from 1, fail within the block."""
        self._left = call
        try:
            yield self
        finally:
            self._left = 0

    def pass_or_fail(self) -> None:
        """Count a call, and raise InjectedError if this call is to fail."""
        self._left -= 1
        if self._left == 0:
            raise InjectedError("the injected fault")


class FaultySerializer(TypeSerializer[Any]):
    """A serializer of a plain type whose calls of `serialize` may fail by a `Fault`."""

    sized = False  # a mutable type, so that stores serialize values only in a flush

    def __init__(self, plain: Any, fault: Fault) -> None:
        inner = mp.ValueStateDescriptor("any", plain).value_serializer()
        self._inner, self._fault = inner, fault
        self.immutable = inner.immutable
        self.type_name = inner.type_name

    @override
    def check(self, value: Any) -> Any:
        return self._inner.check(value)

    @override
    def copy(self, value: Any) -> Any:
        return self._inner.copy(value)

    @override
    def serialize(self, value: Any) -> bytes:
        self._fault.pass_or_fail()
        return self._inner.serialize(value)

    @override
    def deserialize(self, data: bytes) -> Any:
        return self._inner.deserialize(data)

    @override
    def snapshot(self) -> SerializerSnapshot:
        """Return the description of the plain type, so that a restored state can be declared so."""
        return self._inner.snapshot()
