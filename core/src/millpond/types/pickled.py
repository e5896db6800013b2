"""Pickle, for types that name it explicitly."""

from __future__ import annotations

import pickle
from copy import copy
from typing import Any

from typing_extensions import override

from millpond.errors import ConfigError, StateTypeError, brief
from millpond.types.base import PicklePermission, SerializerSnapshot, TypeSerializer


class PickleSerializer(TypeSerializer[Any]):
    """Stores any picklable value.

    A pickle can run code when it is decoded. So only a serializer with a permission decodes: the
    backend binds it when the state is requested. ``serialization.allow-pickle`` must allow bytes
    from a snapshot, a savepoint or a local copy. Pickled state cannot evolve, and other tools
    cannot read it.
    """

    type_name = "pickle"
    _permission: PicklePermission | None = None

    @override
    def bind(self, permission: PicklePermission) -> PickleSerializer:
        """Return a copy with the permission.

        Raises:
            ConfigError: there are bytes from outside, and configuration does not allow them.
        """
        _require(permission)
        bound = copy(self)
        bound._permission = permission  # noqa: SLF001 - a copy of this instance
        return bound

    @override
    def check(self, value: Any) -> Any:
        try:
            return self.copy(value)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise StateTypeError("a picklable value", brief(value), reason=reason) from error

    @override
    def copy(self, value: Any) -> Any:
        """Copy a value by pickling it; allowed, since the bytes come from this process."""
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - pickled in the same line

    @override
    def serialize(self, value: Any) -> bytes:
        return pickle.dumps(value)

    @override
    def deserialize(self, data: bytes) -> Any:
        """Decode pickled bytes.

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
