"""Schema evolution: reading values and keys that were stored under another type.

A migration converts plain MessagePack values, so the class that stored the values is not needed.
The four outcomes of a comparison are Flink's.

The rules for keys are stricter than for values. A stored key is found by its bytes, and its key
group is a hash of the key. So a migration of keys must not need the class, must not turn two keys
into one, and must not change a key's group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_args

from millpond.types.base import FindSerializer, Outcome, SerializerSnapshot, no_serializer
from millpond.types.class_fields import (
    may_be_missing,
    missing_keys,
    optional_fields,
    renames_of,
    typed_fields,
)
from millpond.types.classes import packed_field
from millpond.types.declared_types import is_union, plain_type
from millpond.types.enums import literal_text, stored_members
from millpond.types.key_codecs import (
    KeyCodec,
    NullableKeyCodec,
    SerializedKeyCodec,
    TupleKeyCodec,
)
from millpond.types.key_columns import codec_from_snapshot, snapshot_from_nested
from millpond.types.node_compiler import node_of
from millpond.types.nodes import Node, custom_bytes, custom_plain, plain_entries, plain_mapping
from millpond.types.number_types import unpack_int
from millpond.types.recursion import class_of, recursive_parts
from millpond.types.scalar_base import ScalarKeyCodec
from millpond.types.scalar_tables import SCALARS_BY_NAME

Transform = Callable[[Any], Any]


class NotCompatibleError(Exception):
    """A stored type that cannot become the declared type; ``field`` is the path of the cause."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


# ---------------------------------------------------------------- values


def plain_migration(
    old: Any, declared: Any, find: FindSerializer = no_serializer
) -> Transform | None:
    """Return a function that converts stored plain values to the declared type.

    Args:
        old: the stored type, described as in ``Node.description``.
        declared: the declared type.
        find: a function that returns a plugin's serializer for a type.

    Returns:
        The function, or None if the plain values remain unchanged.

    Raises:
        NotCompatibleError: the stored values cannot be converted safely.
    """
    try:
        stored, classes = recursive_parts(old)
        return _Evolution(find, classes).migration(stored, declared, "")
    except ValueError as error:  # the description is damaged
        raise NotCompatibleError("", str(error)) from None


class _Migration:
    """The migration of a class, which values of the class need for the instances within them.

    Attributes:
        made: the migration; None if nothing changes, or if the comparison is not complete yet.
    """

    def __init__(self) -> None:
        self.made: Transform | None = None

    def apply(self, plain: Any) -> Any:
        """Return a migrated plain value."""
        return plain if self.made is None else self.made(plain)


