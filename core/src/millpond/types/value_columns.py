"""Conversions of stored values to typed Arrow columns and back.

They need only the snapshot of the serializer, and no class of the user. A structured value is
stored as MessagePack of plain lists and maps, which the snapshot describes. Values of custom
serializers, pickles and most unions have no Arrow type, so their columns contain the stored bytes.

A column has two forms. The caller first tries the natural form. It raises UnfitError if an int has
more than 64 bits, or if naive and aware datetimes are in one column. Then the caller writes the
table again in the exact form, which has ints as decimal digits and datetimes as ISO strings.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from millpond.types.base import SerializerSnapshot
from millpond.types.nodes import custom_bytes, custom_plain, plain_entries, plain_mapping
from millpond.types.scalar_base import ColumnForm
from millpond.types.scalar_tables import SCALARS_BY_NAME

_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder().decode


def column_form(snapshot: SerializerSnapshot, *, exact: bool) -> ColumnForm:
    """Return the Arrow column for values that the serializer of `snapshot` has stored.

    If `exact` is true, return the exact form, else the natural form (see the module).
    """
    if snapshot.version == 1 and snapshot.id in SCALARS_BY_NAME:
        scalar = SCALARS_BY_NAME[snapshot.id]
        column = (exact and scalar.exact_column) or scalar.column
        return ColumnForm(
            column.arrow_type,
            lambda data: column.to_column(scalar.deserialize(data)),
            lambda value: scalar.serialize(scalar.check(column.from_column(value))),
        )
    if snapshot.version == 1 and snapshot.id == "structured":
        form = _plain_form(snapshot.payload, exact=exact)
        if form is not None:
            return ColumnForm(
                form.arrow_type,
                lambda data: form.to_column(_UNPACK(data)),
                lambda value: _PACK(form.from_column(value)),
            )
    return ColumnForm(pa.binary(), bytes, bytes)


def _plain_form(description: Any, *, exact: bool) -> ColumnForm | None:  # noqa: PLR0911 - by type
    """Return the column for plain MessagePack values, or None if the type has no Arrow type.

    `description` is the ``Node.description`` of the type.
    """
    if isinstance(description, str):
        return _scalar_form(description, exact=exact) if description in SCALARS_BY_NAME else None
    ((kind, parts),) = description.items()
    if kind in ("list", "set", "frozenset") or (kind == "tuple" and "..." in parts):
        return _list_form(_plain_form(parts[0], exact=exact), distinct=kind.endswith("set"))
    if kind == "dict":
        return _map_form(_plain_form(parts[0], exact=exact), _plain_form(parts[1], exact=exact))
    if kind == "tuple":
        named = {f"_{at + 1}": part for at, part in enumerate(parts)}
        return _struct_form(named, as_list=True, exact=exact)
    if kind in ("struct", "namedtuple"):
        return _struct_form(parts, as_list=kind == "namedtuple", exact=exact)
    if kind == "union":  # only X | None has an Arrow type
        given = [part for part in parts if part != "None"]
        inner = _plain_form(given[0], exact=exact) if len(given) == 1 else None
        return inner and nullable_form(inner)
    if kind == "enum":
        return _enum_form(parts)
    if kind == "flag":
        return _scalar_form("int", exact=exact)
    return ColumnForm(pa.binary(), custom_bytes, custom_plain) if kind == "custom" else None


def _scalar_form(name: str, *, exact: bool) -> ColumnForm:
    scalar = SCALARS_BY_NAME[name]
    column = (exact and scalar.exact_column) or scalar.column
    return ColumnForm(
        column.arrow_type,
        lambda plain: column.to_column(scalar.unpack(plain)),
        lambda value: scalar.pack(column.from_column(value)),
    )


def _list_form(element: ColumnForm | None, *, distinct: bool) -> ColumnForm | None:
    """Return the column of lists, or of sets if `distinct` is true."""
    if element is None:
        return None

    def from_column(value: Any) -> list[Any]:
        made = [element.from_column(item) for item in value]
        if distinct and len(set(map(repr, made))) < len(made):
            raise ValueError("an element of a set appears twice")
        return made

    return ColumnForm(
        pa.list_(element.arrow_type),
        lambda value: [element.to_column(item) for item in value],
        from_column,
    )


def _map_form(key: ColumnForm | None, item: ColumnForm | None) -> ColumnForm | None:
    """Return the column of dictionaries.

    The column contains lists of structs if Arrow's maps do not support the type of the keys.
    """
    if key is None or item is None:
        return None

    def to_column(value: Any) -> list[tuple[Any, Any]]:
        return [
            (key.to_column(name), item.to_column(entry)) for name, entry in plain_entries(value)
        ]

    def from_column(entries: list[tuple[Any, Any]]) -> Any:
        return plain_mapping(
            [(key.from_column(n), item.from_column(entry)) for n, entry in entries]
        )

    if not key.nullable and not pa.types.is_nested(key.arrow_type):
        return ColumnForm(pa.map_(key.arrow_type, item.arrow_type), to_column, from_column)
    return ColumnForm(
        pa.list_(pa.struct([("key", key.arrow_type), ("value", item.arrow_type)])),
        lambda value: [{"key": name, "value": entry} for name, entry in to_column(value)],
        lambda rows: from_column([(row["key"], row["value"]) for row in rows]),
    )


def _struct_form(parts: dict[str, Any], *, as_list: bool, exact: bool) -> ColumnForm | None:
    found = {name: _plain_form(part, exact=exact) for name, part in parts.items()}
    forms = {name: form for name, form in found.items() if form is not None}
    if len(forms) < len(parts) or not parts:
        return None

    def to_column(value: Any) -> dict[str, Any]:
        values = dict(zip(forms, value, strict=True)) if as_list else value
        return {name: form.to_column(values[name]) for name, form in forms.items()}

    def from_column(value: Any) -> Any:
        values = {name: form.from_column(value[name]) for name, form in forms.items()}
        return list(values.values()) if as_list else values

    arrow_type = pa.struct([(name, form.arrow_type) for name, form in forms.items()])
    return ColumnForm(arrow_type, to_column, from_column)


def _enum_form(members: dict[str, Any]) -> ColumnForm:
    names = {value: name for name, value in members.items()}

    def from_column(name: Any) -> Any:
        try:
            return members[name]
        except (KeyError, TypeError):
            raise ValueError(f"it names no member, expected one of {', '.join(members)}") from None

    return ColumnForm(pa.string(), names.__getitem__, from_column)


def nullable_form(inner: ColumnForm) -> ColumnForm:
    """Return a column that also accepts None, which it stores as null."""
    return ColumnForm(
        inner.arrow_type,
        lambda value: None if value is None else inner.to_column(value),
        lambda value: None if value is None else inner.from_column(value),
        nullable=True,
    )
