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
    """A counter of calls that lets one of them fail: the n-th call in a block of `armed`."""

    def __init__(self) -> None:
        self._left = 0

    @contextmanager
    def armed(self, call: int = 1) -> Iterator[Fault]:
        """In the ``with`` block, let the call number `call` fail. The first call has number 1."""
        self._left = call
        try:
            yield self
        finally:
            self._left = 0

    def pass_or_fail(self) -> None:
        """Count a call; raise InjectedError if it has the number that was given to `armed`."""
        self._left -= 1
        if self._left == 0:
            raise InjectedError("the injected fault")


class FaultySerializer(TypeSerializer[Any]):
    """A serializer whose method `serialize` calls `Fault.pass_or_fail` first."""

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
        """Return the snapshot of the wrapped serializer.

        Therefore a restored state can be declared with the plain type.
        """
        return self._inner.snapshot()