class _Evolution:
    """The comparison of a stored type with a declared type, including all nested types.

    Args:
        find: a function that returns a plugin's serializer for a type.
        classes: the stored recursive classes.
    """

    def __init__(self, find: FindSerializer, classes: list[Any]) -> None:
        self._find = find
        self._classes = classes
        self._migrations: dict[tuple[int, type], _Migration] = {}
        # With this cache, a union of 14 classes that contain each other takes 2 s instead of 11.
        self._nodes: dict[type, Node] = {}

    def _node(self, declared: Any) -> Node:
        if not isinstance(declared, type):
            return node_of(declared, self._find)
        if declared not in self._nodes:
            self._nodes[declared] = node_of(declared, self._find)
        return self._nodes[declared]

    def _is_unchanged(self, old: Any, declared: Any) -> bool:
        new, classes = recursive_parts(self._node(declared).description)
        return _is_same(old, self._classes, new, classes, set())

    def migration(self, old: Any, declared: Any, path: str) -> Transform | None:
        """Return the function that converts plain values of type `old`, or None if nothing changes.

        `path` is the path of this nested type in the whole type, for errors.
        """
        declared = plain_type(declared)
        if self._is_unchanged(old, declared):
            return None
        old = class_of(old, self._classes)
        new = class_of(*recursive_parts(self._node(declared).description))
        is_class = isinstance(old, dict) and not {"struct", "namedtuple"}.isdisjoint(old)
        if not isinstance(declared, type) or not is_class:
            return self._changed(old, new, declared, path)
        known = self._migrations.get((id(old), declared))
        if known is not None:
            return known.apply
        known = self._migrations[id(old), declared] = _Migration()
        known.made = self._changed(old, new, declared, path)
        return known.made

    def _changed(self, old: Any, new: Any, declared: Any, path: str) -> Transform | None:
        """Return the migration of a changed type.

        Args:
            old: the description of the stored type.
            new: the description of the declared type.
            declared: the declared type.
            path: the path of this nested type in the whole type, for errors.
        """
        if is_union(declared):
            return self._union(old, declared, path)
        if isinstance(old, dict) and "literal" in old:
            base, values = old["literal"]
            return self._from_literal(base, values, new, declared, path)
        if old == "int" and isinstance(new, str):
            scalar = SCALARS_BY_NAME.get(new)
            if scalar is not None and (widen := scalar.from_int) is not None:
                return lambda plain: scalar.pack(widen(unpack_int(plain)))
        if isinstance(old, dict) and isinstance(new, dict):
            ((kind, parts),) = old.items()
            if kind in new:
                return self._composite(kind, parts, declared, path)
        raise NotCompatibleError(path, f"{_word(old)} cannot become {_word(new)}")

    def _from_literal(
        self, base: Any, values: list[Any], new: Any, declared: Any, path: str
    ) -> Transform | None:
        """Return the migration of a literal to its type or to a literal with more values.

        Args:
            base: the description of the type of the stored literal's values.
            values: the stored literal's values.
            new: the description of the declared type.
            declared: the declared type.
            path: the path of this nested type in the whole type, for errors.
        """
        if "literal" not in new:
            return self.migration(base, declared, path)
        change = self.migration(base, type(get_args(declared)[0]), path)
        kept = [value if change is None else literal_text(change(value)) for value in values]
        lost = [value for value in kept if value not in new["literal"][1]]
        if lost:
            raise NotCompatibleError(path, f"the literal has lost {', '.join(map(repr, lost))}")
        return change

    def _union(self, old: Any, declared: Any, path: str) -> Transform | None:
        """Return the migration to a union, which may get new members or change a member."""
        members = list(get_args(declared))
        olds = old["union"] if isinstance(old, dict) and "union" in old else [old]
        changed = [part for part in olds if not any(self._reads(part, kind) for kind in members)]
        if not changed:
            return None
        given = [member for member in members if member is not type(None)]
        if len(given) == 1 and len([part for part in olds if part != "None"]) == 1:
            inner = self.migration(changed[0], given[0], path)
            return None if inner is None else lambda value: None if value is None else inner(value)
        reason = f"{_word(changed[0])} is not part of {declared}: only X in X | None can change"
        raise NotCompatibleError(path, reason)

    def _reads(self, old: Any, member: Any) -> bool:
        """Return whether a member of a union reads the plain values of type `old` unchanged."""
        if self._is_unchanged(old, member):
            return True
        if not isinstance(old, dict) or "literal" not in old:
            return False
        try:
            return self.migration(old, member, "") is None
        except NotCompatibleError:
            return False

    def _composite(self, kind: str, parts: Any, declared: Any, path: str) -> Transform | None:
        """Return the migration if the stored and the declared type are of the same kind.

        Args:
            kind: the only key of the stored type's description, such as ``struct`` or ``list``.
            parts: the value under that key, which describes the nested types.
            declared: the declared type.
            path: the path of this type in the whole type, for errors.
        """
        if kind in ("struct", "namedtuple"):
            return self._fields(parts, declared, path, named=kind == "struct")
        if kind == "enum":
            lost = [name for name in parts if name not in declared.__members__]
            if lost:
                raise NotCompatibleError(path, f"the enum has lost {', '.join(lost)}")
            stored = stored_members(declared)
            moved = {value: stored[declared[name].name] for name, value in parts.items()}
            return None if all(old == new for old, new in moved.items()) else moved.__getitem__
        if kind == "flag":
            for name, bits in parts.items():
                if name not in declared.__members__ or declared[name].value != bits:
                    raise NotCompatibleError(path, f"the flag {name} is gone or has other bits")
            return None
        if kind == "custom":
            return self._custom(SerializerSnapshot(*parts), declared, path)
        return self._container(kind, parts, get_args(declared), path)

    def _container(
        self, kind: str, parts: Any, arguments: tuple[Any, ...], path: str
    ) -> Transform | None:
        """Return the migration of a list, set, tuple or dictionary."""
        if kind == "dict":
            if self.migration(parts[0], arguments[0], path) is not None:
                reason = "the stored form of a dictionary's keys cannot change"
                raise NotCompatibleError(path, reason)
            item = self.migration(parts[1], arguments[1], path)
            return item and (
                lambda value: plain_mapping([(k, item(entry)) for k, entry in plain_entries(value)])
            )
        if kind == "tuple" and not (... in arguments and "..." in parts):
            if len(parts) != len(arguments) or ... in arguments or "..." in parts:
                raise NotCompatibleError(path, "a tuple's length cannot change")
            pairs = zip(parts, arguments, strict=True)
            changes = [self.migration(old, new, path) for old, new in pairs]
            if not any(changes):
                return None
            return lambda value: [
                item if change is None else change(item)
                for item, change in zip(value, changes, strict=True)
            ]
        element = self.migration(parts[0], arguments[0], path)
        if element is None:
            return None
        # Elements that differ only in a removed field become equal.
        if kind in ("set", "frozenset"):
            unpack = self._node(arguments[0]).unpack
            return lambda value: list({unpack(p): p for p in map(element, value)}.values())
        return lambda value: [element(entry) for entry in value]

    def _custom(self, old: SerializerSnapshot, declared: type, path: str) -> Transform | None:
        """Return the migration that a plugin's serializer offers for a class."""
        serializer = self._find(declared)
        assert serializer is not None
        verdict = serializer.compatibility(old)
        if verdict.outcome is Outcome.INCOMPATIBLE:
            raise NotCompatibleError(".".join(filter(None, (path, verdict.field))), verdict.reason)
        migrate = verdict.migrate
        return migrate and (lambda plain: custom_plain(migrate(custom_bytes(plain))))

    def _fields(
        self, olds: Mapping[str, Any], declared: Any, path: str, *, named: bool
    ) -> Transform | None:
        """Return the migration of a class or a named tuple.

        `named` is true for a class, whose fields are stored in a map by name. The fields of a named
        tuple are stored in a list.
        """
        sources: dict[str, str] = {}
        changes: dict[str, Transform | None] = {}
        kinds, optional = typed_fields(declared), optional_fields(declared)
        renames = renames_of(declared)
        missing = {name for name, old in olds.items() if may_be_missing(old)}
        places = {name: f"{path}.{name}" if path else name for name in kinds}
        for name, place in places.items():
            source = _source(name, renames.get(name), place, olds, kinds, sources)
            if name not in optional and (source is None or source in missing):
                new = "new" if source is None else "missing in some values"
                reason = (
                    f"the field is {new} and has no default; give it one, or declare its old name"
                )
                raise NotCompatibleError(place, reason)
            if source is not None:
                old = olds[source]["not_required"] if source in missing else olds[source]
                sources[name] = source
                changes[name] = self.migration(old, kinds[name], place)
        order = list(olds)
        same_fields = list(sources) == list(sources.values()) and sources.keys() == kinds.keys()
        same_order = set(order) == set(sources) if named else order == list(sources)
        complete = missing <= missing_keys(declared)
        if same_fields and same_order and complete and not any(changes.values()):
            return None

        def transform(value: Any) -> Any:
            entries = value if named else dict(zip(order, value, strict=True))
            made = {
                name: entries[source] if changes[name] is None else changes[name](entries[source])  # type: ignore[misc]
                for name, source in sources.items()
                if source in entries or source not in missing
            }
            if named:
                return made
            defaults = declared._field_defaults
            return [
                made[name]
                if name in made
                else packed_field(places[name], self._node(kind), defaults[name])
                for name, kind in kinds.items()
            ]

        return transform


