"""The nodes of classes: attrs classes, dataclasses, msgspec structs, pydantic models and others.

A ``Node`` converts the values of a type to plain MessagePack values and back.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from millpond.errors import StateTypeError, brief
from millpond.types.class_fields import (
    arguments_by_field,
    constructor_fields,
    has_field_equality,
    is_frozen,
    is_msgspec_struct,
    is_pydantic_model,
    missing_keys,
    model_fields,
)
from millpond.types.nodes import Node, NodeError, with_plain_parts
from millpond.types.rows import Row, row_fault
from millpond.types.scalar_base import type_error, wrong_type

# ---------------------------------------------------------------- classes with attributes


def struct_node(declared: type, nodes: Mapping[str, Node], *, recursive: bool) -> Node:
    """Return the ``Node`` of `declared`, a class whose instances have fields as attributes.

    Args:
        declared: the class.
        nodes: the node of each field, by name.
        recursive: whether an instance may contain instances of the class.

    Raises:
        NodeError: the constructor cannot create an instance from the fields.
    """
    if recursive and not _is_exact(declared):
        # Such an instance is unpacked twice, so each level of a value would double the work.
        raise NodeError(
            "it holds itself, and its constructor may change its fields; remove its converters and "
            "its post-init method, or give a TypeSerializer"
        )
    make = _maker(declared, {name: node.unpack for name, node in nodes.items()})
    pack = _packer(declared, nodes)

    def unpack(plain: Any) -> Any:
        if type(plain) is not dict:
            raise type_error(declared.__name__, plain)
        return make(plain)

    immutable = is_frozen(declared) and all(node.copy is None for node in nodes.values())
    compares_fields = declared.__hash__ is not None and has_field_equality(declared)
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
    odd = [name for name in nodes if not name.isidentifier() or keyword.iskeyword(name)]
    if odd:
        raise NodeError(f"the name of its field {odd[0]!r} cannot be read as an attribute")
    # Each field has a line of its own, so the traceback of an error shows the field.
    lines = (
        "def pack(value):",
        "    if type(value) is not declared:",
        "        raise wrong_type(declared, value)",
        "    try:",
        "        return {",
        *(f"            {name!r}: pack_{at}(value.{name})," for at, name in enumerate(nodes)),
        "        }",
        "    except StateTypeError as error:",
        f"        line = error.__traceback__.tb_lineno - {_LINES_BEFORE_FIELDS}",
        "        raise in_field(names[line], error) from None",
    )
    known: dict[str, Any] = {f"pack_{at}": node.pack for at, node in enumerate(nodes.values())}
    known |= {"declared": declared, "wrong_type": wrong_type, "in_field": _in_field}
    known |= {"names": list(nodes), "StateTypeError": StateTypeError}
    exec("\n".join(lines), known)  # noqa: S102 - of identifiers only
    pack: Callable[[Any], dict[str, Any]] = known["pack"]
    return pack


_LINES_BEFORE_FIELDS = 6
"""The number of the generated line with the first field."""


def _in_field(name: str, error: StateTypeError) -> StateTypeError:
    """Return `error` with the name of the field that cannot be packed in front of its place."""
    place = f"{name}.{error.place}" if error.place else name
    return StateTypeError(error.expected, error.value, place=place, reason=error.reason)


def packed_field(name: str, node: Node, value: Any) -> Any:
    """Return the packed value of a field; an error names the field."""
    try:
        return node.pack(value)
    except StateTypeError as error:
        raise _in_field(name, error) from None


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
    if is_pydantic_model(declared):
        return _model_maker(declared, unpacks)
    arguments = arguments_by_field(declared)
    set_field = msgspec.structs.force_setattr if is_msgspec_struct(declared) else object.__setattr__
    constructed = [(n, arguments[n], unpack) for n, unpack in unpacks.items() if n in arguments]

    def construct(plain: Mapping[str, Any]) -> Any:
        return declared(
            **{called: unpack(plain[name]) for name, called, unpack in constructed if name in plain}
        )

    def restore(plain: Mapping[str, Any]) -> Any:
        made = construct(plain)
        for name, unpack in unpacks.items():
            if name in plain:
                set_field(made, name, unpack(plain[name]))
        return made

    return construct if _is_exact(declared) else restore


def _model_maker(
    declared: Any, unpacks: Mapping[str, Callable[[Any], Any]]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function like that of ``_maker`` for a pydantic model.

    It sets the fields as pickle does. So no validator can change a stored value.
    """
    fields = model_fields(declared)

    def missing(name: str, values: dict[str, Any]) -> Any:
        if fields[name].is_required():
            raise type_error(declared.__name__, values, f"the field {name} is missing")
        return fields[name].get_default(call_default_factory=True, validated_data=values)

    def make(plain: Mapping[str, Any]) -> Any:
        values: dict[str, Any] = {}
        for name, unpack in unpacks.items():
            values[name] = unpack(plain[name]) if name in plain else missing(name, values)
        made = declared.__new__(declared)
        made.__setstate__(
            {
                "__dict__": values,
                "__pydantic_fields_set__": set(values),
                "__pydantic_extra__": None,
                "__pydantic_private__": None,
            }
        )
        return made

    return make


