"""Pickle, for those who ask for it by name; never chosen by itself."""

from __future__ import annotations

import pickle
from typing import Any

from millpond.types.base import SerializerSnapshot, TypeSerializer

__all__ = ["PickleSerializer"]


class PickleSerializer(TypeSerializer[Any]):
    """Stores any picklable value.

    A pickle can run code when it is read, so restoring one must be allowed by the
    configuration key ``serialization.allow-pickle``. Pickled state cannot evolve and cannot be
    read by other tools.
    """

    type_name = "pickle"

    def check(self, value: Any) -> Any:
        """See the base class."""
        return self.copy(value)

    def serialize(self, value: Any) -> bytes:
        """See the base class."""
        return pickle.dumps(value)

    def deserialize(self, data: bytes) -> Any:
        """See the base class."""
        return pickle.loads(data)  # noqa: S301 - asked for by name, and allowed by configuration

    def snapshot(self) -> SerializerSnapshot:
        """See the base class."""
        return SerializerSnapshot("pickle")
