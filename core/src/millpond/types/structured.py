"""Structured types: containers, optional and union types, enums, attrs classes, dataclasses.

cattrs turns a value into plain lists, maps and scalars, msgspec's MessagePack turns those into
bytes. The converter is strict: a value of another type than declared is refused, not coerced,
so that nothing gets into state that cannot be read back.
"""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, get_args, get_origin, get_type_hints

import attrs
import cattrs
import msgspec
from cattrs import BaseConverter
from cattrs.strategies import configure_union_passthrough

from millpond.errors import StateTypeError, brief
from millpond.types.base import Compatibility, Outcome, SerializerSnapshot, TypeSerializer
from millpond.types.describe import describe, fields_of, is_union
from millpond.types.evolution import NotCompatibleError, plain_migration
from millpond.types.scalars import (
    EPOCH,
    NAIVE_EPOCH,
    SCALARS,
    int_from_bytes,
    int_to_bytes,
    micros_from_datetime,
    scalar_named,
)

__all__ = ["StructuredSerializer"]

_BIG_INT = 1
_INT64 = range(-(1 << 63), 1 << 63)


def _is_immutable(declared: Any) -> bool:
    if declared in SCALARS or declared in (None, type(None)):
        return True
    if is_union(declared) or get_origin(declared) in (tuple, frozenset):
        return all(part is ... or _is_immutable(part) for part in get_args(declared))
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return True
    if isinstance(declared, type) and hasattr(declared, "_fields"):
        return all(_is_immutable(part) for part in get_type_hints(declared).values())
    frozen = (
        attrs.has(declared) and declared.__setattr__ is not object.__setattr__
        if isinstance(declared, type) and attrs.has(declared)
        else dataclasses.is_dataclass(declared) and declared.__dataclass_params__.frozen  # type: ignore[union-attr]
    )
    return bool(frozen) and all(_is_immutable(kind) for _, kind, _ in fields_of(declared))


def _strict(declared: type) -> Callable[[Any, Any], Any]:
    check = SCALARS[declared].check

    def structure(value: Any, _: Any) -> Any:
        return check(value)

    return structure


def _pack_int(value: int) -> Any:
    if type(value) is int and value in _INT64:
        return value
    value = SCALARS[int].check(value)
    return value if value in _INT64 else msgspec.msgpack.Ext(_BIG_INT, int_to_bytes(value))


def _unpack_int(value: Any, _: Any) -> int:
    packed = isinstance(value, msgspec.msgpack.Ext)
    return int_from_bytes(bytes(value.data)) if packed else SCALARS[int].check(value)


def _pack_datetime(value: datetime) -> Any:
    value = SCALARS[datetime].check(value)
    micros = micros_from_datetime(value)
    return micros if value.tzinfo is not None else [micros]


def _unpack_datetime(value: Any, _: Any) -> datetime:
    if isinstance(value, (list, tuple)):
        return NAIVE_EPOCH + timedelta(microseconds=value[0])
    return EPOCH + timedelta(microseconds=value)


def _is_container(declared: Any) -> bool:
    return get_origin(declared) in {list, dict, tuple}


