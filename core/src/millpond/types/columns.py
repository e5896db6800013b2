"""Stored values as typed Arrow columns, and back, from a serializer's snapshot alone.

No class of the user is needed: a structured value's bytes are MessagePack of plain lists and
maps, and the snapshot says what they mean. What has no column type (custom serializers, pickle,
unions) travels as the stored bytes.

A column is written in its natural form first. Where a value does not fit that (an int beyond 64
bits, naive and aware datetimes mixed), :class:`UnfitError` is raised and the caller writes the
table again in the exact form, in which ints are decimal digits and datetimes are ISO texts. A
timedelta is an int of microseconds, a time an ISO text.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pyarrow as pa

from millpond.errors import brief
from millpond.types.base import SerializerSnapshot
from millpond.types.exact_values import (
    datetime_from_micros,
    decimal_from_text,
    fits_int64,
    int_from_text,
    int_to_text,
    micros_from_datetime,
    micros_from_timedelta,
    time_from_text,
    timedelta_from_micros,
)
from millpond.types.node import (
    SCALAR_NODES,
    custom_bytes,
    custom_plain,
    entries_of,
    mapping_of,
)
from millpond.types.scalars import scalar_named

_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder().decode


class UnfitError(Exception):
    """A value does not fit the natural form of its column."""


@attrs.frozen
class ColumnForm:
    """How values of one serializer look in a table.

    Attributes:
        arrow_type: of the column.
        to_column: from stored bytes to what Arrow takes.
        from_column: from what Arrow gives to stored bytes; raises ValueError or TypeError
            where that is not a value of this type.
    """

    arrow_type: pa.DataType
    to_column: Callable[[bytes], Any]
    from_column: Callable[[Any], bytes]


@attrs.frozen
class _Leaf:
    """A part of a structured value: from plain MessagePack values to Arrow's, and back."""

    arrow_type: pa.DataType
    out: Callable[[Any], Any]
    back: Callable[[Any], Any]
    nullable: bool = False


def column_form(snapshot: SerializerSnapshot, *, exact: bool) -> ColumnForm:
    """The form of a serializer's values; raw bytes where no other form fits."""
    if snapshot.id in _NODES and snapshot.version == 1:
        return _scalar_form(snapshot.id, exact=exact)
    if snapshot.id == "structured" and snapshot.version == 1:
        leaf = _leaf(snapshot.payload, exact=exact)
        if leaf is not None:
            return ColumnForm(
                leaf.arrow_type,
                lambda data: leaf.out(_UNPACK(data)),
                lambda value: _PACK(leaf.back(value)),
            )
    return ColumnForm(pa.binary(), bytes, bytes)


def _same(value: Any) -> Any:
    return value


def _scalar_form(name: str, *, exact: bool) -> ColumnForm:
    serializer = scalar_named(name)
    assert serializer is not None
    kind, out, back = _scalar_columns(exact=exact)[name]

    def from_column(value: Any) -> bytes:
        return serializer.serialize(serializer.check(back(value)))

    return ColumnForm(kind, lambda data: out(serializer.deserialize(data)), from_column)


def _fit_int(value: int) -> int:
    if not fits_int64(value):
        raise UnfitError
    return value


