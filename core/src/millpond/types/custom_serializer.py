"""A wrapper that checks the results of serializers of users and plugins."""

from __future__ import annotations

from typing import Any, Self

import attrs
from typing_extensions import override

from millpond.errors import SerializerResultError, brief
from millpond.types.base import Compatibility, PicklePermission, SerializerSnapshot, TypeSerializer


class CustomSerializer(TypeSerializer[Any]):
    """A wrapper that checks the results of a user's or a plugin's serializer.

    A backend may store the returned bytes, hash them, or pass them to a C library. So the wrapper
    copies mutable bytes, and raises SerializerResultError if a result is of a wrong type.

    Args:
        given: the serializer.
        place: the name of the state, for errors; empty if unknown.
    """

    def __init__(self, given: TypeSerializer[Any], place: str = "") -> None:
        self._given = given
        self._place = place
        self._serialize, self._deserialize = given.serialize, given.deserialize
        self._check = given.check
        self.immutable = given.immutable
        self.trusted_type = given.trusted_type
        self.sized = given.sized
        self.type_name = given.type_name

    @classmethod
    def wrapping(cls, given: TypeSerializer[Any]) -> Self:
        """Return `given` in a wrapper, or `given` itself if it is a wrapper already."""
        return given if isinstance(given, cls) else cls(given)

    @override
    def __repr__(self) -> str:
        return repr(self._given)

    @override
    def check(self, value: Any) -> Any:
        return self._check(value)

    @override
    def serialize(self, value: Any) -> bytes:
        try:
            data = self._serialize(value)
        except SerializerResultError as error:  # from the serializer of a nested type
            error.place = error.place or self._place
            raise
        return data if type(data) is bytes else self._bytes("serialize", data)

    @override
    def deserialize(self, data: bytes) -> Any:
        return self._deserialize(data)

    @override
    def copy(self, value: Any) -> Any:
        if type(self._given).copy is TypeSerializer.copy:  # use the checks of this class
            return super().copy(value)
        return self._given.copy(value)

    @override
    def snapshot(self) -> SerializerSnapshot:
        try:
            described = self._given.snapshot()
        except ValueError as error:
            raise self._error(
                "snapshot", "a SerializerSnapshot", None, f"none ({error})"
            ) from error
        if not isinstance(described, SerializerSnapshot):
            raise self._error("snapshot", "a SerializerSnapshot", described)
        return described

    @override
    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        verdict = self._given.compatibility(old)
        if not isinstance(verdict, Compatibility):
            raise self._error("compatibility", "a Compatibility", verdict)
        migrate = verdict.migrate
        if migrate is None:
            return verdict
        return attrs.evolve(
            verdict, migrate=lambda data: self._bytes("compatibility's migrate", migrate(data))
        )

    @override
    def bind(self, permission: PicklePermission) -> CustomSerializer:
        return CustomSerializer(self._given.bind(permission), self._place)

    def _bytes(self, method: str, data: Any) -> bytes:
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise self._error(method, "bytes", data)

    def _error(
        self, method: str, expected: str, found: Any, shown: str = ""
    ) -> SerializerResultError:
        name = type(self._given).__name__
        return SerializerResultError(name, method, expected, shown or brief(found), self._place)