def _container_guard(declared: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    """Refuse what only looks like the container: a str is not a list[str]."""
    origin = get_origin(declared)
    accepted: Any = (list, tuple) if origin is list else origin
    inner = _packers(origin)(declared, converter)

    def unstructure(value: Any) -> Any:
        if not isinstance(value, accepted):
            raise StateTypeError(str(declared), brief(value))
        return inner(value)

    return unstructure


def _packers(origin: Any) -> Callable[[Any, BaseConverter], Callable[[Any], Any]]:
    return {list: _list_packer, dict: _dict_packer, tuple: _tuple_packer}[origin]


def _list_packer(declared: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    (element,) = get_args(declared)
    pack = converter.get_unstructure_hook(element)
    return lambda value: [pack(item) for item in value]


def _dict_packer(declared: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    pack_key, pack_value = map(converter.get_unstructure_hook, get_args(declared))
    return lambda value: {pack_key(key): pack_value(item) for key, item in value.items()}


def _tuple_packer(declared: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    parts = get_args(declared)
    if len(parts) == 2 and parts[1] is ...:  # noqa: PLR2004 - tuple[X, ...]
        return lambda value: [converter.unstructure(item, parts[0]) for item in value]

    def pack(value: Any) -> list[Any]:
        if len(value) != len(parts):
            raise StateTypeError(str(declared), brief(value), reason="wrong number of parts")
        return [converter.unstructure(item, part) for item, part in zip(value, parts, strict=True)]

    return pack


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(unstruct_collection_overrides={set: list, frozenset: list})
    configure_union_passthrough(int | float | str | bool | bytes | None, converter)
    for declared, serializer in SCALARS.items():
        converter.register_structure_hook(declared, _strict(declared))
        converter.register_unstructure_hook(declared, serializer.check)
    converter.register_unstructure_hook(int, _pack_int)
    converter.register_structure_hook(int, _unpack_int)
    converter.register_unstructure_hook(Decimal, lambda v: str(SCALARS[Decimal].check(v)))
    converter.register_structure_hook(Decimal, lambda v, _: Decimal(v))
    converter.register_unstructure_hook(datetime, _pack_datetime)
    converter.register_structure_hook(datetime, _unpack_datetime)
    converter.register_unstructure_hook(date, lambda v: SCALARS[date].check(v).toordinal())
    converter.register_structure_hook(date, lambda v, _: date.fromordinal(v))
    converter.register_unstructure_hook(uuid.UUID, lambda v: SCALARS[uuid.UUID].check(v).bytes)
    converter.register_structure_hook(uuid.UUID, lambda v, _: uuid.UUID(bytes=v))
    converter.register_unstructure_hook_factory(_is_container, _container_guard)
    return converter


_CONVERTER = _make_converter()
_DECODER = msgspec.msgpack.Decoder()
_ENCODE = msgspec.msgpack.Encoder().encode


def _copier(declared: Any) -> Callable[[Any], Any]:
    """A function that copies a checked value no deeper than its mutable parts go."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (list, set) and _is_immutable(arguments[0]):
        return lambda value: value.copy()
    if origin is dict and all(_is_immutable(part) for part in arguments):
        return dict.copy
    if origin is list:
        element = _copier(arguments[0])
        return lambda value: [element(item) for item in value]
    if origin is dict:
        entry = _copier(arguments[1])
        return lambda value: {key: entry(item) for key, item in value.items()}
    return lambda value: _CONVERTER.structure(_CONVERTER.unstructure(value, declared), declared)


class StructuredSerializer(TypeSerializer[Any]):
    """The serializer of any type that :func:`describe` accepts."""

    def __init__(self, declared: Any) -> None:
        self._declared = declared
        self._description = describe(declared)
        self.type_name = getattr(declared, "__name__", None) or str(declared)
        if get_origin(declared) is not None:
            self.type_name = str(declared)
        self.immutable = _is_immutable(declared)
        self._copy = _copier(declared)

    def check(self, value: Any) -> Any:
        """See the base class."""
        try:
            plain = _CONVERTER.unstructure(value, self._declared)
            return _CONVERTER.structure(plain, self._declared)
        except StateTypeError as error:
            raise StateTypeError(
                self.type_name, brief(value), reason=f"expected {error.expected}, got {error.value}"
            ) from None
        except Exception as error:
            raise StateTypeError(self.type_name, brief(value), reason=_reason(error)) from error

    def serialize(self, value: Any) -> bytes:
        """See the base class."""
        return _ENCODE(_CONVERTER.unstructure(value, self._declared))

    def deserialize(self, data: bytes) -> Any:
        """See the base class."""
        return _CONVERTER.structure(_DECODER.decode(data), self._declared)

    def copy(self, value: Any) -> Any:
        """See the base class."""
        return value if self.immutable else self._copy(value)

    def snapshot(self) -> SerializerSnapshot:
        """See the base class."""
        return SerializerSnapshot("structured", payload=self._description)

    def compatibility(self, old: SerializerSnapshot) -> Compatibility:
        """See the base class; a scalar may become an optional one, a class its successor."""
        if old == self.snapshot():
            return Compatibility(Outcome.AS_IS)
        scalar = scalar_named(old.id)
        if old.version != 1 or (old.id != "structured" and scalar is None):
            return Compatibility.of_snapshots(old, self.snapshot())
        stored = old.payload if scalar is None else old.id
        try:
            transform = plain_migration(stored, self._declared)
        except NotCompatibleError as error:
            return Compatibility(Outcome.INCOMPATIBLE, field=error.field, reason=error.reason)
        if scalar is None and transform is None:
            return Compatibility(Outcome.RECONFIGURED)

        def migrate(data: bytes) -> bytes:
            plain = _DECODER.decode(data) if scalar is None else _plain(scalar.deserialize(data))
            made = plain if transform is None else transform(plain)
            return self.serialize(_CONVERTER.structure(made, self._declared))

        return Compatibility(Outcome.AFTER_MIGRATION, migrate)

    def weight(self, value: Any) -> int:
        """See the base class."""
        return 64 + 64 * len(value) if hasattr(value, "__len__") else 256


def _plain(value: Any) -> Any:
    """A scalar as MessagePack holds it inside a structured value."""
    return _CONVERTER.unstructure(value, type(value))


def _reason(error: BaseException) -> str:
    if isinstance(error, cattrs.BaseValidationError):
        return "; ".join(cattrs.transform_error(error))
    return f"{type(error).__name__}: {error}"
