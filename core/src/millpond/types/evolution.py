"""Decides whether and how values stored under one description can be read under another.

The four outcomes are Flink's. A migration converts stored bytes by way of their plain MessagePack
values, so the old class need not exist any more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, get_args, get_type_hints

from millpond.types.base import FindSerializer, Outcome, SerializerSnapshot, no_serializer
from millpond.types.classes import required_fields
from millpond.types.describe import describe, fields_of, is_struct, is_union, node_of
from millpond.types.enums import stored_members
from millpond.types.exact_values import exact_float
from millpond.types.node import (
    custom_bytes,
    custom_plain,
    entries_of,
    mapping_of,
    unpack_int,
)
from millpond.types.renames import renames_of

Transform = Callable[[Any], Any]


class NotCompatibleError(Exception):
    """A stored type cannot become a declared one."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


def _word(description: Any) -> str:
    return description if isinstance(description, str) else next(iter(description))


def _widened(old: str, new: str, path: str) -> Transform:
    widenings: dict[tuple[str, str], Transform] = {
        ("int", "float"): lambda plain: exact_float(unpack_int(plain)),
        ("int", "Decimal"): lambda plain: str(Decimal(unpack_int(plain))),
    }
    if (old, new) not in widenings:
        raise NotCompatibleError(path, f"{old} cannot become {new}")
    return widenings[old, new]


def _enum(members: Mapping[str, Any], declared: type[enum.Enum], path: str) -> Transform | None:
    lost = [name for name in members if name not in declared.__members__]
    if lost:
        raise NotCompatibleError(path, f"the enum has lost {', '.join(lost)}")
    stored = stored_members(declared)
    moved = {value: stored[declared[name].name] for name, value in members.items()}
    return None if all(old == new for old, new in moved.items()) else moved.__getitem__


def _flag(members: Mapping[str, Any], declared: type[enum.Flag], path: str) -> None:
    """No stored value changes, or the flag is refused."""
    for name, bits in members.items():
        if name not in declared.__members__ or declared[name].value != bits:
            raise NotCompatibleError(path, f"the flag {name} is gone or has other bits")


def _fields(declared: Any) -> list[tuple[str, Any, bool]]:
    if is_struct(declared):
        required = required_fields(declared)
        return [
            (name, kind, has and name not in required) for name, kind, has in fields_of(declared)
        ]
    hints = get_type_hints(declared)
    return [(name, hints[name], name in declared._field_defaults) for name in declared._fields]


def plain_migration(
    old: Any, declared: Any, find: FindSerializer = no_serializer
) -> Transform | None:
    """The function from plain values of an old description to those of a declared type.

    Args:
        old: the description.
        declared: the type.
        find: looks up the serializers that the job's plugins provide.

    Returns:
        The function, or None if plain values stay as they are.

    Raises:
        NotCompatibleError: the stored values cannot be converted safely.
    """
    return _Evolution(find).migration(old, declared, "")


class _Sources:
    """From which stored field each field of a class is read.

    Attributes:
        found: by name, what the field is called where it is stored.
    """

    def __init__(self, olds: Mapping[str, Any], declared: Any) -> None:
        self._olds = olds
        self._renames = renames_of(declared)
        self._names = {name for name, _, _ in _fields(declared)}
        self.found: dict[str, str] = {}

    def find(self, name: str, place: str) -> str | None:
        """The stored field of a declared one; None where there is none.

        Raises:
            NotCompatibleError: there are two that it may be, or another field has taken it.
        """
        old = self._renames.get(name)
        if name in self._olds:
            if old in self._olds and old not in self._names:
                reason = (
                    f"it is declared to have been {old!r}, and values are stored under both names: "
                    f"without the declaration it is what is stored as {name!r}; to take what is "
                    f"stored as {old!r}, give the field a name of its own"
                )
                raise NotCompatibleError(place, reason)
            old = name
        if old is None or old not in self._olds:
            return None
        for other, source in self.found.items():
            if source == old:
                reason = (
                    f"it and the field {other!r} would both take what is stored as {old!r}: give "
                    "one of them another name, or declare another old one"
                )
                raise NotCompatibleError(place, reason)
        self.found[name] = old
        return old


