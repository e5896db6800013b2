"""The fields and nodes of classes: attrs classes, dataclasses and named tuples."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import attrs

from millpond.arguments import check_type
from millpond.errors import StateTypeError
from millpond.types.nodes import Node, NodeError, with_plain_parts
from millpond.types.rows import Row, row_fault
from millpond.types.scalar_base import type_error, wrong_type

# ---------------------------------------------------------------- fields


def is_struct(declared: Any) -> bool:
    """Return whether a type is an attrs class or a dataclass."""
    return isinstance(declared, type) and (
        attrs.has(declared) or dataclasses.is_dataclass(declared)
    )


def _fields(declared: Any) -> Sequence[Any]:
    """Return the fields of an attrs class or dataclass."""
    return attrs.fields(declared) if attrs.has(declared) else dataclasses.fields(declared)


def is_frozen(declared: type) -> bool:
    """Return whether the fields of an attrs class or dataclass cannot be assigned.

    Raises:
        NodeError: a base of the class is an attrs class, but the class itself is not.
    """
    if attrs.has(declared):
        if "__attrs_attrs__" not in vars(declared):
            raise NodeError("only a base of it is an attrs class: decorate it, too")
        return bool(attrs.inspect(declared).is_frozen)
    return bool(declared.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def typed_fields(declared: Any) -> dict[str, Any]:
    """Return the types of the fields of an attrs class, a dataclass or a named tuple, by name.

    Raises:
        NodeError: a field has no type, or its type cannot be found.
    """
    try:
        hints = get_type_hints(declared)
        struct = is_struct(declared)
        names = [field.name for field in _fields(declared)] if struct else declared._fields
        return {name: hints[name] for name in names}
    except KeyError as error:
        cure = "" if is_struct(declared) else ": a typing.NamedTuple has them"
        raise NodeError(f"its field {error} has no type{cure}") from None
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise NodeError(f"the types of its fields cannot be found: {error}") from None


def optional_fields(declared: Any) -> set[str]:
    """Return the fields that a stored value may lack, since the class has a default for them.

    A field with a default that the class's own constructor requires is not one of them.
    """
    if not is_struct(declared):
        return set(declared._field_defaults)
    parameters = inspect.signature(declared).parameters
    required = {
        name
        for name, argument in arguments_by_field(declared).items()
        if parameters[argument].default is inspect.Parameter.empty
    }
    return {
        field.name
        for field in _fields(declared)
        if _is_given(field.default) or _is_given(getattr(field, "default_factory", attrs.NOTHING))
    } - required


def _is_given(default: object) -> bool:
    """Return whether a field's default, or default factory, is not the mark for a missing one.

    The comparison is by type: on a worker, a class that Spark has sent has a copy of
    ``dataclasses.MISSING``.
    """
    return default is not attrs.NOTHING and not isinstance(default, type(dataclasses.MISSING))


_PLAIN_BASES = (int, str, float, bytes, list, dict, tuple, set, frozenset, BaseException)


def arguments_by_field(declared: type) -> dict[str, str]:
    """Return the argument of the class's constructor for each field that the constructor takes.

    Raises:
        NodeError: the constructor needs another argument, or the class is also a container or
            scalar.
    """
    if issubclass(declared, _PLAIN_BASES):
        raise NodeError("it is a container, scalar or exception too, whose content is not a field")
    try:
        parameters = inspect.signature(declared).parameters.values()
    except (TypeError, ValueError) as error:
        raise NodeError(f"its constructor has no signature: {error}") from None
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    fields = _fields(declared)
    aliases = {field.name: getattr(field, "alias", None) or field.name for field in fields}
    taken = {aliases[field.name] for field in fields if field.init}
    # attrs calls the argument of a field _n just n. A field n without an argument then has none.
    found = {
        field.name: aliases[field.name]
        for field in fields
        if aliases[field.name] in named and (field.init or aliases[field.name] not in taken)
    }
    required = {
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    unknown = sorted(required - set(found.values()))
    if unknown:
        raise NodeError(f"its constructor needs {', '.join(unknown)}, which is not a field")
    return found


# ---------------------------------------------------------------- renamed fields

_RENAMED_FROM = "millpond.renamed_from"


def renamed_from(old_name: str) -> Mapping[str, str]:
    """Return the metadata of an attrs or dataclass field that used to have another name.

    ``total: float = attrs.field(default=0.0, metadata=mp.renamed_from("sum"))``
    """
    check_type("old_name", old_name, str)
    return {_RENAMED_FROM: old_name}


def renames_of(declared: Any) -> dict[str, str]:
    """Return the old names of fields that are declared as renamed, by new name."""
    fields = _fields(declared) if is_struct(declared) else ()
    old_names = {field.name: field.metadata.get(_RENAMED_FROM, field.name) for field in fields}
    return {name: old for name, old in old_names.items() if old != name}


def exchanged_names(declared: Any) -> list[str]:
    """Return the fields that are declared to have exchanged their names; normally none.

    Values stored before the exchange look like those stored after it, so a name could mean either
    field.
    """
    renames = renames_of(declared)
    for start in renames:
        passed = [start]
        while (old := renames.get(passed[-1])) is not None and old not in passed:
            passed.append(old)
        if old == start:
            return passed
    return []


# ---------------------------------------------------------------- attrs classes, dataclasses


def struct_node(declared: type, nodes: Mapping[str, Node]) -> Node:
    """Return the ``Node`` of an attrs class or a dataclass, from the nodes of the fields.

    Raises:
        NodeError: the class cannot be made again from its fields.
    """
    make = _maker(declared, {name: node.unpack for name, node in nodes.items()})
    pack = _packer(declared, nodes)

    def unpack(plain: Any) -> Any:
        if type(plain) is not dict:
            raise type_error(declared.__name__, plain)
        return make(plain)

    immutable = is_frozen(declared) and all(node.copy is None for node in nodes.values())
    compared: Any = declared.__eq__
    compares_fields = declared.__hash__ is not None and compared is not object.__eq__
    return Node(
        {"struct": {name: node.description for name, node in nodes.items()}},
        declared,
        pack,
        unpack,
        frozenset({"map"}),
        None if immutable else lambda value: unpack(pack(value)),
        hashable=immutable and compares_fields and all(node.hashable for node in nodes.values()),
        field_names=frozenset(nodes),
        sized=any(node.sized for node in nodes.values()),
    )


def _packer(declared: type, nodes: Mapping[str, Node]) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a value to a map of its packed fields.

    Its code is generated: it runs at every write, and a loop takes twice the time.
    """
    odd = [name for name in nodes if not name.isidentifier()]
    if odd:
        raise NodeError(f"the name of its field {odd[0]!r} cannot be read as an attribute")
    entries = [f"{name!r}: pack_{at}(value.{name})" for at, name in enumerate(nodes)]
    values = ", ".join(f"value.{name}" for name in nodes)
    lines = (
        "def pack(value):",
        "    if type(value) is not declared:",
        "        raise wrong_type(declared, value)",
        "    try:",
        f"        return {{{', '.join(entries)}}}",
        "    except StateTypeError as error:",
        f"        raise in_field(nodes, [{values}], error) from None",
    )
    known: dict[str, Any] = {f"pack_{at}": node.pack for at, node in enumerate(nodes.values())}
    known |= {"declared": declared, "wrong_type": wrong_type, "in_field": _in_field}
    known |= {"nodes": nodes, "StateTypeError": StateTypeError}
    exec("\n".join(lines), known)  # noqa: S102 - of identifiers only
    pack: Callable[[Any], dict[str, Any]] = known["pack"]
    return pack