def is_same_description(old: Any, new: Any) -> bool:
    """Return whether two descriptions of types are equal, including the order of fields.

    The order matters because a named tuple's values are stored in the order of the fields.
    """
    return json.dumps(old) == json.dumps(new)


def _is_same(
    old: Any, olds: list[Any], new: Any, news: list[Any], assumed: set[tuple[int, int]]
) -> bool:
    """Return whether two descriptions are equal, including the recursive classes in them.

    Args:
        old: a description.
        olds: the recursive classes that `old` refers to.
        new: another description.
        news: the recursive classes that `new` refers to.
        assumed: the pairs of classes that are being compared, and thus count as equal.
    """
    old, new = class_of(old, olds), class_of(new, news)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return type(old) is type(new) and bool(old == new)
    ((kind, parts),), ((other, others),) = old.items(), new.items()
    if kind != other or kind in ("enum", "flag", "literal", "custom"):
        return is_same_description(old, new)
    pair = id(old), id(new)
    if pair in assumed:
        return True
    assumed.add(pair)
    if isinstance(parts, dict) and kind != "not_required":
        if list(parts) != list(others):
            return False
        parts, others = list(parts.values()), list(others.values())
    elif kind == "not_required":
        parts, others = [parts], [others]
    return len(parts) == len(others) and all(
        _is_same(one, olds, another, news, assumed)
        for one, another in zip(parts, others, strict=True)
    )


def _word(description: Any) -> str:
    """Return the kind of a described type, such as ``int`` or ``list``, for an error message."""
    return description if isinstance(description, str) else next(iter(description))


