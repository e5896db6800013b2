"""Pickle, for those who ask for it by name; never chosen by itself."""

from __future__ import annotations

import pickle
from copy import copy
from typing import Any

from typing_extensions import override

from millpond.errors import ConfigError, StateTypeError, brief
from millpond.types.base import PicklePermission, SerializerSnapshot, TypeSerializer


class PickleSerializer(TypeSerializer[Any]):
    """Stores any picklable value.

    A pickle can run code when it is read, so only a serializer that was bound to a permission
    decodes: a backend binds it when the state is requested. Bytes that come from a snapshot, a
    savepoint or a local copy must be allowed by ``serialization.allow-pickle``. Pickled state
    cannot evolve and cannot be read by other tools.
    """

    type_name = "pickle"
    _permission: PicklePermission | None = None

    @override
    def bound(self, permission: PicklePermission) -> PickleSerializer:
        """A copy that has the permission, or none for want of it.

        Raises:
            ConfigError: there are bytes from outside, and configuration does not allow them.
        """
        _require(permission)
        bound = copy(self)
        bound._permission = permission  # noqa: SLF001 - a copy of this very class
        return bound

    @override
    def check(self, value: Any) -> Any:
        try:
            return self.copy(value)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StateTypeError("what pickle takes", brief(value), reason=reason) from error

    @override
    def copy(self, value: Any) -> Any:
        """A pickle that is made here and now is read without permission."""
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - made in the line itself

    @override
    def serialize(self, value: Any) -> bytes:
        return pickle.dumps(value)

    @override
    def deserialize(self, data: bytes) -> Any:
        """Decode what was pickled.

        Raises:
            ConfigError: configuration does not allow it; nothing was decoded.
        """
        _require(self._permission)
        return pickle.loads(data)  # noqa: S301 - asked for by name, and permitted

    @override
    def snapshot(self) -> SerializerSnapshot:
        return SerializerSnapshot("pickle")


def _require(permission: PicklePermission | None) -> None:
    if permission is None or not permission.given:
        reason = (
            "it was stored with pickle, which can run code when it is read; set it to true if you "
            "trust the snapshot"
        )
        raise ConfigError("serialization.allow-pickle", reason)
