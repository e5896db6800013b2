"""Makes attrs classes from dotted keys and untyped values; errors name the wrong key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NewType, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cattrs

from millpond.arguments import check_type, nearest
from millpond.errors import ConfigError, brief

T = TypeVar("T")

ByteSize = NewType("ByteSize", int)
"""A number of bytes. Users may write it as 64kb, 64mb or 2gb, in powers of 1024."""

Secret = NewType("Secret", str)
"""A string that no message and no ``repr`` shows."""

NO_KEY = {"no key": True}
"""The attrs metadata of a field that has no configuration key."""

_DEEPEST = 100
_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def names_in(value: Any) -> tuple[str, ...]:
    """Return the names in ``value``, a list, or a string with commas between the names."""
    if isinstance(value, str):
        value = value.split(",")
    return tuple(name.strip() for name in value if name.strip())


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each option in ``tree``, a mapping of sections.

    Sections may be mappings or attrs instances.

    Raises:
        ConfigError: the tree is too deep, or contains itself.
    """
    if prefix.count(".") > _DEEPEST:
        raise ConfigError("options", "are nested too deeply")
    for key, value in tree.items():
        check_type("options", key, str)
        dotted = f"{prefix}{key}"
        plain = attrs.asdict(value, recurse=False) if attrs.has(type(value)) else value
        if isinstance(plain, Mapping):
            yield from flatten(plain, f"{dotted}.")
        else:
            yield dotted, plain


def insert(tree: dict[str, Any], key: str, value: Any) -> None:
    """Put ``value`` into a tree of sections under a dotted key.

    Raises:
        ConfigError: the tree has a value under a section of the key, or already has the key.
    """
    *parents, last = key.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise ConfigError(key, f"{part!r} is a value, not a section")
    if last in tree:
        section = isinstance(tree[last], dict)
        raise ConfigError(key, "is a section, not a value" if section else "is given twice")
    tree[last] = value


def structure_options(cls: type[T], options: Mapping[str, Any], place: str, prefix: str) -> T:
    """Return an instance of the attrs class ``cls`` with the values in ``options``.

    Plugins call this function for their ``backend.<name>.`` options.

    Args:
        cls: the class.
        options: the options by key. The keys have hyphens and no prefix.
        place: the source of the options for error messages. In errors ``configuration`` is later
            replaced by the real source of the job's configuration.
        prefix: the beginning of the keys in error messages.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """
    path = tuple(prefix.split("."))
    try:
        return make_instance(cls, cls, structure_fields(cls, dict(options), path), path)
    except ConfigError as error:
        error.place = place
        raise


def make_instance(
    make: Callable[..., T], cls: type, fields: Mapping[str, Any], path: tuple[str, ...] = ()
) -> T:
    """Return ``make(**fields)``.

    Args:
        make: a function that makes an instance of ``cls`` from its fields.
        cls: the class. Its validators may refuse a field.
        fields: the names and values of the fields.
        path: the section of the fields, for errors.

    Raises:
        ConfigError: a validator has refused a field. The error names the field.
    """
    try:
        return make(**fields)
    except ValueError as error:
        refused = next(
            (name for name, value in fields.items() if _is_refused(cls, name, value)), ""
        )
        key = ".".join((*path, refused.replace("_", "-"))).rstrip(".")
        # The validators of attrs add the field and the value to the message.
        raise ConfigError(key, str(error.args[0] if error.args else error)) from None


def _is_refused(cls: type, name: str, value: Any) -> bool:
    """Return whether a field's validator refuses a value."""
    field = attrs.fields_dict(cls)[name]
    try:
        if field.validator is not None:
            field.validator(None, field, value)
    except ValueError:
        return True
    return False