def _fit_datetime(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise UnfitError
    return value


def _utc(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"expected a timestamp, got {brief(value)}")
    return datetime_from_micros(micros_from_datetime(value))


def _int(text: Any) -> int:
    return int_from_text(_plain_digits(text))


def _decimal(text: Any) -> Decimal:
    return decimal_from_text(_plain_digits(text))


def _plain_digits(text: Any) -> Any:
    """A number's text as Millpond writes it; Python takes more, such as ``1_0``."""
    if isinstance(text, str) and (not text.isascii() or "_" in text or text != text.strip()):
        raise ValueError(f"{brief(text)} is not a number: write ASCII digits, without _ or spaces")
    return text


def _scalar_columns(*, exact: bool) -> dict[str, tuple[pa.DataType, Any, Any]]:
    """Arrow's type, and both directions, by scalar type."""
    ints = (pa.string(), int_to_text, _int) if exact else (pa.int64(), _fit_int, _same)
    moments = (
        (pa.string(), datetime.isoformat, datetime.fromisoformat)
        if exact
        else (pa.timestamp("us", "UTC"), _fit_datetime, _utc)
    )
    kind, number_out, number_back = ints
    return {
        "int": ints,
        "timedelta": (
            kind,
            lambda value: number_out(micros_from_timedelta(value)),
            lambda value: timedelta_from_micros(number_back(value)),
        ),
        "time": (pa.string(), time.isoformat, time_from_text),
        "float": (pa.float64(), _same, _same),
        "bool": (pa.bool_(), _same, _same),
        "str": (pa.string(), _same, _same),
        "bytes": (pa.binary(), _same, _same),
        "Decimal": (pa.string(), str, _decimal),
        "datetime": moments,
        "date": (pa.date32(), _same, _same),
        "UUID": (pa.string(), str, uuid.UUID),
    }


_NODES = {node.description: node for node in SCALAR_NODES.values()}


def _leaf(description: Any, *, exact: bool) -> _Leaf | None:  # noqa: PLR0911 - a case a line
    """The form of a described type; None where it has no column type."""
    if isinstance(description, str):
        return _scalar_leaf(description, exact=exact) if description in _NODES else None
    ((kind, parts),) = description.items()
    if kind in ("list", "set", "frozenset"):
        return _list_leaf(_leaf(parts[0], exact=exact), distinct=kind != "list")
    if kind == "tuple":
        if len(parts) == 2 and parts[1] == "...":  # noqa: PLR2004 - tuple[X, ...]
            return _list_leaf(_leaf(parts[0], exact=exact))
        named = {f"_{at + 1}": part for at, part in enumerate(parts)}
        return _struct_leaf(named, as_list=True, exact=exact)
    if kind == "dict":
        return _map_leaf(_leaf(parts[0], exact=exact), _leaf(parts[1], exact=exact))
    if kind == "struct":
        return _struct_leaf(parts, as_list=False, exact=exact)
    if kind == "namedtuple":
        return _struct_leaf(parts, as_list=True, exact=exact)
    if kind == "union":
        return _union_leaf(parts, exact=exact)
    return _single_leaf(kind, parts, exact=exact)


def _single_leaf(kind: str, parts: Any, *, exact: bool) -> _Leaf | None:
    """The form of a type without parts that is not a scalar; a plugin's type is its bytes."""
    if kind == "enum":
        return _enum_leaf(parts)
    if kind == "flag":
        return _scalar_leaf("int", exact=exact)
    return _Leaf(pa.binary(), custom_bytes, custom_plain) if kind == "custom" else None


def _scalar_leaf(name: str, *, exact: bool) -> _Leaf:
    kind, out, back = _scalar_columns(exact=exact)[name]
    node = _NODES[name]
    return _Leaf(kind, lambda plain: out(node.unpack(plain)), lambda value: node.pack(back(value)))


def _list_leaf(element: _Leaf | None, *, distinct: bool = False) -> _Leaf | None:
    """A list; a set is one whose elements are all different."""
    if element is None:
        return None

    def back(value: Any) -> list[Any]:
        made = [element.back(item) for item in value]
        if distinct and len(set(map(repr, made))) < len(made):
            raise ValueError("an element of a set appears twice")
        return made

    return _Leaf(
        pa.list_(element.arrow_type), lambda value: [element.out(item) for item in value], back
    )


def _map_leaf(key: _Leaf | None, item: _Leaf | None) -> _Leaf | None:
    """A map; where keys may be null or have parts, a list of structs with ``key`` and ``value``."""
    if key is None or item is None:
        return None

    def out(value: Any) -> list[tuple[Any, Any]]:
        return [(key.out(name), item.out(entry)) for name, entry in entries_of(value)]

    def back(entries: list[tuple[Any, Any]]) -> Any:
        return mapping_of([(key.back(name), item.back(entry)) for name, entry in entries])

    if not key.nullable and not pa.types.is_nested(key.arrow_type):
        return _Leaf(pa.map_(key.arrow_type, item.arrow_type), out, back)
    return _Leaf(
        pa.list_(pa.struct([("key", key.arrow_type), ("value", item.arrow_type)])),
        lambda value: [{"key": name, "value": entry} for name, entry in out(value)],
        lambda rows: back([(row["key"], row["value"]) for row in rows]),
    )


def _struct_leaf(parts: dict[str, Any], *, as_list: bool, exact: bool) -> _Leaf | None:
    leaves = {name: _leaf(part, exact=exact) for name, part in parts.items()}
    known = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    if len(known) < len(parts) or not parts:
        return None

    def out(value: Any) -> dict[str, Any]:
        values = dict(zip(known, value, strict=True)) if as_list else value
        return {name: leaf.out(values[name]) for name, leaf in known.items()}

    def back(value: Any) -> Any:
        values = {name: leaf.back(value[name]) for name, leaf in known.items()}
        return list(values.values()) if as_list else values

    return _Leaf(pa.struct([(n, leaf.arrow_type) for n, leaf in known.items()]), out, back)


def _enum_leaf(members: dict[str, Any]) -> _Leaf:
    names = {value: name for name, value in members.items()}

    def back(name: Any) -> Any:
        try:
            return members[name]
        except (KeyError, TypeError):
            raise ValueError(f"it names no member, expected one of {', '.join(members)}") from None

    return _Leaf(pa.string(), names.__getitem__, back)


def _union_leaf(parts: list[Any], *, exact: bool) -> _Leaf | None:
    """``X | None`` is X with nulls; other unions have no column type."""
    given = [part for part in parts if part != "None"]
    inner = _leaf(given[0], exact=exact) if len(given) == 1 else None
    if inner is None:
        return None
    return _Leaf(
        inner.arrow_type,
        lambda value: None if value is None else inner.out(value),
        lambda value: None if value is None else inner.back(value),
        nullable=True,
    )