class _Evolution:
    """Walks an old description and a declared type; keeps what finds the plugins' serializers."""

    def __init__(self, find: FindSerializer) -> None:
        self._find = find

    def _describe(self, declared: Any) -> Any:
        return describe(declared, self._find)

    def migration(self, old: Any, declared: Any, path: str) -> Transform | None:
        """What ``plain_migration`` gives, of the part at a path."""
        new = self._describe(declared)
        if old == new:
            return None
        if is_union(declared):
            return self._into_union(old, declared, path)
        if isinstance(old, str) and isinstance(new, str):
            return _widened(old, new, path)
        if isinstance(old, dict) and isinstance(new, dict):
            ((old_kind, old_parts),) = old.items()
            ((new_kind, new_parts),) = new.items()
            if (old_kind, new_kind) == ("enum", "flag") and old_parts.items() <= new_parts.items():
                return None  # older versions described flags as enums and stored the same bits
            if old_kind == new_kind:
                return self._by_kind(old_kind, old_parts, declared, path)
        raise NotCompatibleError(path, f"{_word(old)} cannot become {_word(new)}")

    def _into_union(self, old: Any, declared: Any, path: str) -> Transform | None:
        members = list(get_args(declared))
        olds = old["union"] if isinstance(old, dict) and "union" in old else [old]
        descriptions = [self._describe(member) for member in members]
        changed = [part for part in olds if part not in descriptions]
        if not changed:
            return None
        given = [member for member in members if member is not type(None)]
        if len(given) == 1 and len([part for part in olds if part != "None"]) == 1:
            inner = self.migration(changed[0], given[0], path)
            return None if inner is None else lambda value: None if value is None else inner(value)
        word = _word(changed[0])
        pairs = zip(members, descriptions, strict=True)
        alike = [member for member, new in pairs if new not in olds and _word(new) == word]
        if len(alike) == 1:
            self.migration(changed[0], alike[0], path)  # raises if the class could not even alone
            reason = f"a {word} can change alone or in X | None, not as a part of {declared}"
            raise NotCompatibleError(path, reason)
        raise NotCompatibleError(path, f"{word} is not part of {declared}")

    def _by_kind(self, kind: str, parts: Any, declared: Any, path: str) -> Transform | None:
        if kind in ("struct", "namedtuple"):
            return self._struct(parts, declared, path, named=kind == "struct")
        if kind in ("enum", "flag"):
            return (_enum if kind == "enum" else _flag)(parts, declared, path)
        if kind == "custom":
            return self._custom(SerializerSnapshot(*parts), declared, path)
        arguments = get_args(declared)
        if kind == "dict":
            if self.migration(parts[0], arguments[0], path) is not None:
                raise NotCompatibleError(
                    path, "what a dictionary's keys are stored as cannot change"
                )
            item = self.migration(parts[1], arguments[1], path)
            return item and (
                lambda value: mapping_of([(key, item(entry)) for key, entry in entries_of(value)])
            )
        if kind == "tuple" and not (len(parts) == 2 and parts[1] == "..."):  # noqa: PLR2004
            return self._tuple(parts, arguments, path)
        if kind == "tuple" and arguments[-1] is not ...:
            raise NotCompatibleError(
                path, "a tuple of any length cannot become one of fixed length"
            )
        element = self.migration(parts[0], arguments[0], path)
        return element and self._of_each(element, kind, arguments[0])

    def _of_each(self, element: Transform, kind: str, declared: Any) -> Transform:
        """Of sets, elements that were told apart by what is gone of them are one."""
        if kind not in ("set", "frozenset"):
            return lambda value: [element(entry) for entry in value]
        unpack = node_of(declared, self._find).unpack
        return lambda value: list({unpack(plain): plain for plain in map(element, value)}.values())

    def _custom(self, old: SerializerSnapshot, declared: type, path: str) -> Transform | None:
        """By what the plugin's serializer says of its older self."""
        serializer = self._find(declared)
        assert serializer is not None
        verdict = serializer.compatibility(old)
        if verdict.outcome is Outcome.INCOMPATIBLE:
            place = f"{path}.{verdict.field}" if path and verdict.field else path or verdict.field
            raise NotCompatibleError(place, verdict.reason)
        migrate = verdict.migrate
        if migrate is None:
            return None
        return lambda plain: custom_plain(migrate(custom_bytes(plain)))

    def _tuple(self, parts: Any, arguments: tuple[Any, ...], path: str) -> Transform | None:
        if len(parts) != len(arguments) or arguments[-1] is ...:
            raise NotCompatibleError(path, "a tuple's length cannot change")
        changes = [
            self.migration(old, new, path) for old, new in zip(parts, arguments, strict=True)
        ]
        if not any(changes):
            return None
        return lambda value: [
            item if change is None else change(item)
            for item, change in zip(value, changes, strict=True)
        ]

    def _struct(
        self, olds: Mapping[str, Any], declared: Any, path: str, *, named: bool
    ) -> Transform | None:
        sources = _Sources(olds, declared)
        changes: dict[str, Transform | None] = {}
        for name, kind, has_default in _fields(declared):
            place = f"{path}.{name}" if path else name
            source = sources.find(name, place)
            if source is not None:
                changes[name] = self.migration(olds[source], kind, place)
            elif not has_default:
                reason = "the field is new and has no default; give it one, or declare its old name"
                raise NotCompatibleError(place, reason)
        found = sources.found
        same_names = list(found.values()) == list(found) and set(olds) == set(found)
        complete = len(found) == len(_fields(declared))
        same_order = named or list(olds) == list(found)
        if same_names and complete and same_order and not any(changes.values()):
            return None
        order = list(olds)

        def transform(value: Any) -> Any:
            entries = value if named else dict(zip(order, value, strict=True))
            made = {
                name: entries[source] if changes[name] is None else changes[name](entries[source])  # type: ignore[misc]
                for name, source in found.items()
            }
            return made if named else self._completed(declared, made)

        return transform

    def _completed(self, declared: Any, made: dict[str, Any]) -> list[Any]:
        hints, defaults = get_type_hints(declared), declared._field_defaults
        return [
            made[name] if name in made else node_of(hints[name], self._find).pack(defaults[name])
            for name in declared._fields
        ]
