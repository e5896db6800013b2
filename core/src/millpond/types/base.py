"""The base class of serializers, their descriptions in checkpoints, and the pickle permission."""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import TypeForm, TypeVar, override

from millpond.errors import ConfigError
from millpond.safe_decoding import exact_int, exact_text, parse_json

T = TypeVar("T", default=Any)

FindSerializer = Callable[[type], "TypeSerializer[Any] | None"]
"""A function that returns the plugins' serializer for a type, or None if no plugin has one."""


def no_serializer(declared: type) -> None:
    """Return None for any type: the ``FindSerializer`` of callers that have no plugins."""


@attrs.define
class PicklePermission:
    """The permission to decode pickled bytes. All serializers of a backend share one object.

    Attributes:
        configured: the value of ``serialization.allow-pickle``.
        outside: whether some bytes may come from outside this process, such as from a snapshot, a
            savepoint or a local copy of the state.
    """

    configured: bool
    outside: bool

    def require(self) -> None:
        """Raise ConfigError if bytes may come from outside and pickle is not allowed."""
        if self.outside and not self.configured:
            reason = (
                "it was stored with pickle, which can run code when it is read; set it to true if "
                "you trust the snapshot"
            )
            raise ConfigError("serialization.allow-pickle", reason)


NO_PICKLES = PicklePermission(configured=False, outside=True)
"""The permission of a serializer that was not bound to a backend's permission."""


@attrs.frozen
class SerializerSnapshot:
    """The description of a serializer in a checkpoint.

    After a restore, this description is compared with the serializer that the job declares.

    Attributes:
        id: the stable name of the serializer, for instance ``int`` or ``struct``.
        version: the version of the serializer's byte format.
        payload: further details of the byte format, as plain JSON values.

    Raises:
        ValueError: JSON cannot store ``version`` or ``payload`` unchanged, or ``payload`` is nested
            too deeply.
    """

    id: str
    version: int = 1
    payload: Any = None

    def __attrs_post_init__(self) -> None:
        exact_text(self.id, str)
        exact_int(self.version, int)
        if self.payload is None:
            return
        _check_depth(self.payload, 0)
        try:
            found = parse_json(json.dumps(self.payload))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the payload cannot be stored as JSON: {error}") from None
        if found != self.payload:
            raise ValueError("the payload changes when JSON stores it, as tuples and NaN do")

    @override
    def __str__(self) -> str:
        return self.id if self.payload is None else f"{self.id}({_terse(self.payload)})"


MAX_PAYLOAD_DEPTH = 80
"""The maximum depth of a payload: a type has at most 20 levels, each of at most 4 JSON levels."""


def _check_depth(payload: Any, depth: int) -> None:
    if depth > MAX_PAYLOAD_DEPTH:
        raise ValueError("a type is nested too deeply")
    if isinstance(payload, dict):
        payload = list(payload.values())
    if isinstance(payload, list):
        for part in payload:
            _check_depth(part, depth + 1)


def _terse(payload: Any) -> str:
    if isinstance(payload, dict):
        return ", ".join(f"{name}: {_terse(value)}" for name, value in payload.items())
    if isinstance(payload, list):
        return ", ".join(_terse(value) for value in payload)
    return str(payload)


class Outcome(enum.Enum):
    """The ways in which a new serializer can read stored values, as ``Compatibility`` describes."""

    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    RECONFIGURED = "reconfigured"
    INCOMPATIBLE = "incompatible"


@attrs.frozen
class Compatibility:
    """The result of comparing the stored type of a state with its declared serializer.

    Attributes:
        outcome: ``AS_IS`` if both have the same byte format; ``RECONFIGURED`` if their descriptions
            differ, but the serializer reads the stored bytes unchanged; ``AFTER_MIGRATION`` if
            Millpond must convert every stored value; ``INCOMPATIBLE`` if the stored values cannot
            be read.
        migrate: a function that converts the bytes of a stored value, for ``AFTER_MIGRATION``.
        field: the incompatible field of a structured type.
        reason: the reason for ``INCOMPATIBLE``.
    """

    outcome: Outcome
    migrate: Callable[[bytes], bytes] | None = None
    field: str = ""
    reason: str = ""

    @classmethod
    def from_snapshots(cls, old: SerializerSnapshot, new: SerializerSnapshot) -> Compatibility:
        """Return ``AS_IS`` if `old` and `new` are equal, else ``INCOMPATIBLE``."""
        if old == new:
            return cls(Outcome.AS_IS)
        return cls(Outcome.INCOMPATIBLE, reason="the types differ")


class TypeSerializer(ABC, Generic[T]):
    """The base class of serializers, which convert values of one type to bytes and back.

    Note for implementers: a stored value must not change when the caller modifies an object. So
    ``check`` and ``copy`` must return a value that shares no mutable part with their argument. If
    ``immutable`` is true, ``copy`` is never called. Values whose type is exactly ``trusted_type``
    may be stored without a call of ``check``.
    """

    immutable: bool = False
    """Whether all values are immutable, so that reads may return a stored value without a copy."""

    trusted_type: type | None = None
    """A type whose instances need no ``check``, or None. Instances of subclasses are checked."""

    sized: bool = True
    """Whether a value may take many bytes, so that the write buffer counts the size of each value.
    """

    type_name: str = "value"
    """The name of the type in error messages."""

    @abstractmethod
    def check(self, value: Any) -> T:
        """Return `value` in its canonical form, sharing no mutable part with `value`.

        Raises:
            StateTypeError: `value` is not of this type.
        """

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the bytes of `value`, which ``check`` has returned."""

    @abstractmethod
    def deserialize(self, data: bytes) -> T:
        """Return the value of `data`, which ``serialize`` has returned."""

    @abstractmethod
    def snapshot(self) -> SerializerSnapshot:
        """Return the description of this serializer that each checkpoint stores."""

    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """Return whether this serializer can read values that another serializer stored.

        By default the two must have equal snapshots. Override this method to let a custom type
        evolve: compare the version and payload of `old` with those of this serializer.

        Args:
            old: the snapshot of the serializer that stored the values.
        """
        return Compatibility.from_snapshots(old, self.snapshot())

    def bind(self, permission: PicklePermission) -> TypeSerializer[T]:
        """Return this serializer, or a copy that decodes pickles only if `permission` allows it.

        By default this method returns the serializer itself, because it decodes no pickles.
        Override this method in a serializer that uses another serializer, and bind the other
        serializer there.

        Raises:
            ConfigError: the serializer decodes pickles, and `permission` does not allow that.
        """
        return self

    def copy(self, value: T) -> T:
        """Return a copy of `value` that shares no mutable part with it."""
        return value if self.immutable else self.deserialize(self.serialize(value))


DeclaredType: TypeAlias = TypeForm[T] | TypeSerializer[T]
"""A declaration of the type of stored values: ``int``, ``list[int]``, ``X | None``, a class, or a
serializer. See ``docs/reference/types.md``."""
