"""State descriptors: the name, the kind and the types of a state."""

from __future__ import annotations

import enum
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Generic, TypeVar

import attrs
from typing_extensions import override

from millpond.arguments import check_type, typed
from millpond.errors import (
    ArgumentTypeError,
    ConfigError,
    NullValueError,
    StateNameError,
    brief,
)
from millpond.state.ttl.ttl_config import StateTtlConfig
from millpond.types import (
    FindSerializer,
    KeyCodec,
    PicklePermission,
    TypeSerializer,
    custom_codec,
    custom_serializer,
    key_codec_for,
    serializer_for,
)

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "FoldingStateDescriptor",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "StateDescriptor",
    "StateKind",
    "ValueStateDescriptor",
]

IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
T = TypeVar("T")

_MAX_NAME_BYTES = 255
_RESERVED = {"default": "it is the name of the column family that every store already has"}
_RESERVED_PREFIX = "_millpond"
_AGGREGATES = ("create_accumulator", "add", "get_result", "merge")
_TYPES = {"type", "element_type", "value_type", "accumulator_type"}


class StateKind(enum.Enum):
    """The six kinds of keyed state, and timers; the values are written into snapshots."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    FOLDING = "folding"
    TIMER = "timer"


class AggregateFunction(ABC, Generic[IN, ACC, OUT]):
    """How elements become an accumulator, and an accumulator a result."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A fresh accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """The accumulator with one more element; the given one may be changed and returned."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """The result of an accumulator."""

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """The accumulator of the elements of both."""


def check_state_name(name: Any) -> str:
    """Return a usable state name.

    Raises:
        StateNameError: it is empty, too long, reserved, or holds control characters.
    """
    if not isinstance(name, str) or not name:
        raise StateNameError(brief(name), "a state needs a name that is a non-empty string")
    if name in _RESERVED:
        raise StateNameError(name, _RESERVED[name])
    if name.startswith(_RESERVED_PREFIX):
        raise StateNameError(name, f"names that begin with {_RESERVED_PREFIX!r} are Millpond's own")
    reason = misspelling(name)
    if reason:
        raise StateNameError(name, reason)
    return name


def misspelling(name: str) -> str:
    """Why no store can have a family of that name; empty where it can."""
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        return "it holds a control character"
    too_long = len(name.encode()) > _MAX_NAME_BYTES
    return f"it is longer than {_MAX_NAME_BYTES} bytes" if too_long else ""


def _check_name(_: Any, __: Any, name: Any) -> None:
    check_state_name(name)


def _required(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        raise NullValueError(f"{attribute.name} of a state descriptor")


def _resolved(resolve: Callable[[Any], T], declared: Any, state: str) -> T:
    """What a declared type resolves to; an error names the state."""
    try:
        return resolve(declared)
    except ConfigError as error:
        raise ConfigError(error.key, error.reason, place=f"state {state!r}") from None


@attrs.define(slots=False)
class StateDescriptor:
    """What all descriptors share. Raises StateNameError for a name that cannot be used."""

    kind: ClassVar[StateKind]

    name: str = attrs.field(validator=_check_name)
    ttl_config: StateTtlConfig | None = attrs.field(default=None, init=False)
    query_name: str | None = attrs.field(default=None, init=False)

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> StateDescriptor:
        """Let entries expire; changes this descriptor and returns it.

        Raises:
            ConfigError: the state has a default value, or is queryable.
        """
        check_type("ttl_config", ttl_config, StateTtlConfig)
        if getattr(self, "default", None) is not None:
            raise ConfigError(self.name, "TTL and a default value exclude each other", "descriptor")
        if self.query_name is not None:
            raise ConfigError(self.name, "TTL and queryable exclude each other", "descriptor")
        self.ttl_config = ttl_config
        return self

    def set_queryable(self, query_name: str) -> StateDescriptor:
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

    def resolved(self, find: FindSerializer) -> StateDescriptor:
        """This descriptor with the serializers of plugins in place of the types they are for.

        A descriptor may be made before any configuration is known, so the one who has a job's
        plugins does this when the state is requested.
        """
        found: dict[str, Any] = {}
        for name in _TYPES & vars(self).keys():
            made = custom_serializer(getattr(self, name), find)
            if made is not None:
                found[name] = made
        if isinstance(self, MapStateDescriptor):
            codec = custom_codec(self.key_type, find)
            if codec is not None:
                found["key_type"] = codec
        if not found:
            return self
        resolved = copy(self)
        for name, made in found.items():
            setattr(resolved, name, made)
        return resolved

    def bound(self, permission: PicklePermission) -> StateDescriptor:
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
        try:
            return declared.bound(permission)
        except ConfigError as error:
            raise ConfigError(error.key, error.reason, place=f"state {self.name!r}") from None

    def value_serializer(self) -> TypeSerializer[Any]:
        """The serializer of the value, element, map value or accumulator.

        Raises:
            ConfigError: the type cannot be stored.
        """
        raise NotImplementedError

    def map_key_codec(self) -> KeyCodec | None:
        """The codec of the user's map keys; None where the state is no map."""
        return None


