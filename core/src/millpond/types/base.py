"""The contract of a serializer and the snapshot that describes it in a checkpoint."""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import TypeForm, TypeVar, override

from millpond.safe_decoding import exact_int, exact_text, parse_json

T = TypeVar("T", default=Any)

FindSerializer = Callable[[type], "TypeSerializer[Any] | None"]
"""Gives the serializer that a plugin provides for a type; a registry of plugins has one."""


def no_serializer(declared: type) -> None:
    """A search for a type's serializer that asks no plugin and finds nothing."""


@attrs.frozen
class SerializerSnapshot:
    """What a checkpoint remembers of a serializer: enough to judge whether another fits.

    Attributes:
        id: the serializer's stable name, for instance ``int`` or ``struct``.
        version: the version of its byte format.
        payload: what else identifies the format, as plain JSON values.

    Raises:
        ValueError: a checkpoint would not give it back as it is: the version has more than 64 bits,
            or the payload contains other values than JSON's, or nests too deeply.
    """

    id: str
    version: int = 1
    payload: Any = None

    def __attrs_post_init__(self) -> None:
        exact_text(self.id, str)
        exact_int(self.version, int)
        if self.payload is not None:
            check_payload(self.payload)

    @override
    def __str__(self) -> str:
        return self.id if self.payload is None else f"{self.id}({_terse(self.payload)})"


MAX_PAYLOAD_DEPTH = 80
"""Deeper payloads are refused: types nest 20 deep, and a level of a type takes up to 4."""


def check_payload(payload: Any) -> None:
    """Raise ValueError if a payload is not the same after a checkpoint has stored it as JSON."""
    _check_depth(payload, 0)
    try:
        found = parse_json(json.dumps(payload))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the payload cannot be stored as JSON: {error}") from None
    if found != payload:
        raise ValueError("the payload changes when it is stored as JSON, as tuples and NaN do")


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
    """What becomes of stored values under a new serializer."""

    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    RECONFIGURED = "reconfigured"
    INCOMPATIBLE = "incompatible"


@attrs.frozen
class Compatibility:
    """The verdict on a stored state and a declared serializer.

    Attributes:
        outcome: ``AS_IS``: the same format. ``RECONFIGURED``: another description whose stored
            bytes are read as they are. ``AFTER_MIGRATION``: every stored value is rewritten.
        migrate: from stored to new bytes, for AFTER_MIGRATION.
        field: the field that is the reason, of an incompatible structured type.
        reason: why it is incompatible.
    """

    outcome: Outcome
    migrate: Callable[[bytes], bytes] | None = None
    field: str = ""
    reason: str = ""

    @classmethod
    def from_snapshots(cls, old: SerializerSnapshot, new: SerializerSnapshot) -> Compatibility:
        """The verdict where nothing but equality is known."""
        if old == new:
            return cls(Outcome.AS_IS)
        return cls(Outcome.INCOMPATIBLE, reason="the types differ")


@attrs.define
class PicklePermission:
    """Whether pickled bytes may be decoded; those who decode share it with their backend.

    Attributes:
        configured: ``serialization.allow-pickle``.
        outside: whether some bytes may come from outside of this process: those of a
            snapshot, a savepoint or a local copy.
    """

    configured: bool
    outside: bool

    @property
    def given(self) -> bool:
        """Whether decoding is allowed now."""
        return self.configured or not self.outside


class TypeSerializer(ABC, Generic[T]):
    """Turns values of one type into bytes and back.

    Note for implementers: ``check`` and ``copy`` carry the isolation rule. What ``check``
    returns must share nothing mutable with its argument, and so must what ``copy`` returns;
    where ``immutable`` is true, ``copy`` is never called, and values of exactly
    ``trusted_type`` may be stored as they are.
    """

    immutable: bool = False
    """Whether values can be handed out without a copy."""

    trusted_type: type | None = None
    """Values of exactly this type need no check."""

    sized: bool = True
    """Whether a value may take many bytes: the write buffer then counts the size of its row."""

    type_name: str = "value"
    """How error messages call the type."""

    @abstractmethod
    def check(self, value: Any) -> T:
        """Return the value in its canonical form, isolated from the argument.

        Raises:
            StateTypeError: the value is not of this type.
        """

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """The bytes of a value that ``check`` has returned."""

    @abstractmethod
    def deserialize(self, data: bytes) -> T:
        """The value of bytes that ``serialize`` has written."""

    def serialize_many(self, values: list[T]) -> list[bytes]:
        """``serialize`` for each of many values."""
        return list(map(self.serialize, values))

    def deserialize_many(self, rows: list[bytes]) -> list[T]:
        """``deserialize`` for each of many values."""
        return list(map(self.deserialize, rows))

    @abstractmethod
    def snapshot(self) -> SerializerSnapshot:
        """The description that goes into every checkpoint."""

    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """Whether values that another serializer stored can be read, and how they are converted.

        Override it to let a custom type evolve: compare versions and payloads.
        """
        return Compatibility.from_snapshots(old, self.snapshot())

    def bound(self, permission: PicklePermission) -> TypeSerializer[T]:
        """This serializer as one backend uses it; a wrapper binds what it wraps.

        Raises:
            ConfigError: it decodes pickles, and that is not allowed.
        """
        return self

    def copy(self, value: T) -> T:
        """A value that shares nothing mutable with the given one."""
        return value if self.immutable else self.deserialize(self.serialize(value))


DeclaredType: TypeAlias = TypeForm[T] | TypeSerializer[T]
"""How users declare the type of what is stored: ``int``, ``list[int]``, ``X | None``, a class, or
a serializer. ``docs/reference/types.md`` has them all."""
