"""Serialized sizes of the keys and values of sampled calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millpond.state.descriptors import StateDescriptor, StateKind
from millpond.types import VOID_NAMESPACE

_RETURNS_VALUE = frozenset({"value", "get"})
_TAKES_VALUE = frozenset({"update", "add", "put", "add_all"})
_TAKES_MAP_KEY = frozenset({"get", "put", "remove", "contains"})
_TOUCHES_KEY = _RETURNS_VALUE | _TAKES_VALUE | _TAKES_MAP_KEY | {"is_empty"}
_ACCUMULATORS = frozenset({StateKind.AGGREGATING, StateKind.FOLDING})

Sizer = Callable[[tuple[Any, ...], Any], int | None]
"""Returns the bytes for a call's arguments and result; None if there is nothing to measure."""


class StateSizes:
    """Measures the keys and values of one state.

    The size of a key includes key, namespace and map key, encoded. The size of an accumulator is
    its stored size, with TTL's timestamp.
    """

    def __init__(self, backend: Any, descriptor: StateDescriptor) -> None:
        self._backend = backend
        self._name, self._kind = descriptor.name, descriptor.kind
        self._map_keys = descriptor.map_key_codec()
        self._serializer = descriptor.value_serializer()
        self._namespace: Any = VOID_NAMESPACE

    def following(self, method: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Return a ``set_current_namespace`` that also passes the namespace to this object."""

        def set_current_namespace(state: Any, namespace: Any) -> None:
            method(state, namespace)
            self._namespace = namespace

        return set_current_namespace

    def of_keys(self, operation: str) -> Sizer | None:
        """Return a function that measures the key of a call in bytes; None if it has none."""
        if operation not in _TOUCHES_KEY:
            return None
        if self._kind is StateKind.MAP and operation in _TAKES_MAP_KEY:
            return lambda arguments, _: self.key_bytes() + self.map_key_bytes(arguments[0])
        return lambda _, __: self.key_bytes()

    def of_values(self, operation: str) -> Sizer | None:
        """Return a function that measures the argument or result of a call in bytes, or None."""
        if self._kind in _ACCUMULATORS:
            touches = operation in ("get", "add")
            return (lambda _, __: self._stored_bytes()) if touches else None
        if operation in _RETURNS_VALUE:
            # A map's default is not a value of its type.
            return lambda arguments, result: (
                None if _is_one_of(result, arguments[1:]) else self.value_bytes(result)
            )
        if operation == "add":
            return lambda arguments, _: self._one(arguments[0])
        if operation in _TAKES_VALUE:
            return lambda arguments, _: self.value_bytes(arguments[-1])
        return None

    def key_bytes(self) -> int:
        """Return the encoded bytes of the current key and the namespace."""
        _, key = self._backend.current.encoded()
        codec = self._backend.states.known(self._name).namespace_codec
        return len(key) + len(codec.encode(codec.check(self._namespace)))

    def map_key_bytes(self, map_key: Any) -> int:
        """Return the encoded bytes of a map key."""
        assert self._map_keys is not None
        return len(self._map_keys.encode(self._map_keys.check(map_key)))

    def value_bytes(self, value: Any) -> int | None:
        """Return the serialized bytes of a value, or of the elements of a list state."""
        if value is None:
            return None
        if self._kind is not StateKind.LIST:
            return self._one(value)
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return sum(map(self._one, value))
        return None

    def _one(self, value: Any) -> int:
        return len(self._serializer.serialize(self._serializer.check(value)))

    def _stored_bytes(self) -> int | None:
        registered = self._backend.states.known(self._name)
        codec, table = registered.namespace_codec, self._backend.table_of(self._name)
        stored = table.get(table.prepare_namespace(codec.check(self._namespace)))
        return None if stored is None else len(registered.serializer.serialize(stored))


def _is_one_of(value: Any, others: tuple[Any, ...]) -> bool:
    return any(value is other for other in others)