def _in_field(nodes: Mapping[str, Node], values: Iterable[Any], error: StateTypeError) -> Any:
    """Return the error of packing a value of a class, with the path of the field that failed.

    Args:
        nodes: the nodes of the class's fields.
        values: the values of the fields.
        error: the error without the path, which is returned if no field fails now.
    """
    for (name, node), value in zip(nodes.items(), values, strict=True):
        try:
            node.pack(value)
        except StateTypeError as found:
            place = f"{name}.{found.place}" if found.place else name
            return StateTypeError(found.expected, found.value, place=place, reason=found.reason)
    return error


def _maker(
    declared: type, unpacks: Mapping[str, Callable[[Any], Any]]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that makes an instance from the fields' plain values, by name.

    It runs the constructor, which may derive attributes from the fields. If the class has code that
    may change a field (a converter, a post-init), it then sets the stored values again.

    Args:
        declared: the class.
        unpacks: converts the plain value of each field.
    """
    arguments = arguments_by_field(declared)
    constructed = [(n, arguments[n], unpack) for n, unpack in unpacks.items() if n in arguments]

    def construct(plain: Mapping[str, Any]) -> Any:
        return declared(
            **{called: unpack(plain[name]) for name, called, unpack in constructed if name in plain}
        )

    def restore(plain: Mapping[str, Any]) -> Any:
        made = construct(plain)
        for name, unpack in unpacks.items():
            if name in plain:
                object.__setattr__(made, name, unpack(plain[name]))
        return made

    return construct if _keeps_its_arguments(declared, arguments) else restore


def positional_maker(declared: type, names: Sequence[str]) -> Callable[..., Any]:
    """Return a function that makes an instance from the values of all fields, in their order.

    Raises:
        NodeError: the class cannot be made again from its fields.
    """
    arguments = arguments_by_field(declared)
    parameters = inspect.signature(declared).parameters
    in_order = list(parameters) == [arguments.get(name) for name in names]
    by_position = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    if in_order and by_position and _keeps_its_arguments(declared, arguments):
        return declared
    make = _maker(declared, dict.fromkeys(names, lambda value: value))
    return lambda *values: make(dict(zip(names, values, strict=True)))


_GENERATED = ("__init__", "__create_fn__.<locals>.__init__")
"""The qualified names of the constructors that attrs and dataclasses generate."""
_HOOKS = ("__attrs_init__", "__attrs_pre_init__", "__attrs_post_init__", "__post_init__")


def _keeps_its_arguments(declared: Any, arguments: Mapping[str, str]) -> bool:
    """Return whether a constructor only sets every field to its argument.

    Such a constructor was generated by attrs or dataclasses, without converters and hooks.
    """
    fields = _fields(declared)
    code = getattr(declared.__init__, "__code__", None)
    generated = code is not None and code.co_qualname in _GENERATED
    # attrs' generated constructor does not call a __setattr__ that attrs has generated.
    plainly = (
        is_frozen(declared)
        or getattr(declared, "__attrs_own_setattr__", False)
        or declared.__setattr__ is object.__setattr__
    )
    return (
        generated
        and plainly
        and len(arguments) == len(fields)
        and not any(hasattr(declared, hook) for hook in _HOOKS)
        and not any(getattr(field, "converter", None) for field in fields)
    )


# ---------------------------------------------------------------- named tuples


def named_tuple_node(declared: Any, parts: Mapping[str, Node]) -> Node:
    """Return the ``Node`` of a ``typing.NamedTuple``, or of a row type of ``rows.as_declared``.

    Values of a row type may be plain tuples, too.
    """
    nodes = list(parts.values())
    kind = getattr(declared, "_row_type", declared)
    is_row = kind is not declared
    expected = f"a row of {', '.join(parts)}" if is_row else kind.__name__

    def pack(value: Any) -> list[Any]:
        if type(value) is not kind:
            check_class(value)
        if len(value) != len(nodes):
            reason = f"it has {len(value)} values for {len(nodes)} columns"
            raise type_error(expected, value, reason)
        try:
            return [node.pack(part) for node, part in zip(nodes, value, strict=True)]
        except StateTypeError as error:
            raise _in_field(parts, value, error) from None

    def check_class(value: Any) -> None:
        if not is_row:
            raise wrong_type(kind, value)
        # Row types are cached, so another type may have the same columns.
        is_same_row = isinstance(value, Row) and value._fields == kind._fields
        if type(value) is not tuple and not is_same_row:
            raise type_error(expected, value, row_fault(value, kind._fields))

    def unpack(plain: Any) -> Any:
        if type(plain) is not list or len(plain) != len(nodes):
            raise type_error(declared.__name__, plain)
        return kind._make([n.unpack(part) for n, part in zip(nodes, plain, strict=True)])

    # If objects accept more attributes, a cached object could carry them to the next reader.
    immutable = all(node.copy is None for node in nodes) and not kind.__dictoffset__
    made = Node(
        {"namedtuple": {name: node.description for name, node in parts.items()}},
        kind,
        pack,
        unpack,
        frozenset({"list"}),
        None if immutable else lambda value: unpack(pack(value)),
        hashable=kind.__hash__ is not None and all(node.hashable for node in nodes),
        sized=any(node.sized for node in nodes),
    )
    # A subclass of a named tuple may make or read its objects in another way.
    is_plain = is_row or kind.__bases__ == (tuple,)
    return with_plain_parts(made, nodes, kind._make) if is_plain else made
