"""State descriptors, which declare the name, types, TTL and query name of a state.

A new kind of state needs a member of ``StateKind`` and a descriptor here, an interface
(``state.interfaces``), a state over tables (``backend.states``), wrappers for TTL and metrics
(``state.ttl``, ``state.metrics``), a method of the runtime context (``functions.functions``),
columns in savepoints (``savepoints.state_tables``), and a descriptor for tools
(``local.queryable``).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, overload

import attrs
from typing_extensions import TypeForm, TypeVar, override

from millpond.arguments import check_type, typed
from millpond.errors import ArgumentTypeError, ConfigError, NullValueError, brief, shown
from millpond.state.interfaces import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    SortedMapState,
    State,
    ValueState,
)
from millpond.state.names import check_state_name
from millpond.state.ttl.ttl_config import StateTtlConfig
from millpond.types import (
    DeclaredKeyType,
    DeclaredType,
    FindSerializer,
    KeyCodec,
    PicklePermission,
    TypeSerializer,
    key_codec_for,
    serializer_for,
)
from millpond.types.custom_serializer import CustomSerializer
from millpond.types.scalar_base import ScalarSerializer


class StateKind(enum.Enum):
    """The six kinds of keyed state, and timers. Snapshots contain the value of a member.

    A sorted map has the kind of a map, so snapshots store both in the same way.
    """

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    FOLDING = "folding"
    TIMER = "timer"


R = TypeVar("R")
S_co = TypeVar("S_co", bound=State, default=Any, covariant=True)


def _check_name(_: Any, __: Any, name: Any) -> None:
    check_state_name(name)


def required(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Raise NullValueError if an argument of a descriptor is None."""
    if value is None:
        raise NullValueError(f"{attribute.name} of a state descriptor")


@attrs.define(slots=False, eq=False)
class StateDescriptor(Generic[S_co]):
    """The base class of all descriptors. The type argument is the class of the described state.

    Type checkers infer the class of the state from its descriptor: ``ValueStateDescriptor("spent",
    float)`` describes a ``ValueState[float]``. If the type is given by a variable of type ``Any``,
    the descriptor describes a ``ValueState[Any]``.

    As in Flink, descriptors of the same class and name are equal, even if their types differ.

    Raises:
        StateNameError: the name cannot be used.
    """

    kind: ClassVar[StateKind]
    value_field: ClassVar[str] = "type"
    """The name of the attribute that contains the type of the stored values."""
    is_sorted: ClassVar[bool] = False
    """Whether the state is a sorted map."""

    name: str = attrs.field(validator=_check_name)
    ttl_config: StateTtlConfig | None = attrs.field(default=None, init=False)
    query_name: str | None = attrs.field(default=None, init=False)

    @override
    def __init_subclass__(cls) -> None:
        # Each subclass declares the signature of ``__init__`` for type checkers. Types and
        # serializers are separate overloads, because mypy rejects ``int | None`` otherwise.
        super().__init_subclass__()
        attrs.define(cls, slots=False, eq=False)

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.name == self.name

    @override
    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def get_name(self) -> str:
        """Return ``name``. This is PyFlink's method."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> Self:
        """Let the entries of the state expire; change this descriptor and return it.

        If the update type is ``UpdateType.DISABLED``, remove the time to live.

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
        """Publish the state for queries as `query_name`; change this descriptor and return it.

        Raises:
            ConfigError: the state is already queryable, or has a time to live.
        """
        if self.query_name is not None:
            raise ConfigError(self.name, "is already queryable", "descriptor")
        if self.ttl_config is not None:
            raise ConfigError(self.name, "TTL and queryable exclude each other", "descriptor")
        self.query_name = check_state_name(query_name)
        return self

    def resolved(self, find: FindSerializer, permission: PicklePermission) -> Self:
        """Return a copy of this descriptor with serializers and codecs instead of types.

        The backend calls this method when a function requests the state, because the descriptor may
        have been created before the plugins were configured. The serializers decode pickles only
        with `permission`.

        Args:
            find: a function that returns a plugin's serializer for a type.
            permission: the permission to decode pickles.

        Raises:
            ConfigError: a type cannot be stored, or the state stores pickles and `permission` does
                not allow to decode them.
        """
        resolved = copy(self)

        def bound(serializer: TypeSerializer[Any]) -> TypeSerializer[Any]:
            made = serializer.bind(permission)
            own = isinstance(made, ScalarSerializer)
            return made if own else CustomSerializer(made, f"state {self.name!r}")

        def found(part: type) -> TypeSerializer[Any] | None:
            serializer = find(part)
            return None if serializer is None else bound(serializer)

        def serializer_of(declared: Any) -> TypeSerializer[Any]:
            given = isinstance(declared, TypeSerializer)
            return bound(declared) if given else serializer_for(declared, found)

        def codec_of(declared: Any) -> KeyCodec:
            return key_codec_for(declared, found).bind(permission)

        setattr(resolved, self.value_field, self._resolved_type(serializer_of, self.value_field))
        if hasattr(self, "key_type"):
            codec = self._resolved_type(codec_of, "key_type")
            setattr(resolved, "key_type", codec)  # noqa: B010 - only some classes have it
        return resolved

    def value_serializer(self) -> TypeSerializer[Any]:
        """Return the serializer of the state's value, list element, map value or accumulator.

        Raises:
            ConfigError: the type cannot be stored.
        """
        return self._resolved_type(serializer_for, self.value_field)

    def map_key_codec(self) -> KeyCodec | None:
        """Return the codec of the map keys, or None if the state is not a map."""
        return None

    def _resolved_type(self, resolve: Callable[[Any], R], field: str) -> R:
        try:
            return resolve(getattr(self, field))
        except ConfigError as error:
            place = f"state {self.name!r}"
            raise ConfigError(error.key, error.reason, place=place) from None


