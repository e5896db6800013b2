"""State descriptors: the name, the kind and the types of a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

import attrs
from typing_extensions import TypeForm, TypeVar, override

from millpond.arguments import typed
from millpond.errors import (
    ArgumentTypeError,
    brief,
)
from millpond.state.descriptor_base import StateDescriptor, described, required, resolved_type
from millpond.state.interfaces import (
    AggregatingState,
    FoldingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from millpond.state.state_kinds import StateKind
from millpond.types import (
    DeclaredKeyType,
    DeclaredType,
    KeyCodec,
    TypeSerializer,
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

IN = TypeVar("IN", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
T = TypeVar("T", default=Any)

_AGGREGATES = ("create_accumulator", "add", "get_result", "merge")


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

    def retract(self, value: IN, accumulator: ACC) -> ACC:
        """The accumulator without an element that was added; the given one may be changed.

        Only for windows with an evictor, which then need not aggregate all elements anew each time
        they fire. Define it or leave it: without it they do.
        """
        raise NotImplementedError


@described
class ValueStateDescriptor(StateDescriptor[ValueState[T]]):
    """One value of ``type``; ``default`` is copied for each read of an empty state."""

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

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.type, self.name)


@described
class ListStateDescriptor(StateDescriptor[ListState[T]]):
    """A list of elements of ``element_type``."""

    kind: ClassVar[StateKind] = StateKind.LIST
    element_type: DeclaredType[T] = attrs.field(validator=required)

    if TYPE_CHECKING:

        @overload
        def __init__(self, name: str, element_type: TypeForm[T]) -> None: ...
        @overload
        def __init__(self, name: str, element_type: TypeSerializer[T]) -> None: ...
        def __init__(self, name: str, element_type: Any) -> None: ...

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.element_type, self.name)


@described
class MapStateDescriptor(StateDescriptor[MapState[K, V]]):
    """A map from ``key_type`` to ``value_type``."""

    kind: ClassVar[StateKind] = StateKind.MAP
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
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.value_type, self.name)

    @override
    def map_key_codec(self) -> KeyCodec | None:
        return resolved_type(key_codec_for, self.key_type, self.name)


@described
class ReducingStateDescriptor(StateDescriptor[ReducingState[T]]):
    """The reduction of elements of ``type`` by ``reduce_function(a, b)``."""

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
        """PyFlink's alias of ``reduce_function``."""
        return self.reduce_function

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.type, self.name)


def _instance(
    function: AggregateFunction[IN, ACC, OUT] | type[AggregateFunction[IN, ACC, OUT]],
) -> AggregateFunction[IN, ACC, OUT]:
    if isinstance(function, type) and issubclass(function, AggregateFunction):
        return function()
    return function


def _aggregates(_: Any, attribute: attrs.Attribute[Any], function: Any) -> None:
    if isinstance(function, AggregateFunction):
        return
    if any(not callable(getattr(function, name, None)) for name in _AGGREGATES):
        raise ArgumentTypeError(attribute.name, "an AggregateFunction", brief(function))


@described
class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """The aggregation by an AggregateFunction, whose accumulator is of ``accumulator_type``."""

    kind: ClassVar[StateKind] = StateKind.AGGREGATING
    aggregate_function: AggregateFunction[IN, ACC, OUT] = attrs.field(
        converter=_instance, validator=[required, _aggregates]
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
        """PyFlink's alias of ``aggregate_function``."""
        return self.aggregate_function

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.accumulator_type, self.name)


@described
class FoldingStateDescriptor(StateDescriptor[FoldingState[IN, ACC]]):
    """The fold ``fold_function(accumulator, value)`` from ``initial``; both of ``type``."""

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

    @override
    def value_serializer(self) -> TypeSerializer[Any]:
        return resolved_type(serializer_for, self.type, self.name)