@attrs.define(slots=False)
class ValueStateDescriptor(StateDescriptor):
    """One value of ``type``; ``default`` is copied for each read of an empty state."""

    kind: ClassVar[StateKind] = StateKind.VALUE
    type: Any = attrs.field(validator=_required)
    default: Any = None

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.type, self.name)


@attrs.define(slots=False)
class ListStateDescriptor(StateDescriptor):
    """A list of elements of ``element_type``."""

    kind: ClassVar[StateKind] = StateKind.LIST
    element_type: Any = attrs.field(validator=_required)

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.element_type, self.name)


@attrs.define(slots=False)
class MapStateDescriptor(StateDescriptor):
    """A map from ``key_type`` to ``value_type``."""

    kind: ClassVar[StateKind] = StateKind.MAP
    key_type: Any = attrs.field(validator=_required)
    value_type: Any = attrs.field(validator=_required)

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.value_type, self.name)

    @override
    def map_key_codec(self) -> KeyCodec | None:
        return _resolved(key_codec_for, self.key_type, self.name)


@attrs.define(slots=False)
class ReducingStateDescriptor(StateDescriptor):
    """The reduction of elements of ``type`` by ``reduce_function(a, b)``."""

    kind: ClassVar[StateKind] = StateKind.REDUCING
    reduce_function: Callable[[Any, Any], Any] = attrs.field(validator=[_required, typed(Callable)])
    type: Any = attrs.field(validator=_required)

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.type, self.name)


def _instance(function: Any) -> Any:
    is_class = isinstance(function, type) and issubclass(function, AggregateFunction)
    return function() if is_class else function


def _aggregates(_: Any, attribute: attrs.Attribute[Any], function: Any) -> None:
    if isinstance(function, AggregateFunction):
        return
    if any(not callable(getattr(function, name, None)) for name in _AGGREGATES):
        raise ArgumentTypeError(attribute.name, "an AggregateFunction", brief(function))


@attrs.define(slots=False)
class AggregatingStateDescriptor(StateDescriptor):
    """The aggregation by an AggregateFunction, whose accumulator is of ``accumulator_type``."""

    kind: ClassVar[StateKind] = StateKind.AGGREGATING
    aggregate_function: Any = attrs.field(converter=_instance, validator=[_required, _aggregates])
    accumulator_type: Any = attrs.field(validator=_required)

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.accumulator_type, self.name)


@attrs.define(slots=False)
class FoldingStateDescriptor(StateDescriptor):
    """The fold ``fold_function(accumulator, value)`` from ``initial``; both of ``type``."""

    kind: ClassVar[StateKind] = StateKind.FOLDING
    initial: Any = attrs.field(validator=_required)
    fold_function: Callable[[Any, Any], Any] = attrs.field(validator=[_required, typed(Callable)])
    type: Any = attrs.field(validator=_required)

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return _resolved(serializer_for, self.type, self.name)