def same_declaration(one: StateDescriptor, other: StateDescriptor) -> bool:
    """Return whether two descriptors are equal in class, name, types, functions and TTL."""
    fields = attrs.fields(type(one))
    return one == other and all(
        getattr(one, field.name) == getattr(other, field.name) for field in fields
    )


IN = TypeVar("IN", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)


class AggregateFunction(ABC, Generic[IN, ACC, OUT]):
    """A function that adds elements to an accumulator, and computes a result from it."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return a new accumulator."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with `value` added. The method may modify `accumulator`."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result for an accumulator."""

    @abstractmethod
    def merge(self, a: ACC, b: ACC) -> ACC:
        """Return an accumulator with the elements of both `a` and `b`."""


class ValueStateDescriptor(StateDescriptor[ValueState[T]]):
    """The descriptor of a state with one value.

    If no value is stored, reads return a copy of ``default``.
    """

    kind: ClassVar[StateKind] = StateKind.VALUE
    type: DeclaredType[T] = attrs.field(validator=required)
    default: T | None = None

    if TYPE_CHECKING:

        @overload
        def __init__(self, name: str, type: TypeForm[T], default: T | None = None) -> None: ...
        @overload
        def __init__(
            self, name: str, type: TypeSerializer[T], default: T | None = None
        ) -> None: ...
        def __init__(self, name: str, type: Any, default: Any = None) -> None: ...


class ListStateDescriptor(StateDescriptor[ListState[T]]):
    """The descriptor of a list with elements of ``element_type``."""

    kind: ClassVar[StateKind] = StateKind.LIST
    value_field: ClassVar[str] = "element_type"
    element_type: DeclaredType[T] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(self, name: str, element_type: TypeForm[T]) -> None: ...
        @overload
        def __init__(self, name: str, element_type: TypeSerializer[T]) -> None: ...
        def __init__(self, name: str, element_type: Any) -> None: ...


class _AnyMapStateDescriptor(StateDescriptor[S_co], Generic[S_co, K, V]):
    """The base class of the descriptors of maps."""

    kind: ClassVar[StateKind] = StateKind.MAP
    value_field: ClassVar[str] = "value_type"
    key_type: DeclaredKeyType[K] = attrs.field(validator=required)
    value_type: DeclaredType[V] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, key_type: DeclaredKeyType[K], value_type: TypeForm[V]
        ) -> None: ...
        @overload
        def __init__(
            self, name: str, key_type: DeclaredKeyType[K], value_type: TypeSerializer[V]
        ) -> None: ...
        def __init__(self, name: str, key_type: Any, value_type: Any) -> None: ...

    @override
    def map_key_codec(self) -> KeyCodec | None:
        return self._resolved_type(key_codec_for, "key_type")


class MapStateDescriptor(_AnyMapStateDescriptor[MapState[K, V], K, V]):
    """The descriptor of a map from ``key_type`` to ``value_type``."""