def positional_maker(declared: type, names: Sequence[str]) -> Callable[..., Any]:
    """Return a function that creates an instance of `declared` from the values of its fields.

    Args:
        declared: the class.
        names: the names of all fields, in the order of the function's arguments.

    Raises:
        NodeError: the constructor cannot create an instance from the fields.
    """
    if not is_pydantic_model(declared) and not is_msgspec_struct(declared):
        arguments = arguments_by_field(declared)
        parameters = inspect.signature(declared).parameters
        in_order = list(parameters) == [arguments.get(name) for name in names]
        by_position = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        if in_order and by_position and _is_exact(declared):
            return declared
    make = _maker(declared, dict.fromkeys(names, lambda value: value))
    return lambda *values: make(dict(zip(names, values, strict=True)))


_GENERATED = ("__init__", "__create_fn__.<locals>.__init__")
"""The qualified names of the constructors that attrs and dataclasses generate."""
_HOOKS = ("__attrs_init__", "__attrs_pre_init__", "__attrs_post_init__", "__post_init__")


def _is_exact(declared: Any) -> bool:
    """Return whether an instance is made with exactly the given values of its fields.

    This is true for pydantic models. It is true for other classes if their constructor was
    generated, and there are no converters or hooks such as a post-init method.
    """
    if is_pydantic_model(declared):
        return True
    fields = constructor_fields(declared)
    code = getattr(declared.__init__, "__code__", None)
    generated = code is not None and code.co_qualname in _GENERATED
    # If attrs generated __setattr__, its generated constructor does not call it.
    plainly = (
        is_frozen(declared)
        or getattr(declared, "__attrs_own_setattr__", False)
        or declared.__setattr__ is object.__setattr__
    )
    if is_msgspec_struct(declared):  # its constructor is written in C and sets no attributes
        generated, plainly = declared.__init__ is msgspec.Struct.__init__, True
    return (
        generated
        and plainly
        and len(arguments_by_field(declared)) == len(fields)
        and not any(hasattr(declared, hook) for hook in _HOOKS)
        and not any(field.converter for field in fields)
    )


# ---------------------------------------------------------------- TypedDicts


def typed_dict_node(declared: Any, nodes: Mapping[str, Node]) -> Node:
    """Return the ``Node`` of a TypedDict, given the node of each key's value."""
    optional = missing_keys(declared)
    required = nodes.keys() - optional

    def pack(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise type_error(declared.__name__, value)
        if not required <= value.keys() <= nodes.keys() or not set(map(type, value)) <= {str}:
            lacks = [f"it lacks {brief(name)}" for name in sorted(required - value.keys())]
            odd = [f"it has {brief(k)}" for k in value if type(k) is not str or k not in nodes]
            raise type_error(declared.__name__, value, ", ".join(lacks + odd))
        return {
            name: packed_field(name, node, value[name])
            for name, node in nodes.items()
            if name in value
        }

    def unpack(plain: Any) -> dict[str, Any]:
        if type(plain) is not dict or not required <= plain.keys():
            raise type_error(declared.__name__, plain)
        return {name: node.unpack(plain[name]) for name, node in nodes.items() if name in plain}

    return Node(
        {
            "struct": {
                name: {"not_required": node.description} if name in optional else node.description
                for name, node in nodes.items()
            }
        },
        dict,
        pack,
        unpack,
        frozenset({"map"}),
        lambda value: unpack(pack(value)),
        hashable=False,
        field_names=None if optional else frozenset(nodes),
        sized=True,
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
    names, nodes = list(parts), list(parts.values())
    packs = [node.pack for node in nodes]
    kind = getattr(declared, "_row_type", declared)
    is_row = kind is not declared
    expected = f"a row of {', '.join(parts)}" if is_row else kind.__name__

    def pack(value: Any) -> list[Any]:
        if type(value) is not kind:
            check_class(value)
        if len(value) != len(nodes):
            reason = f"it has {len(value)} values for {len(nodes)} columns"
            raise type_error(expected, value, reason)
        return _pack_all(names, packs, value)

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


def _pack_all(
    names: Sequence[str], packs: Sequence[Callable[[Any], Any]], values: Sequence[Any]
) -> list[Any]:
    """Return the packed values of a named tuple, given the names and functions of its fields."""
    packed: list[Any] = []
    try:
        for pack, value in zip(packs, values, strict=True):
            packed.append(pack(value))
    except StateTypeError as error:
        raise _in_field(names[len(packed)], error) from None
    return packed
