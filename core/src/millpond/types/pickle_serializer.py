"""The serializer of pickled values, which decodes only with a ``PicklePermission``."""

from __future__ import annotations

import pickle
from copy import copy
from typing import Any

from typing_extensions import override

from millpond.errors import StateTypeError, brief
from millpond.types.base import NO_PICKLES, PicklePermission, SerializerSnapshot, TypeSerializer


class PickleSerializer(TypeSerializer[Any]):
    """The serializer of any picklable value.

    A pickle can run code when it is decoded. So this serializer decodes bytes only with a
    permission, which the backend binds to it when a function requests the state. If bytes come from
    a snapshot, a savepoint or a local copy of the state, ``serialization.allow-pickle`` must be
    true. Pickled state cannot evolve, and tools cannot read it.
    """

    type_name = "pickle"
    _permission: PicklePermission | None = None

    @override
    def bind(self, permission: PicklePermission) -> PickleSerializer:
        """Return a copy of this serializer with `permission`.

        Raises:
            ConfigError: some bytes come from outside, and the configuration does not allow pickle.
        """
        permission.require()
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
        """Return a copy of `value`. No permission is needed, as this process made the pickle."""
        return pickle.loads(pickle.dumps(value))  # noqa: S301 - pickled in the same line

    @override
    def serialize(self, value: Any) -> bytes:
        return pickle.dumps(value)

    @override
    def deserialize(self, data: bytes) -> Any:
        """Return the value of pickled bytes.

        Raises:
            ConfigError: the permission is missing. Nothing was decoded then.
        """
        (self._permission or NO_PICKLES).require()
        return pickle.loads(data)  # noqa: S301 - asked for by name, and permitted

    @override
    def snapshot(self) -> SerializerSnapshot:
        return SerializerSnapshot("pickle")
