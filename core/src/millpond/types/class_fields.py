"""The fields of classes: their names, types, defaults and old names.

The classes are attrs classes, dataclasses, msgspec structs, pydantic models, named tuples and
TypedDicts. This module never imports pydantic: a model's class exists only after that.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin

import attrs
import msgspec
from typing_extensions import ReadOnly, get_type_hints, is_typeddict, override

from millpond.arguments import check_type
from millpond.types.declared_types import is_union
from millpond.types.nodes import NodeError


def is_pydantic_model(declared: Any) -> bool:
    """Return whether `declared` is a model of pydantic 2."""
    base = getattr(sys.modules.get("pydantic.main"), "BaseModel", None)
    return base is not None and isinstance(declared, type) and issubclass(declared, base)


def is_msgspec_struct(declared: Any) -> bool:
    """Return whether `declared` is a subclass of ``msgspec.Struct``."""
    return isinstance(declared, type) and issubclass(declared, msgspec.Struct)


def is_struct(declared: Any) -> bool:
    """Return whether `declared` is a class whose instances have fields as attributes.

    These are attrs classes, dataclasses, msgspec structs and pydantic models.
    """
    return isinstance(declared, type) and (
        attrs.has(declared)
        or dataclasses.is_dataclass(declared)
        or is_msgspec_struct(declared)
        or is_pydantic_model(declared)
    )


def is_frozen(declared: type[Any]) -> bool:
    """Return whether a class for which ``is_struct`` is true is frozen.

    Raises:
        NodeError: a base class is an attrs class, but `declared` itself is not decorated.
    """
    if attrs.has(declared):
        if "__attrs_attrs__" not in vars(declared):
            raise NodeError("only a base of it is an attrs class: decorate it, too")
        return bool(attrs.inspect(declared).is_frozen)
    if is_msgspec_struct(declared):
        return bool(declared.__struct_config__.frozen)
    if is_pydantic_model(declared):
        return bool(declared.model_config.get("frozen"))
    return bool(declared.__dataclass_params__.frozen)


def has_field_equality(declared: type[Any]) -> bool:
    """Return whether instances of a class are compared by their fields, not by identity."""
    if is_msgspec_struct(declared):
        inherited: Any = declared.__eq__
        return bool(declared.__struct_config__.eq) or inherited is not msgspec.Struct.__eq__
    compared: Any = declared.__eq__
    return compared is not object.__eq__


@attrs.frozen
class _Field:
    """A field of an attrs class, a dataclass or a msgspec struct.

    Attributes:
        name: the field's name.
        argument: the name of the constructor's argument.
        has_default: whether the field has a default value or a default factory.
        init: whether the generated constructor takes the argument.
        converter: the converter of an attrs field, or None.
        metadata: the metadata of the field.
    """

    name: str
    argument: str
    has_default: bool
    init: bool = True
    converter: Any = None
    metadata: Mapping[Any, Any] = attrs.Factory(dict)


def constructor_fields(declared: Any) -> list[_Field]:
    """Return the fields of an attrs class, a dataclass or a msgspec struct."""
    if attrs.has(declared):
        return [
            _Field(
                field.name,
                field.alias or field.name,
                field.default is not attrs.NOTHING,
                field.init,
                field.converter,
                field.metadata,
            )
            for field in attrs.fields(declared)
        ]
    if is_msgspec_struct(declared):
        # `msgspec.structs.fields` and the signature fail if an annotation cannot be evaluated.
        names, defaults = declared.__struct_fields__, declared.__struct_defaults__
        required = [msgspec.NODEFAULT] * (len(names) - len(defaults))
        return [
            _Field(name, name, default is not msgspec.NODEFAULT)
            for name, default in zip(names, (*required, *defaults), strict=True)
        ]
    return [
        _Field(
            field.name,
            field.name,
            _is_given(field.default) or _is_given(field.default_factory),
            field.init,
            metadata=field.metadata,
        )
        for field in dataclasses.fields(declared)
    ]


def _is_given(default: object) -> bool:
    """Return whether `default` is a real default, not the marker of dataclasses."""
    # By type: Spark pickles the class for its workers, which copies dataclasses.MISSING.
    return not isinstance(default, type(dataclasses.MISSING))


def model_fields(declared: Any) -> Mapping[str, Any]:
    """Return pydantic's description of each field of a model, by name.

    Raises:
        NodeError: the types of the fields cannot be found, or an instance has values that are not
            fields.
    """
    if not declared.__pydantic_complete__:
        declared.model_rebuild(raise_errors=False)
    if not declared.__pydantic_complete__:
        raise NodeError("the types of its fields cannot be found: call its model_rebuild()")
    if declared.model_config.get("extra") == "allow":
        raise NodeError("its configuration allows extra fields, which have no type")
    if declared.__private_attributes__:
        names = ", ".join(declared.__private_attributes__)
        raise NodeError(f"its private attributes ({names}) are no fields, but compared by ==")
    fields: Mapping[str, Any] = declared.model_fields
    return fields


def field_names(declared: Any) -> tuple[str, ...] | None:
    """Return the names of a class's fields in their order, or None if it is no class with fields.

    A TypedDict counts as a class with fields, and so does a class of ``rows.as_declared``.
    """
    if is_typeddict(declared):
        return tuple(declared.__annotations__)
    if is_pydantic_model(declared):
        return tuple(declared.model_fields)
    if is_struct(declared):
        return tuple(field.name for field in constructor_fields(declared))
    names = getattr(declared, "_fields", None) if isinstance(declared, type) else None
    return None if names is None else tuple(names)


def typed_fields(declared: Any) -> dict[str, Any]:
    """Return the type of each field, by name, of a class that has fields.

    Raises:
        NodeError: a field has no type, or its type cannot be found.
    """
    if is_pydantic_model(declared):
        return {name: info.annotation for name, info in model_fields(declared).items()}
    names = field_names(declared) or ()
    hints = _hints(declared)
    try:
        return {name: hints[name] for name in names}
    except KeyError as error:
        cure = "" if is_struct(declared) else ": a typing.NamedTuple has them"
        raise NodeError(f"its field {error} has no type{cure}") from None


def _hints(declared: Any, *, extras: bool = False) -> dict[str, Any]:
    """Return the annotations of a class; with ``Annotated`` and ``NotRequired`` if `extras`.

    Raises:
        NodeError: an annotation cannot be evaluated.
    """
    try:
        try:
            return get_type_hints(declared, include_extras=extras)
        except NameError:
            # A class that is defined in a function, or that Spark has pickled, is no global name.
            own = {declared.__name__: declared}
            return get_type_hints(declared, localns=own, include_extras=extras)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise NodeError(f"the types of its fields cannot be found: {error}") from None


def missing_keys(declared: Any) -> frozenset[str]:
    """Return the names of the keys that may be missing in a value; only a TypedDict has such keys.

    The qualifiers in the annotations are more reliable than ``__optional_keys__``: with ``from
    __future__ import annotations`` the latter does not know them.
    """
    if not is_typeddict(declared):
        return frozenset()
    found = set(declared.__optional_keys__)
    for name, hint in _hints(declared, extras=True).items():
        qualifiers = {get_origin(part) for part in _wrappers(hint)}
        if NotRequired in qualifiers:
            found.add(name)
        elif Required in qualifiers:
            found.discard(name)
    return frozenset(found)


def may_be_missing(description: Any) -> bool:
    """Return whether a described field belongs to ``missing_keys``; see ``Node.description``."""
    return isinstance(description, dict) and "not_required" in description


def _wrappers(hint: Any) -> Iterator[Any]:
    """Yield the ``Annotated`` types and qualifiers around a type, or around members of a union."""
    if is_union(hint):
        for part in get_args(hint):
            yield from _wrappers(part)
    elif get_origin(hint) in (Annotated, NotRequired, Required, ReadOnly):
        yield hint
        yield from _wrappers(get_args(hint)[0])


def optional_fields(declared: Any) -> set[str]:
    """Return the names of the fields that may be missing in a stored value.

    These are the fields that have a default, and the keys that may be missing in a TypedDict. A
    field is not optional if the class has a constructor of its own that requires the field.
    """
    if is_typeddict(declared):
        return set(missing_keys(declared))
    if is_pydantic_model(declared):
        return {name for name, info in model_fields(declared).items() if not info.is_required()}
    if not is_struct(declared):
        return set(declared._field_defaults)
    if is_msgspec_struct(declared):
        return {field.name for field in constructor_fields(declared) if field.has_default}
    parameters = inspect.signature(declared).parameters
    required = {
        name
        for name, argument in arguments_by_field(declared).items()
        if parameters[argument].default is inspect.Parameter.empty
    }
    return {field.name for field in constructor_fields(declared) if field.has_default} - required


_PLAIN_BASES = (int, str, float, bytes, list, dict, tuple, set, frozenset, BaseException)


def arguments_by_field(declared: type) -> dict[str, str]:
    """Return the name of the constructor's argument for each field that the constructor accepts.

    The constructor of a msgspec struct accepts all fields. So does the function that makes pydantic
    models, which do not use their constructor.

    Raises:
        NodeError: the constructor requires an argument that is not a field, or the class is also a
            container, scalar or exception.
    """
    if issubclass(declared, _PLAIN_BASES):
        raise NodeError("it is a container, scalar or exception too, whose content is not a field")
    if is_pydantic_model(declared) or is_msgspec_struct(declared):
        return {name: name for name in field_names(declared) or ()}
    try:
        parameters = inspect.signature(declared).parameters.values()
    except (TypeError, ValueError) as error:
        raise NodeError(f"its constructor has no signature: {error}") from None
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    fields = constructor_fields(declared)
    taken = {field.argument for field in fields if field.init}
    # In attrs, the argument of a field _n is called n. Another field n then has no argument.
    found = {
        field.name: field.argument
        for field in fields
        if field.argument in named and (field.init or field.argument not in taken)
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


class _Renamed(dict[str, str]):
    """The mark of a renamed field. It has a hash, which parts of a union's annotations need."""

    @override
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def renamed_from(old_name: str) -> Mapping[str, str]:
    """Return the mark of a field that was renamed from `old_name`.

    The mark is the metadata of a field of an attrs class or a dataclass:
    ``total: float = attrs.field(default=0.0, metadata=mp.renamed_from("sum"))``. In any class it
    can also be a part of the annotation: ``total: Annotated[float, mp.renamed_from("sum")]``.
    """
    check_type("old_name", old_name, str)
    return _Renamed({_RENAMED_FROM: old_name})


def renames_of(declared: Any) -> dict[str, str]:
    """Return the old name of each field that is marked with ``renamed_from``, by its new name."""
    renames = {}
    for name, marks in _marks_of(declared).items():
        for mark in marks:
            old = mark.get(_RENAMED_FROM, name) if isinstance(mark, Mapping) else name
            if old != name:
                renames[name] = old
    return renames


def _marks_of(declared: Any) -> dict[str, list[Any]]:
    """Return the metadata of each field, by name: of the field and of its annotation."""
    if is_pydantic_model(declared):
        infos = model_fields(declared)
        marks = {name: _metadata(info.annotation) + info.metadata for name, info in infos.items()}
    else:
        hints = _hints(declared, extras=True)
        marks = {name: _metadata(hints[name]) for name in field_names(declared) or ()}
        for field in constructor_fields(declared) if is_struct(declared) else ():
            marks[field.name].append(field.metadata)
    return marks


def _metadata(hint: Any) -> list[Any]:
    return [mark for part in _wrappers(hint) for mark in getattr(part, "__metadata__", ())]


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
