"""Nodes of classes with fields: attrs classes, dataclasses, named tuples."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import attrs

from millpond.errors import StateTypeError, brief
from millpond.types.node import Node
from millpond.types.plain_parts import quickened
from millpond.types.rows import Row, row_fault
from millpond.types.weights import parts_weight


class ClassError(Exception):
    """Values of the class could not be made again from their fields."""


def is_frozen(declared: type) -> bool:
    """Whether the fields of an attrs class or dataclass cannot be assigned.

    Raises:
        ClassError: it is not an attrs class itself.
    """
    if attrs.has(declared):
        if "__attrs_attrs__" not in vars(declared):
            raise ClassError("only a base of it is an attrs class: decorate it, too")
        return bool(attrs.inspect(declared).is_frozen)
    return bool(declared.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def field_defaults(declared: Any) -> dict[str, Any]:
    """By field of an attrs class or a dataclass, its default; none that a factory makes."""
    if attrs.has(declared):
        none = (attrs.NOTHING,)
        fields = [(field.name, field.default) for field in attrs.fields(declared)]
        return {
            name: default
            for name, default in fields
            if default not in none and not isinstance(default, attrs.Factory)  # type: ignore[arg-type]
        }
    return {f.name: f.default for f in dataclasses.fields(declared) if is_given(f.default)}


def is_given(default: object) -> bool:
    """Return whether a dataclass field has this default, or default factory.

    A class that Spark sends to a worker has a copy of ``dataclasses.MISSING`` there.
    """
    return not isinstance(default, type(dataclasses.MISSING))


def required_fields(declared: Any) -> set[str]:
    """Return the fields without which the constructor cannot be called, whatever their defaults."""
    parameters = inspect.signature(declared).parameters
    empty = inspect.Parameter.empty
    arguments = arguments_by_field(declared)
    return {name for name, called in arguments.items() if parameters[called].default is empty}


def _compares_fields(declared: type) -> bool:
    compared: Any = declared.__eq__
    return declared.__hash__ is not None and compared is not object.__eq__


def _refusal(declared: type, value: Any) -> StateTypeError:
    subclass = isinstance(value, declared)
    reason = (
        "its class is a subclass, which would be read back as the declared class"
        if subclass
        else ""
    )
    return StateTypeError(declared.__name__, brief(value), reason=reason)


def _in_field(nodes: Mapping[str, Node], values: Iterable[Any], error: StateTypeError) -> Any:
    """The error of a value within a structure, with the field that holds it as its place."""
    for (name, node), value in zip(nodes.items(), values, strict=True):
        try:
            node.pack(value)
        except StateTypeError as found:
            place = f"{name}.{found.place}" if found.place else name
            return StateTypeError(found.expected, found.value, place=place, reason=found.reason)
    return error


# ---------------------------------------------------------------- attrs classes, dataclasses


def struct_node(declared: type, nodes: Mapping[str, Node]) -> Node:
    """An attrs class or a dataclass, from its fields' nodes.

    Raises:
        ClassError: its constructor needs what is not a field, or it is a container or scalar too.
    """
    make = _maker(declared, [(name, node.unpack) for name, node in nodes.items()])
    pack = _packer(declared, nodes)

    def unpack(plain: Any) -> Any:
        if type(plain) is not dict:
            raise StateTypeError(declared.__name__, brief(plain))
        return make(plain)

    immutable = is_frozen(declared) and all(node.copy is None for node in nodes.values())
    return Node(
        {"struct": {name: node.description for name, node in nodes.items()}},
        declared,
        pack,
        unpack,
        frozenset({"map"}),
        None if immutable else lambda value: unpack(pack(value)),
        hashable=immutable
        and _compares_fields(declared)
        and all(node.hashable for node in nodes.values()),
        field_names=frozenset(nodes),
        weight=parts_weight((attrgetter(name), node.weight) for name, node in nodes.items()),
    )


def _packer(declared: type, nodes: Mapping[str, Node]) -> Callable[[Any], dict[str, Any]]:
    """A function from a value to a map of its fields; generated, since every write runs it.

    A loop over the fields takes half as long again.
    """
    odd = [name for name in nodes if not name.isidentifier()]
    if odd:
        raise ClassError(f"the name of its field {odd[0]!r} cannot be read as an attribute")
    entries = [f"{name!r}: pack_{at}(value.{name})" for at, name in enumerate(nodes)]
    values = ", ".join(f"value.{name}" for name in nodes)
    lines = (
        "def pack(value):",
        "    if type(value) is not declared:",
        "        raise refusal(declared, value)",
        "    try:",
        f"        return {{{', '.join(entries)}}}",
        "    except StateTypeError as error:",
        f"        raise in_field(nodes, [{values}], error) from None",
    )
    known: dict[str, Any] = {f"pack_{at}": node.pack for at, node in enumerate(nodes.values())}
    known |= {"declared": declared, "refusal": _refusal, "in_field": _in_field, "nodes": nodes}
    known["StateTypeError"] = StateTypeError
    exec("\n".join(lines), known)  # noqa: S102 - of identifiers only
    pack: Callable[[Any], dict[str, Any]] = known["pack"]
    return pack


_PLAIN_BASES = (int, str, float, bytes, list, dict, tuple, set, frozenset, BaseException)


def _maker(
    declared: type, unpacks: Sequence[tuple[str, Callable[[Any], Any]]]
) -> Callable[[Mapping[str, Any]], Any]:
    """A function from the fields' plain values to a value.

    The constructor runs, so that what a class derives from its fields is there. Where it may
    have changed a field (a converter, a post-init, code of its own), fresh values are set after
    it: what was stored is what comes back.
    """
    arguments = arguments_by_field(declared)
    constructed = [(n, arguments[n], unpack) for n, unpack in unpacks if n in arguments]

    def construct(plain: Mapping[str, Any]) -> Any:
        return declared(
            **{called: unpack(plain[name]) for name, called, unpack in constructed if name in plain}
        )

    def restore(plain: Mapping[str, Any]) -> Any:
        made = construct(plain)
        for name, unpack in unpacks:
            if name in plain:
                object.__setattr__(made, name, unpack(plain[name]))
        return made

    return restore if _shapes_its_fields(declared, arguments) else construct


def positional_maker(declared: type, names: Sequence[str]) -> Callable[..., Any]:
    """A function from the fields' values, in the order of the fields, to a value.

    Raises:
        ClassError: its constructor needs what is not a field, or it is a container or scalar too.
    """
    arguments = arguments_by_field(declared)
    taken = list(inspect.signature(declared).parameters.values())
    in_order = [each.name for each in taken] == [arguments.get(name) for name in names]
    by_position = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in taken)
    if in_order and by_position and not _shapes_its_fields(declared, arguments):
        return declared
    make = _maker(declared, [(name, lambda value: value) for name in names])
    return lambda *values: make(dict(zip(names, values, strict=True)))


def arguments_by_field(declared: type) -> dict[str, str]:
    """By field, how the constructor calls it; without the fields that it does not take.

    Raises:
        ClassError: it needs what is not a field, or the class is a container or scalar too.
    """
    if issubclass(declared, _PLAIN_BASES):
        raise ClassError("it is a container, scalar or exception too, whose content is not a field")
    try:
        taken = inspect.signature(declared).parameters.values()
    except (TypeError, ValueError) as error:
        raise ClassError(f"its constructor has no signature: {error}") from None
    own: Any = declared
    fields = attrs.fields(own) if attrs.has(own) else dataclasses.fields(own)
    names = {
        each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    called = {field.name: getattr(field, "alias", None) or field.name for field in fields}
    given = {called[field.name] for field in fields if field.init}
    found = {
        field.name: called[field.name]
        for field in fields
        if called[field.name] in names and (field.init or called[field.name] not in given)
    }  # a field without an argument may be called as another's is: n, beside _n
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {p.name for p in taken if p.default is p.empty and p.kind not in variable}
    unknown = sorted(required - set(found.values()))
    if unknown:
        raise ClassError(f"its constructor needs {', '.join(unknown)}, which is not a field")
    return found


_GENERATED = ("__init__", "__create_fn__.<locals>.__init__")
"""Where attrs and dataclasses define the constructors that they write."""
_HOOKS = ("__attrs_init__", "__attrs_pre_init__", "__attrs_post_init__", "__post_init__")


def _shapes_its_fields(declared: type, arguments: Mapping[str, str]) -> bool:
    own: Any = declared
    code = getattr(own.__init__, "__code__", None)
    if code is None or code.co_qualname not in _GENERATED:
        return True
    if any(hasattr(own, hook) for hook in _HOOKS) or not _assigns_plainly(own):
        return True
    fields = attrs.fields(own) if attrs.has(own) else dataclasses.fields(own)
    converted = any(getattr(field, "converter", None) for field in fields)
    return converted or len(arguments) < len(fields)


def _assigns_plainly(declared: Any) -> bool:
    """Whether a generated constructor's assignments keep what they are given."""
    is_own = getattr(declared, "__attrs_own_setattr__", False)  # the constructor avoids attrs' own
    return is_frozen(declared) or is_own or declared.__setattr__ is object.__setattr__


