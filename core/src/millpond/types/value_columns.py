"""Conversions of stored values to typed Arrow columns and back.

They need only the snapshot of the serializer, and no class of the user. A structured value is
stored as MessagePack of plain lists and maps, which the snapshot describes. Values of custom
serializers, pickles and most unions have no Arrow type, so their columns contain the stored bytes.

A column has two forms. The caller first tries the natural form. It raises UnfitError if an int has
more than 64 bits, or if naive and aware datetimes are in one column. Then the caller writes the
table again in the exact form, which has ints as decimal digits and datetimes as ISO strings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from millpond.types.base import SerializerSnapshot
from millpond.types.class_fields import may_be_missing
from millpond.types.enums import literal_text
from millpond.types.nodes import custom_bytes, custom_plain, plain_entries, plain_mapping
from millpond.types.recursion import class_of, recursive_parts
from millpond.types.scalar_base import ColumnForm, unchanged
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
        deserialize, serialize, check = scalar.deserialize, scalar.serialize, scalar.check
        to_column, from_column = column.to_column, column.from_column
        return ColumnForm(
            column.arrow_type,
            deserialize if to_column is unchanged else lambda data: to_column(deserialize(data)),
            lambda value: serialize(check(from_column(value))),
        )
    if snapshot.version == 1 and snapshot.id == "structured":
        described, classes = recursive_parts(snapshot.payload)
        form = _plain_form(described, classes, exact=exact)
        if form is not None:
            return ColumnForm(
                form.arrow_type,
                lambda data: form.to_column(_UNPACK(data)),
                lambda value: _PACK(form.from_column(value)),
            )
    return ColumnForm(pa.binary(), bytes, bytes)


def _plain_form(  # noqa: PLR0911 - by type
    description: Any, classes: list[Any], *, exact: bool
) -> ColumnForm | None:
    """Return the column for plain MessagePack values, or None if the type has no Arrow type.

    Arrow's types cannot contain themselves. So a recursive class has a typed column, in which the
    instances of recursive classes are MessagePack.

    Args:
        description: the ``Node.description`` of the type.
        classes: the recursive classes in it; empty within a recursive class.
        exact: whether to return the exact form (see the module).
    """
    if isinstance(description, str):
        return _scalar_form(description, exact=exact) if description in SCALARS_BY_NAME else None
    ((kind, parts),) = description.items()
    if kind == "self":
        outermost = bool(classes)
        inner = _plain_form(class_of(description, classes), [], exact=exact) if outermost else None
        return inner if outermost else ColumnForm(pa.binary(), _PACK, _unpacked)
    forms = partial(_plain_form, classes=classes, exact=exact)
    if kind in ("list", "set", "frozenset") or (kind == "tuple" and "..." in parts):
        return _list_form(forms(parts[0]), distinct=kind.endswith("set"))
    if kind == "dict":
        return _map_form(forms(parts[0]), forms(parts[1]))
    if kind == "tuple":
        named = {f"_{at + 1}": forms(part) for at, part in enumerate(parts)}
        return _struct_form(named, as_list=True)
    if kind in ("struct", "namedtuple"):
        return _class_form(parts, forms, as_list=kind == "namedtuple")
    if kind == "union":  # only X | None has an Arrow type
        given = [part for part in parts if part != "None"]
        inner = forms(given[0]) if len(given) == 1 else None
        return inner and nullable_form(inner)
    if kind == "literal":
        return _literal_form(forms(parts[0]), parts[1])
    if kind == "flag":
        return _scalar_form("int", exact=exact)
    custom = ColumnForm(pa.binary(), custom_bytes, custom_plain)
    return _enum_form(parts) if kind == "enum" else custom if kind == "custom" else None


def _unpacked(data: Any) -> Any:
    """Return the plain value of MessagePack; raise ValueError if `data` is none."""
    try:
        return _UNPACK(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no MessagePack: {error}") from None


def _class_form(
    parts: dict[str, Any], forms: Callable[[Any], ColumnForm | None], *, as_list: bool
) -> ColumnForm | None:
    """Return the column of a class, given the descriptions of its fields."""
    missing = {name for name, part in parts.items() if may_be_missing(part)}
    found = {
        name: _held_form(forms(part["not_required"])) if name in missing else forms(part)
        for name, part in parts.items()
    }
    return _struct_form(found, as_list=as_list, missing=missing)


def _held_form(inner: ColumnForm | None) -> ColumnForm | None:
    """Return the column of a key that may be missing in a TypedDict; null is a missing key.

    If None is a value of the key, the column contains structs with the field ``value``.
    """
    if inner is None or not inner.nullable:
        return inner
    return ColumnForm(
        pa.struct([("value", inner.arrow_type)]),
        lambda value: {"value": inner.to_column(value)},
        lambda row: inner.from_column(row["value"]),
    )


def _literal_form(base: ColumnForm | None, values: list[Any]) -> ColumnForm | None:
    """Return the column of a literal, given the column of the type of its values."""
    if base is None:
        return None

    def from_column(value: Any) -> Any:
        plain = base.from_column(value)
        if literal_text(plain) not in values:
            raise ValueError(f"expected one of {', '.join(map(repr, values))}")
        return plain

    return ColumnForm(base.arrow_type, base.to_column, from_column)


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


def _struct_form(
    found: dict[str, ColumnForm | None], *, as_list: bool, missing: Collection[str] = ()
) -> ColumnForm | None:
    """Return the column of structs, or None if a field has no Arrow type.

    Args:
        found: the column of each field, by name.
        as_list: whether plain values are lists instead of dictionaries.
        missing: the names of the fields that may be missing in a plain value.
    """
    forms = {name: form for name, form in found.items() if form is not None}
    if len(forms) < len(found) or not found:
        return None

    def to_column(value: Any) -> dict[str, Any]:
        values = dict(zip(forms, value, strict=True)) if as_list else value
        return {
            name: None if name in missing and name not in values else form.to_column(values[name])
            for name, form in forms.items()
        }

    def from_column(value: Any) -> Any:
        values = {
            name: form.from_column(value[name])
            for name, form in forms.items()
            if name not in missing or value[name] is not None
        }
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