def structure_fields(
    cls: type, tree: Mapping[str, Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the values in ``tree``, a mapping of sections, by the names of the fields of ``cls``.

    Raises:
        ConfigError: a key is unknown, has a wrong value, or is given twice, once with a hyphen and
            once with ``_``.
    """
    hints = get_type_hints(cls)
    fields: dict[str, Any] = {}
    for key, value in tree.items():
        name = known_name(cls, key, value, path)
        if name in fields:
            raise ConfigError(".".join((*path, key)), "is given twice")
        fields[name] = _structure_value(hints[name], value, (*path, key))
    return fields


def known_name(cls: type, key: str, value: Any, path: tuple[str, ...]) -> str:
    """Return the name of the field of ``cls`` for ``key``; raise ConfigError if there is none.

    Args:
        cls: the class.
        key: the key, with hyphens or underscores.
        value: the value of the key. If the value is a section, the error names its first key.
        path: the sections that contain the key.
    """
    known = {name.replace("_", "-"): name for name in _keys_of(cls)}
    name = known.get(key.replace("_", "-"))
    if name is None:
        dotted = ".".join((*path, key))
        leaf, _ = next(flatten({dotted: value}), (dotted, None))
        hint = nearest(leaf, known_keys(cls, path), cutoff=0.5)
        raise ConfigError(leaf, "is not a known key", suggestion=hint)
    return name


def _structure_value(kind: Any, value: Any, path: tuple[str, ...]) -> Any:
    """Return ``value`` converted to the type ``kind``; raise ConfigError if that fails."""
    if isinstance(kind, type) and attrs.has(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(".".join(path), "is a section, not a value")
        return make_instance(kind, kind, structure_fields(kind, value, path), path)
    if get_origin(kind) is Mapping:
        return _structure_mapping(get_args(kind)[1], value, path)
    if isinstance(value, Mapping):
        raise ConfigError(".".join(path), "is a value, not a section")
    try:
        return _CONVERTER.structure(value, kind)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        name = getattr(kind, "__name__", str(kind)).removesuffix(" | None")
        if kind == tuple[str, ...]:
            name = "a text or a list of texts"
        got = brief(value)
        if Secret in (kind, *get_args(kind)):
            name, got = "text", type(value).__name__
        raise ConfigError(".".join(path), f"expected {name}, got {got}") from None


def _keys_of(cls: type) -> list[str]:
    fields = attrs.fields_dict(cls)
    return [name for name, field in fields.items() if field.metadata != NO_KEY]


def _structure_mapping(kind: Any, value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Return ``value``, a section that may have any keys, as a dict.

    ``kind`` is the annotated type of the section, such as ``Mapping[str, Any]``.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(".".join(path), "is a section, not a value")
    if get_origin(kind) is not Mapping:
        return dict(value)
    inner = get_args(kind)[1]
    return {key: _structure_mapping(inner, each, (*path, key)) for key, each in value.items()}


def known_keys(cls: type, path: tuple[str, ...]) -> list[str]:
    """Return the dotted keys of a class and of its sections, below the section ``path``."""
    hints = get_type_hints(cls)
    keys: list[str] = []
    for name in _keys_of(cls):
        here = (*path, name.replace("_", "-"))
        keys.append(".".join(here))
        if isinstance(hints[name], type) and attrs.has(hints[name]):
            keys += known_keys(hints[name], here)
    return keys


def _to_bool(value: Any, _: Any) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[str(value).strip().lower()]


def _to_int(value: Any, _: Any) -> int:
    """Return ``value``, an int or a string of digits, as an int; refuse floats as inexact."""
    if isinstance(value, (bool, float)):
        raise TypeError(value)
    return int(value)


def byte_count(value: Any) -> ByteSize:
    """Return the number of bytes that ``value``, an int or a string like ``64mb``, stands for.

    Raises:
        ValueError: ``value`` is not a number of bytes.
    """
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", str(value).strip().lower())
    if isinstance(value, bool) or match is None or match[2] not in _UNITS:
        raise ValueError(value)
    return ByteSize(int(match[1]) * _UNITS[match[2]])


def share_of_memory(given: str, whole: int) -> int:
    """Return ``given``, a size like ``256mb`` or a share of ``whole`` like ``25%``, in bytes.

    Raises:
        ValueError: ``given`` is neither a size nor a share, or the share exceeds 100 %.
    """
    text = given.strip()
    try:
        if not text.endswith("%"):
            return byte_count(text)
        share = float(text[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"expected bytes like 256mb or a share like 25%, got {given!r}")
    return int(whole * share)


def _to_text(value: Any, _: Any) -> str:
    if not isinstance(value, (str, Path)):
        raise TypeError(value)
    return str(value)


_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(bool, _to_bool)
_CONVERTER.register_structure_hook(int, _to_int)
_CONVERTER.register_structure_hook(str, _to_text)
_CONVERTER.register_structure_hook(ByteSize, lambda value, _: byte_count(value))
_CONVERTER.register_structure_hook_func(
    lambda kind: kind == tuple[str, ...], lambda value, _: names_in(value)
)
