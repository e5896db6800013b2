"""The serializer of structured types: containers, unions, enums, attrs classes, dataclasses.

The serializer converts a value to plain lists, maps and scalars, which msgspec encodes as
MessagePack. It refuses values that are not of the declared type instead of converting them, so
every stored value can be read back unchanged.
"""

from __future__ import annotations

from typing import Any, get_origin

import msgspec
from typing_extensions import override

from millpond.errors import ConfigError, StateTypeError, brief, shown
from millpond.types.base import (
    Compatibility,
    FindSerializer,
    Outcome,
    SerializerSnapshot,
    TypeSerializer,
    no_serializer,
)
from millpond.types.evolution import NotCompatibleError, is_same_description, plain_migration
from millpond.types.node_compiler import node_of
from millpond.types.scalar_tables import SCALARS_BY_NAME

_DECODE = msgspec.msgpack.Decoder().decode
_ENCODE = msgspec.msgpack.Encoder().encode


class StructuredSerializer(TypeSerializer[Any]):
    """The serializer of a structured type.

    Args:
        declared: the type.
        find: a function that returns a plugin's serializer for a type.
    """

    def __init__(self, declared: Any, find: FindSerializer = no_serializer) -> None:
        self._declared = declared
        self._find = find
        node = node_of(declared, find)
        self._pack, self._unpack, self._copy = node.pack, node.unpack, node.copy
        self._holds = node.holds
        self.type_name = getattr(declared, "__name__", None) or str(declared)
        if get_origin(declared) is not None:
            self.type_name = str(declared)
        try:
            self._snapshot = SerializerSnapshot("structured", payload=node.description)
        except ValueError as error:
            raise ConfigError(shown(self.type_name), str(error), place="type") from None
        self.immutable = node.copy is None
        self.sized = node.sized

    @override
    def check(self, value: Any) -> Any:
        if self._holds is not None and self._holds(value):
            return value
        try:
            return self._unpack(self._pack(value))
        except StateTypeError as error:
            if not error.place and error.value == brief(value):
                raise error from None
            reason = f"{error.place}: " if error.place else ""
            reason += f"expected {error.expected}, got {error.value}"
            reason += f": {error.reason}" if error.reason else ""
            raise StateTypeError(self.type_name, brief(value), reason=reason) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StateTypeError(self.type_name, brief(value), reason=reason) from error

    @override
    def serialize(self, value: Any) -> bytes:
        return _ENCODE(self._pack(value))

    @override
    def deserialize(self, data: bytes) -> Any:
        return self._unpack(_DECODE(data))

    @override
    def copy(self, value: Any) -> Any:
        return value if self._copy is None else self._copy(value)

    @override
    def snapshot(self) -> SerializerSnapshot:
        return self._snapshot

    @override
    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """Return whether values that were stored with the snapshot `old` can be read."""
        if old == self._snapshot and is_same_description(old.payload, self._snapshot.payload):
            return Compatibility(Outcome.AS_IS)
        scalar = SCALARS_BY_NAME.get(old.id)
        if old.version != 1 or (old.id != "structured" and scalar is None):
            return Compatibility.from_snapshots(old, self.snapshot())
        stored = old.payload if scalar is None else old.id
        try:
            transform = plain_migration(stored, self._declared, self._find)
        except NotCompatibleError as error:
            return Compatibility(Outcome.INCOMPATIBLE, field=error.field, reason=error.reason)
        if scalar is None and transform is None:
            return Compatibility(Outcome.RECONFIGURED)

        def migrate(data: bytes) -> bytes:
            plain = _DECODE(data) if scalar is None else scalar.pack(scalar.deserialize(data))
            made = plain if transform is None else transform(plain)
            return self.serialize(self._unpack(made))

        return Compatibility(Outcome.AFTER_MIGRATION, migrate)
