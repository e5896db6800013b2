"""What all state descriptors share: the name, the kind, time to live, a name for queries."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Generic, Self

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.errors import ConfigError, NullValueError
from millpond.state.interfaces import State
from millpond.state.names import check_state_name
from millpond.state.state_kinds import StateKind
from millpond.state.ttl.ttl_config import StateTtlConfig
from millpond.types import (
    FindSerializer,
    KeyCodec,
    PicklePermission,
    TypeSerializer,
    custom_codec,
    custom_serializer,
)
from millpond.types.custom import CustomSerializer
from millpond.types.scalars import ScalarSerializer

__all__ = ["StateDescriptor", "described", "required", "resolved_type", "same_declaration"]

C = TypeVar("C", bound=type)
T = TypeVar("T")
S_co = TypeVar("S_co", bound=State, default=Any, covariant=True)

_TYPES = {"type", "element_type", "value_type", "accumulator_type"}


def _check_name(_: Any, __: Any, name: Any) -> None:
    check_state_name(name)


def required(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A validator: the argument is not None."""
    if value is None:
        raise NullValueError(f"{attribute.name} of a state descriptor")


def resolved_type(resolve: Callable[[Any], T], declared: Any, state: str) -> T:
    """What a declared type resolves to; an error names the state."""
    try:
        return resolve(declared)
    except ConfigError as error:
        raise ConfigError(error.key, error.reason, place=f"state {state!r}") from None


def described(descriptor: C) -> C:
    """Make a descriptor of a class: attrs writes all but what type checkers see of ``__init__``.

    That is declared beside the fields: mypy joins a field's types into one, under which it does
    not see that ``int | None`` is a type.
    """
    attrs.define(descriptor, slots=False, eq=False)
    return descriptor


@described
class StateDescriptor(Generic[S_co]):
    """What all descriptors share, generic in the kind of state that they describe.

    Type checkers know the state from its descriptor: ``ValueStateDescriptor("spent", float)``
    describes a ``ValueState[float]``. A type that only a running program knows makes it ``Any``.

    As in Flink, descriptors of one class and one name are equal, whatever types they declare.

    Raises:
        StateNameError: the name cannot be used.
    """

    kind: ClassVar[StateKind]

    name: str = attrs.field(validator=_check_name)
    ttl_config: StateTtlConfig | None = attrs.field(default=None, init=False)
    query_name: str | None = attrs.field(default=None, init=False)

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.name == self.name

    @override
    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def get_name(self) -> str:
        """PyFlink's alias of ``name``."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> Self:
        """Let entries expire; changes this descriptor and returns it.

        ``UpdateType.DISABLED`` takes back what was set before.

        Raises:
            ConfigError: the state has a default value, or is queryable.
        """
        check_type("ttl_config", ttl_config, StateTtlConfig)
        if not ttl_config.is_enabled():
            self.ttl_config = None
            return self
        if getattr(self, "default", None) is not None:
            raise ConfigError(self.name, "TTL and a default value exclude each other", "descriptor")
        if self.query_name is not None:
            raise ConfigError(self.name, "TTL and queryable exclude each other", "descriptor")
        self.ttl_config = ttl_config
        return self

    def set_queryable(self, query_name: str) -> Self:
        """Publish this state for queries under a name; changes this descriptor, returns it.

        Raises:
            ConfigError: it was set before, or the state has a TTL.
        """
        if self.query_name is not None:
            raise ConfigError(self.name, "is queryable already", "descriptor")
        if self.ttl_config is not None:
            raise ConfigError(self.name, "TTL and queryable exclude each other", "descriptor")
        self.query_name = check_state_name(query_name)
        return self

    def resolved(self, find: FindSerializer) -> Self:
        """This descriptor with the serializers of plugins in place of the types they are for.

        A descriptor may be made before any configuration is known, so the one who has a job's
        plugins does this when the state is requested.
        """
        found: dict[str, Any] = {}
        for name in _TYPES & vars(self).keys():
            made = custom_serializer(getattr(self, name), find)
            if made is not None:
                found[name] = made
        if "key_type" in vars(self):
            codec = custom_codec(vars(self)["key_type"], find)
            if codec is not None:
                found["key_type"] = codec
        if not found:
            return self
        resolved = copy(self)
        for name, made in found.items():
            setattr(resolved, name, made)
        return resolved

    def bound(self, permission: PicklePermission) -> Self:
        """This descriptor as one backend uses it; see ``TypeSerializer.bound``.

        Raises:
            ConfigError: it stores pickles, and decoding them is not allowed.
        """
        bound = copy(self)
        for name in (_TYPES | {"key_type"}) & vars(self).keys():
            declared = getattr(self, name)
            if isinstance(declared, (TypeSerializer, KeyCodec)):
                setattr(bound, name, self._bound(declared, permission))
        return bound

    def _bound(self, declared: Any, permission: PicklePermission) -> Any:
        place = f"state {self.name!r}"
        try:
            bound = declared.bound(permission)
        except ConfigError as error:
            raise ConfigError(error.key, error.reason, place=place) from None
        own = isinstance(bound, (KeyCodec, ScalarSerializer))
        return bound if own else CustomSerializer(bound, place)

    def value_serializer(self) -> TypeSerializer[Any]:
        """The serializer of the value, element, map value or accumulator.

        Raises:
            ConfigError: the type cannot be stored.
        """
        raise NotImplementedError

    def map_key_codec(self) -> KeyCodec | None:
        """The codec of the user's map keys; None where the state is not a map."""
        return None


def same_declaration(one: StateDescriptor, other: StateDescriptor) -> bool:
    """Whether two descriptors declare the same state in all: name, types, functions, TTL."""
    fields = attrs.fields(type(one))  # type: ignore[arg-type]  # made by ``described``
    return one == other and all(
        getattr(one, field.name) == getattr(other, field.name) for field in fields
    )
