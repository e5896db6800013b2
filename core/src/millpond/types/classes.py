"""The fields and nodes of classes, i.e. attrs classes, dataclasses and named tuples.

A ``Node`` converts the values of a type to plain MessagePack values and back.
"""

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
    """Return whether `declared` is an attrs class or a dataclass."""
    return isinstance(declared, type) and (
        attrs.has(declared) or dataclasses.is_dataclass(declared)
    )


def _fields(declared: Any) -> Sequence[Any]:
    return attrs.fields(declared) if attrs.has(declared) else dataclasses.fields(declared)


def is_frozen(declared: type) -> bool:
    """Return whether an attrs class or dataclass is frozen.

    Raises:
        NodeError: a base class is an attrs class, but `declared` itself is not decorated.
    """
    if attrs.has(declared):
        if "__attrs_attrs__" not in vars(declared):
            raise NodeError("only a base of it is an attrs class: decorate it, too")
        return bool(attrs.inspect(declared).is_frozen)
    return bool(declared.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def typed_fields(declared: Any) -> dict[str, Any]:
    """Return the type of each field, by name, of an attrs class, a dataclass or a named tuple.

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
    """Return the names of the fields that may be missing in a stored value.

    These are the fields that have a default. A field is not optional if the class has a constructor
    of its own that requires the field.
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
    """Return whether `default` is a real default, not the marker of attrs or dataclasses."""
    # By type: Spark pickles the class for its workers, which copies dataclasses.MISSING.
    return default is not attrs.NOTHING and not isinstance(default, type(dataclasses.MISSING))


_PLAIN_BASES = (int, str, float, bytes, list, dict, tuple, set, frozenset, BaseException)


def arguments_by_field(declared: type) -> dict[str, str]:
    """Return the name of the constructor's argument for each field that the constructor accepts.

    Raises:
        NodeError: the constructor requires an argument that is not a field, or the class is also a
            container, scalar or exception.
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
    # In attrs, the argument of a field _n is called n. Another field n then has no argument.
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
    """Return the metadata that marks an attrs or dataclass field as renamed from `old_name`.

    ``total: float = attrs.field(default=0.0, metadata=mp.renamed_from("sum"))``
    """
    check_type("old_name", old_name, str)
    return {_RENAMED_FROM: old_name}


def renames_of(declared: Any) -> dict[str, str]:
    """Return the old name of each field that is marked with ``renamed_from``, by its new name."""
    fields = _fields(declared) if is_struct(declared) else ()
    old_names = {field.name: field.metadata.get(_RENAMED_FROM, field.name) for field in fields}
    return {name: old for name, old in old_names.items() if old != name}


def exchanged_names(declared: Any) -> list[str]:
    """Return fields that are marked as having exchanged their names, or an empty list.

    Such a class is ambiguous: a stored name could mean either field, because values stored before
    and after the exchange look the same.
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
    """Return the ``Node`` of the attrs class or dataclass `declared`.

    Args:
        declared: the class.
        nodes: the node of each field, by name.

    Raises:
        NodeError: the constructor cannot create an instance from the fields.
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
    """Return a function that converts an instance of `declared` to a dict of packed fields.

    The function is compiled from generated code, because a loop over the fields takes twice the
    time.
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
    """Return `error` with the path of the field that cannot be packed.

    Args:
        nodes: the node of each field, by name.
        values: the value of each field.
        error: the error without a path, which is returned if all fields can be packed now.
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
    """Return a function that creates an instance of `declared` from its stored fields.

    The function calls the constructor. If the class has a converter or a post-init method, which
    may change a field, the function then sets all fields to their stored values.

    Args:
        declared: the class.
        unpacks: for each field, by name, a function that converts the plain value.
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
    """Return a function that creates an instance of `declared` from the values of its fields.

    Args:
        declared: the class.
        names: the names of all fields, in the order of the function's arguments.

    Raises:
        NodeError: the constructor cannot create an instance from the fields.
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
    """Return whether the constructor only assigns each argument to a field.

    This is true if attrs or dataclasses generated the constructor, and there are no converters or
    hooks such as a post-init method.
    """
    fields = _fields(declared)
    code = getattr(declared.__init__, "__code__", None)
    generated = code is not None and code.co_qualname in _GENERATED
    # If attrs generated __setattr__, its generated constructor does not call it.
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
    """Return the ``Node`` of a ``typing.NamedTuple``, or of a class from ``rows.as_declared``.

    A class from ``rows.as_declared`` declares rows with column names. Its node also accepts plain
    tuples.

    Args:
        declared: the class.
        parts: the node of each field or column, by name.
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
        # The cache of row types drops old ones, so two types may have the same columns.
        is_same_row = isinstance(value, Row) and value._fields == kind._fields
        if type(value) is not tuple and not is_same_row:
            raise type_error(expected, value, row_fault(value, kind._fields))

    def unpack(plain: Any) -> Any:
        if type(plain) is not list or len(plain) != len(nodes):
            raise type_error(declared.__name__, plain)
        return kind._make([n.unpack(part) for n, part in zip(nodes, plain, strict=True)])

    # An instance with a __dict__ may get extra attributes. If instances were shared without a
    # copy, the next reader would see these attributes.
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
    # A subclass of a named tuple may override how its instances are created or read.
    is_plain = is_row or kind.__bases__ == (tuple,)
    return with_plain_parts(made, nodes, kind._make) if is_plain else made
