"""The contract of a serializer, and its snapshot in a checkpoint."""

from __future__ import annotations

import enum
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias

import attrs
from typing_extensions import TypeForm, TypeVar, override

from millpond.safe_decoding import exact_int, exact_text, parse_json
from millpond.types.pickle_permission import PicklePermission

T = TypeVar("T", default=Any)

FindSerializer = Callable[[type], "TypeSerializer[Any] | None"]
"""Returns the serializer that a plugin of the job offers for a type, or None."""


def no_serializer(declared: type) -> None:
    """Return None: a ``FindSerializer`` for callers without plugins."""


@attrs.frozen
class SerializerSnapshot:
    """The description of a serializer in a checkpoint.

    After a restore it is compared with the serializer that the job declares.

    Attributes:
        id: the serializer's stable name, for instance ``int`` or ``struct``.
        version: the version of its byte format.
        payload: further details of the format, as plain JSON values.

    Raises:
        ValueError: JSON cannot store the version or the payload unchanged, or the payload is nested
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
"""The greatest depth of a payload: types have up to 20 levels, of up to 4 levels of JSON each."""


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
    """How stored values become readable by a new serializer; see ``Compatibility``."""

    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    RECONFIGURED = "reconfigured"
    INCOMPATIBLE = "incompatible"


@attrs.frozen
class Compatibility:
    """The comparison of a stored type with a declared serializer.

    Attributes:
        outcome: ``AS_IS``: the same format. ``RECONFIGURED``: another description, but stored bytes
            are read unchanged. ``AFTER_MIGRATION``: every stored value is rewritten.
        migrate: converts stored bytes, for AFTER_MIGRATION.
        field: the incompatible field of a structured type.
        reason: the reason for INCOMPATIBLE.
    """

    outcome: Outcome
    migrate: Callable[[bytes], bytes] | None = None
    field: str = ""
    reason: str = ""

    @classmethod
    def from_snapshots(cls, old: SerializerSnapshot, new: SerializerSnapshot) -> Compatibility:
        """Compare two snapshots: compatible only if they are equal."""
        if old == new:
            return cls(Outcome.AS_IS)
        return cls(Outcome.INCOMPATIBLE, reason="the types differ")


class TypeSerializer(ABC, Generic[T]):
    """Converts values of one type to bytes and back.

    Note for implementers: stored values must not change with the caller's objects. So the results
    of ``check`` and ``copy`` must share nothing mutable with their argument. If ``immutable`` is
    true, ``copy`` is never called, and values of exactly ``trusted_type`` may be stored without a
    check.
    """

    immutable: bool = False
    """Whether values can be returned without a copy."""

    trusted_type: type | None = None
    """Values of exactly this type need no check."""

    sized: bool = True
    """Whether a value may take many bytes: the write buffer then counts the size of each row."""

    type_name: str = "value"
    """The name of the type in error messages."""

    @abstractmethod
    def check(self, value: Any) -> T:
        """Return the value in its canonical form, isolated from the argument.

        Raises:
            StateTypeError: the value is not of this type.
        """

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the bytes of a value that ``check`` returned."""

    @abstractmethod
    def deserialize(self, data: bytes) -> T:
        """Return the value of bytes that ``serialize`` returned."""

    @abstractmethod
    def snapshot(self) -> SerializerSnapshot:
        """Return the description that each checkpoint stores."""

    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """Return whether stored values of another serializer can be read, and how to convert them.

        Override it to let a custom type evolve: compare versions and payloads.
        """
        return Compatibility.from_snapshots(old, self.snapshot())

    def bind(self, permission: PicklePermission) -> TypeSerializer[T]:
        """Return a serializer of the same values that decodes pickles only with ``permission``.

        By default it is this serializer, which decodes no pickles. Override it in a serializer that
        uses another one, and bind that one.

        Raises:
            ConfigError: the serializer decodes pickles, and the permission does not allow that.
        """
        return self

    def copy(self, value: T) -> T:
        """Return a copy that shares nothing mutable with the value."""
        return value if self.immutable else self.deserialize(self.serialize(value))


DeclaredType: TypeAlias = TypeForm[T] | TypeSerializer[T]
"""A declaration of the type of stored values: ``int``, ``list[int]``, ``X | None``, a class, or a
serializer. See ``docs/reference/types.md``."""