def _is_row_of(value: Any, columns: tuple[str, ...]) -> bool:
    """Whether a value is a row of some columns, or a plain tuple, which may be one."""
    return type(value) is tuple or (isinstance(value, Row) and value._fields == columns)


def named_tuple_node(declared: Any, parts: Mapping[str, Node]) -> Node:
    """A ``typing.NamedTuple``, or a declared row, packed as the list of its parts.

    A row's values may also be given as a plain tuple, which a row equals.
    """
    nodes = list(parts.values())
    kind = getattr(declared, "_row_type", declared)
    is_row = kind is not declared
    expected = f"a row of {', '.join(parts)}" if is_row else kind.__name__

    def pack(value: Any) -> list[Any]:
        # Row classes are kept in a cache, so that of equal columns there may be another one.
        if type(value) is not kind and not (is_row and _is_row_of(value, kind._fields)):
            if not is_row:
                raise _refusal(kind, value)
            raise StateTypeError(expected, brief(value), reason=row_fault(value, kind._fields))
        if len(value) != len(nodes):
            reason = f"it has {len(value)} values for {len(nodes)} columns"
            raise StateTypeError(expected, brief(value), reason=reason)
        try:
            return [node.pack(part) for node, part in zip(nodes, value, strict=True)]
        except StateTypeError as error:
            raise _in_field(parts, value, error) from None

    def unpack(plain: Any) -> Any:
        if type(plain) is not list or len(plain) != len(nodes):
            raise StateTypeError(declared.__name__, brief(plain))
        return kind._make([n.unpack(part) for n, part in zip(nodes, plain, strict=True)])

    # A subclass without slots lets attributes be set, which are no part of the value.
    immutable = all(node.copy is None for node in nodes) and not kind.__dictoffset__
    made = Node(
        {"namedtuple": {name: node.description for name, node in parts.items()}},
        kind,
        pack,
        unpack,
        frozenset({"list"}),
        None if immutable else lambda value: unpack(pack(value)),
        hashable=kind.__hash__ is not None and all(node.hashable for node in nodes),
        weight=parts_weight((itemgetter(at), node.weight) for at, node in enumerate(nodes)),
    )
    return quickened(made, nodes)