def _source(
    name: str,
    old: str | None,
    place: str,
    olds: Mapping[str, Any],
    fields: Collection[str],
    sources: Mapping[str, str],
) -> str | None:
    """Return the name of the stored field that a declared field gets its value from.

    Args:
        name: the name of the declared field.
        old: the old name of the declared field, if it is marked as renamed.
        place: the path of the declared field, for errors.
        olds: the stored fields.
        fields: the names of all declared fields.
        sources: the stored field of each declared field before this one.

    Returns:
        The name, or None if the declared field is new.

    Raises:
        NotCompatibleError: two stored fields are possible, or another declared field uses the
            stored field too.
    """
    if name in olds:
        if old in olds and old not in fields:
            reason = (
                f"it is declared to have been {old!r}, and values are stored under both names. "
                f"Remove the declaration to read {name!r}; to read {old!r}, give the field a "
                "third name"
            )
            raise NotCompatibleError(place, reason)
        old = name
    if old is None or old not in olds:
        return None
    for other, source in sources.items():
        if source == old:
            reason = (
                f"it and the field {other!r} would both read the stored field {old!r}: "
                "give one of them another name, or declare another old one"
            )
            raise NotCompatibleError(place, reason)
    return old


# ---------------------------------------------------------------- keys

Recode = Callable[[bytes, int], tuple[bytes, int]]
"""A function that takes data and the position of a stored key in it.

The function returns the new bytes of the key and the position after the stored key.
"""


class KeyNotCompatibleError(Exception):
    """A stored key type that cannot become the declared key type."""


def key_change(old: SerializerSnapshot, new: KeyCodec) -> Recode | None:
    """Return a function that converts stored keys of type `old` to keys of the codec `new`.

    Return None if the keys remain unchanged.

    Raises:
        KeyNotCompatibleError: the keys cannot be converted, or two different keys could become
            equal.
    """
    return None if old == new.snapshot() else _change(old, new)


def _change(old: SerializerSnapshot, new: KeyCodec) -> Recode:
    """Return a function that converts a key, or a part of a key, to the new type.

    If the types are equal, the function returns the bytes of the key unchanged.
    """
    if old == new.snapshot():
        return _as_is(codec_from_snapshot(old))
    if isinstance(new, ScalarKeyCodec) and old.id == new.id:
        if None in (old.payload, new.column):  # the column of one of them is unknown
            return _as_is(new)
        reason = f"{old} cannot become {new.snapshot()}: cast the column to the stored type"
        raise KeyNotCompatibleError(reason)
    if isinstance(new, NullableKeyCodec):
        return _nullable(old, new)
    if isinstance(new, TupleKeyCodec) and old.id == TupleKeyCodec.id:
        return _tuple(old.payload, new)
    if isinstance(new, SerializedKeyCodec):
        verdict = new.serializer.compatibility(old)
        if verdict.outcome in (Outcome.AS_IS, Outcome.RECONFIGURED):
            return _as_is(new)
        reason = verdict.reason or "its serializer migrates values, which keys cannot do"
        raise KeyNotCompatibleError(reason)
    raise KeyNotCompatibleError(f"{old} cannot become {new.snapshot()}")


def _as_is(codec: KeyCodec) -> Recode:
    """Return a conversion that copies the bytes of each key."""

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        end = codec.decode(data, start)[1]
        return data[start:end], end

    return recode


def _nullable(old: SerializerSnapshot, new: NullableKeyCodec) -> Recode:
    """Return the conversion of ``X`` or ``X | None`` to ``Y | None``.

    The key group does not change, because the byte that marks None is not hashed.
    """
    was = old.id == NullableKeyCodec.id
    inner = _change(snapshot_from_nested(old.payload) if was else old, new.inner)

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        if was and data[start] == 0:
            return data[start : start + 1], start + 1
        made, end = inner(data, start + was)
        return b"\1" + made, end

    return recode


def _tuple(payload: Any, new: TupleKeyCodec) -> Recode:
    """Return the conversion of a stored tuple key to the tuple key of the codec `new`.

    The new tuple may have more parts at its end if these parts may be None. Stored keys then get
    None for the new parts. A tuple may become a named tuple, and a named tuple may become a tuple.

    Args:
        payload: the payload of the stored tuple's snapshot.
        new: the codec of the new tuple.
    """
    olds = [snapshot_from_nested(part) for part in payload["parts"]]
    names, known = payload["names"], new.names
    if names and known and list(known[: len(names)]) != names:
        raise KeyNotCompatibleError(
            f"its fields are stored as {', '.join(names)}: new ones may only follow these"
        )
    if len(olds) > len(new.parts):
        raise KeyNotCompatibleError("a part of it would be lost")
    added = new.parts[len(olds) :]
    if not all(isinstance(part, NullableKeyCodec) for part in added):
        raise KeyNotCompatibleError("a new part of it needs a type such as X | None")
    kept = [_change(old, part) for old, part in zip(olds, new.parts, strict=False)]
    nones = b"".join(part.encode(None) for part in added)

    def recode(data: bytes, start: int) -> tuple[bytes, int]:
        made = []
        for each in kept:
            part, start = each(data, start)
            made.append(part)
        return b"".join([*made, nones]), start

    return recode