class SortedMapStateDescriptor(_AnyMapStateDescriptor[SortedMapState[K, V], K, V]):
    """The descriptor of a map from ``key_type`` to ``value_type`` in the order of its keys.

    Keys may be numbers, strings, bytes, dates, times, durations, UUIDs, and tuples, named tuples
    and frozen classes of these types. If a part of such a key is declared as ``X | None``, None
    sorts first.

    After a restore, a stored map state can be requested as a sorted map, and a stored sorted map as
    a map.
    """

    is_sorted: ClassVar[bool] = True

    @override
    def resolved(self, find: FindSerializer, permission: PicklePermission) -> Self:
        made = super().resolved(find, permission)
        codec = made.map_key_codec()
        if codec is not None and not codec.ordered:
            reason = (
                "keys of this type have no order; the keys of a sorted map are numbers, strings, "
                "bytes, dates, times, or tuples of these"
            )
            raise ConfigError(shown(self.key_type), reason, place=f"state {self.name!r}")
        return made


class ReducingStateDescriptor(StateDescriptor[ReducingState[T]]):
    """The descriptor of a state that combines elements of ``type`` with a reduce function.

    ``reduce_function(a, b)`` returns the combination of two elements.
    """

    kind: ClassVar[StateKind] = StateKind.REDUCING
    reduce_function: Callable[[T, T], T] = attrs.field(validator=[required, typed(Callable)])
    type: DeclaredType[T] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, reduce_function: Callable[[T, T], T], type: TypeForm[T]
        ) -> None: ...
        @overload
        def __init__(
            self, name: str, reduce_function: Callable[[T, T], T], type: TypeSerializer[T]
        ) -> None: ...
        def __init__(self, name: str, reduce_function: Any, type: Any) -> None: ...

    def get_reduce_function(self) -> Callable[[T, T], T]:
        """Return ``reduce_function``. This is PyFlink's method."""
        return self.reduce_function


def _instance(function: Any) -> Any:
    """Return an instance if `function` is a class, and `function` itself otherwise.

    Raises:
        ArgumentTypeError: `function` lacks a method of AggregateFunction.
    """
    if isinstance(function, type) and issubclass(function, AggregateFunction):
        return function()
    methods = AggregateFunction.__abstractmethods__
    if function is None or all(callable(getattr(function, name, None)) for name in methods):
        return function
    raise ArgumentTypeError("aggregate_function", "an AggregateFunction", brief(function))


class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """The descriptor of a state that adds elements to an accumulator of ``accumulator_type``.

    Attributes:
        aggregate_function: an AggregateFunction, or a subclass of it.
    """

    kind: ClassVar[StateKind] = StateKind.AGGREGATING
    value_field: ClassVar[str] = "accumulator_type"
    aggregate_function: AggregateFunction[IN, ACC, OUT] = attrs.field(
        converter=_instance, validator=required
    )
    accumulator_type: DeclaredType[ACC] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            name: str,
            aggregate_function: AggregateFunction[IN, ACC, OUT]
            | type[AggregateFunction[IN, ACC, OUT]],
            accumulator_type: TypeForm[ACC],
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            aggregate_function: AggregateFunction[IN, ACC, OUT]
            | type[AggregateFunction[IN, ACC, OUT]],
            accumulator_type: TypeSerializer[ACC],
        ) -> None: ...
        def __init__(self, name: str, aggregate_function: Any, accumulator_type: Any) -> None: ...

    def get_agg_function(self) -> AggregateFunction[IN, ACC, OUT]:
        """Return ``aggregate_function``. This is PyFlink's method."""
        return self.aggregate_function


class FoldingStateDescriptor(StateDescriptor[FoldingState[IN, ACC]]):
    """The descriptor of a state that folds elements into an accumulator of ``type``.

    ``fold_function(accumulator, value)`` returns the new accumulator. The first accumulator is a
    copy of ``initial``.
    """

    kind: ClassVar[StateKind] = StateKind.FOLDING
    initial: ACC = attrs.field(validator=required)
    fold_function: Callable[[ACC, IN], ACC] = attrs.field(validator=[required, typed(Callable)])
    type: DeclaredType[ACC] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            name: str,
            initial: ACC,
            fold_function: Callable[[ACC, IN], ACC],
            type: TypeForm[ACC],
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            initial: ACC,
            fold_function: Callable[[ACC, IN], ACC],
            type: TypeSerializer[ACC],
        ) -> None: ...
        def __init__(self, name: str, initial: Any, fold_function: Any, type: Any) -> None: ...
