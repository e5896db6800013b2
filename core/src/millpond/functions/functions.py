"""What users write, and the contexts that their functions get. Names are PyFlink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.backend.keyed_states import StatesOfKeys
from millpond.backend.operator_state import BroadcastState, OperatorStateBackend
from millpond.errors import NoEventTimeError
from millpond.functions.metric_group import MetricGroup
from millpond.functions.timer_service import TimeDomain, TimerService
from millpond.spi.keys import CurrentKey
from millpond.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    FoldingState,
    FoldingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from millpond.types import VOID_NAMESPACE, DeclaredKeyType

T = TypeVar("T", default=Any)
K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
IN = TypeVar("IN", default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", default=Any)
IN1 = TypeVar("IN1", default=Any)
IN2 = TypeVar("IN2", default=Any)
BROADCAST = TypeVar("BROADCAST", default=Any)
S = TypeVar("S", bound=State, default=Any)


@attrs.frozen
class SubtaskInfo:
    """Which part of an operator this is.

    Attributes:
        operator_uid: the operator's stable name.
        index: the subtask, from 0.
        parallelism: how many subtasks there are.
        max_parallelism: the number of key groups.
        attempt: how often the task has failed before; always 0 without Spark.
    """

    operator_uid: str
    index: int = 0
    parallelism: int = 1
    max_parallelism: int = 128
    attempt: int = 0


@attrs.frozen
class RuntimeContext:
    """What ``open`` gets: the states of this operator, and where it runs."""

    info: SubtaskInfo
    _backend: StatesOfKeys
    _metrics: MetricGroup = attrs.field(factory=MetricGroup)
    _parameters: Mapping[str, Any] = attrs.field(factory=dict)
    _timers: Any = None

    def get_job_parameter(self, key: str, default_value: T) -> Any | T:
        """A parameter of the job: what stands in the configuration under ``parameters.<key>``.

        Args:
            key: the name; with dots, one of a section. ``_`` and ``-`` are the same in it.
            default_value: what to return where the job has no such parameter.
        """
        check_type("key", key, str)
        found: Any = self._parameters
        for part in key.replace("_", "-").split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return default_value if found is None else found

    def get_metric_group(self) -> MetricGroup:
        """The function's own metrics, which are reported as ``user.…`` beside Millpond's."""
        return self._metrics.add_group("user")

    def own_metrics(self) -> MetricGroup:
        """The operator's metrics, among which the function's are a group."""
        return self._metrics

    def get_task_name(self) -> str:
        """PyFlink's name for ``info.operator_uid``."""
        return self.info.operator_uid

    def get_index_of_this_subtask(self) -> int:
        """PyFlink's alias of ``info.index``."""
        return self.info.index

    def get_number_of_parallel_subtasks(self) -> int:
        """PyFlink's alias of ``info.parallelism``."""
        return self.info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """PyFlink's alias of ``info.max_parallelism``."""
        return self.info.max_parallelism

    def get_attempt_number(self) -> int:
        """PyFlink's alias of ``info.attempt``."""
        return self.info.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Uid, number of the subtask from 1, and number of subtasks: ``totals (2/4)``."""
        return f"{self.info.operator_uid} ({self.info.index + 1}/{self.info.parallelism})"

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """The value state of a descriptor."""
        check_type("descriptor", descriptor, ValueStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """The list state of a descriptor."""
        check_type("descriptor", descriptor, ListStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """The map state of a descriptor."""
        check_type("descriptor", descriptor, MapStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """The reducing state of a descriptor."""
        check_type("descriptor", descriptor, ReducingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """The aggregating state of a descriptor."""
        check_type("descriptor", descriptor, AggregatingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_folding_state(
        self, descriptor: FoldingStateDescriptor[IN, ACC]
    ) -> FoldingState[IN, ACC]:
        """The folding state of a descriptor."""
        check_type("descriptor", descriptor, FoldingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_namespaced_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """A state of any kind under a namespace, which ``set_current_namespace`` changes later.

        Args:
            descriptor: of the state.
            namespace: the namespace to begin with.
            namespace_type: its type; taken from the namespace where that is plain.
        """
        return self._backend.get_partitioned_state(descriptor, namespace, namespace_type)


def current_key_of(context: RuntimeContext) -> CurrentKey:
    """Return the current key behind a context, for Millpond's own functions only."""
    return context._backend.current  # noqa: SLF001 - this module's own class


def timers_of(context: RuntimeContext) -> TimerService:
    """Return the timer service behind a context, for Millpond's own functions only."""
    timers: TimerService = context._timers  # noqa: SLF001 - this module's own class
    return timers


def required_event_time(timestamp: int | None) -> int:
    """Return a timestamp; raise NoEventTimeError if it is None."""
    if timestamp is None:
        raise NoEventTimeError
    return timestamp


@attrs.frozen
class ReadOnlyBroadcastState(Mapping[K, V]):
    """A broadcast map as keyed rows see it: only broadcast rows may change it.

    ``get``, ``items``, ``keys``, ``values`` and the reading dict operators; ``contains`` and
    ``is_empty`` as PyFlink names them.
    """

    _state: BroadcastState[K, V]

    @override
    def __getitem__(self, key: K) -> V:
        return self._state[key]

    @override
    def __contains__(self, key: object) -> bool:
        return self._state.contains(key)  # type: ignore[arg-type]  # Mapping's own signature

    @override
    def __iter__(self) -> Iterator[K]:
        return iter(self._state.keys())

    @override
    def __len__(self) -> int:
        return len(self._state)

    def contains(self, key: K) -> bool:
        """Whether there is an entry."""
        return self._state.contains(key)

    def is_empty(self) -> bool:
        """Whether there is no entry."""
        return self._state.is_empty()


@attrs.define
class ProcessContext:
    """What a function without keys gets with each row; one object, set anew for each call.

    Attributes:
        timestamp: the row's event time in ms, or None where it has none.
    """

    timestamp: int | None = None
    _timers: TimerService | None = None
    _operator_state: OperatorStateBackend | None = None

    @property
    def event_time(self) -> int:
        """The ``timestamp`` in ms; NoEventTimeError if the row has none."""
        return required_event_time(self.timestamp)

    def get_broadcast_state(
        self, descriptor: MapStateDescriptor[T, V]
    ) -> ReadOnlyBroadcastState[T, V]:
        """A broadcast map, to read: only broadcast rows change it."""
        check_type("descriptor", descriptor, MapStateDescriptor)
        assert self._operator_state is not None
        return ReadOnlyBroadcastState(self._operator_state.get_broadcast_state(descriptor))

    def timer_service(self) -> TimerService:
        """Time, and the timers of the current key, which a function without keys has none of."""
        assert self._timers is not None
        return self._timers


@attrs.define
class Context(ProcessContext, Generic[K]):
    """What ``process_element`` and ``on_timer`` of a keyed function get; set anew for each call.

    Attributes:
        timestamp: in ``on_timer``, the timer's own.
        current_key: the key of the row.
        time_domain: in ``on_timer``, the time that the timer waited for.
        namespace: in ``on_timer``, what the timer was set under; windows use it.
    """

    current_key: K = attrs.field(default=None)
    time_domain: TimeDomain | None = None
    namespace: Any = VOID_NAMESPACE

    def get_current_key(self) -> K:
        """PyFlink's alias of ``current_key``."""
        return self.current_key


class OperatorFunction(ABC, Generic[OUT]):
    """What all functions share, with keys or without.

    On Spark an instance lives for one micro-batch of one subtask; what must last belongs into
    state, not into attributes.
    """

    def open(self, context: RuntimeContext) -> None:
        """Get the states; called once per subtask, before the first row."""

    def close(self) -> None:
        """Release what ``open`` acquired; called after the last row, also after a failure."""


class KeyedFunction(OperatorFunction[OUT], Generic[K, OUT]):
    """What functions over the rows of a keyed stream share, one by one or many at once.

    Attributes:
        timer_namespace: the type of the namespaces that timers are set under; None for timers
            of keys alone, which are those of ``Context.timer_service()``.
    """

    timer_namespace: DeclaredKeyType[Any] | None = None

    def on_timer(self, timestamp: int, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a timer that is due, with its key current; yield, or return as with rows."""
        return None


class KeyedProcessFunction(KeyedFunction[K, OUT], Generic[K, IN, OUT]):
    """A function over the rows of a keyed stream, one after the other, with state.

    For type checkers it may be given the types of the key, of the rows and of what it yields:
    ``KeyedProcessFunction[str, Order, tuple[str, float]]``. Without them they may be anything.
    """

    @abstractmethod
    def process_element(self, row: IN, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row, with its key current; yield rows, or return a list of rows."""


class ProcessFunction(OperatorFunction[OUT], Generic[IN, OUT]):
    """A function over rows without keys, dealt to the subtasks.

    It has neither keyed state nor timers. What must last belongs into operator state, by
    ``CheckpointedFunction`` or ``ListCheckpointed``. For type checkers it may be given the types
    of the rows and of what it yields.
    """

    @abstractmethod
    def process_element(self, row: IN, context: ProcessContext) -> Iterable[OUT] | None:
        """Handle a row; yield rows, or return a list of rows."""


class BroadcastProcessFunction(ProcessFunction[IN, OUT], Generic[IN, BROADCAST, OUT]):
    """A function over rows without keys, beside which rows of another stream reach every subtask.

    In ``process_element``, ``context.get_broadcast_state(descriptor)`` gives the map to read. On
    Spark a micro-batch's broadcast rows come before its other rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; what is yielded comes out once for every subtask."""


INPUTS = ("process_element1", "process_element2")
"""The methods for the rows of the first input and of the second."""


class KeyedCoProcessFunction(KeyedFunction[K, OUT], Generic[K, IN1, IN2, OUT]):
    """A function over two inputs with the same keys: rows of both see one keyed state.

    For type checkers it may be given the types of the key, of the rows of both inputs, and of what
    it yields, in Flink's order.
    """

    @abstractmethod
    def process_element1(self, row: IN1, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the first input, with its key current; yield, or return a list."""

    @abstractmethod
    def process_element2(self, row: IN2, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the second input, with its key current; yield, or return a list."""


@attrs.frozen
class BroadcastContext:
    """What ``process_broadcast_element`` gets.

    Attributes:
        timestamp: the row's event time in ms, where it has one.
    """

    _backend: StatesOfKeys
    _operator_state: OperatorStateBackend
    _timers: TimerService
    timestamp: int | None

    @property
    def event_time(self) -> int:
        """The ``timestamp`` in ms; NoEventTimeError if the row has none."""
        return required_event_time(self.timestamp)

    def current_watermark(self) -> int:
        """The watermark in ms."""
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        """The processing time in ms."""
        return self._timers.current_processing_time()

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """The broadcast map of a descriptor, to be changed in the same way by every subtask.

        That is: by the row and what the map holds alone, never by keyed state, time or chance.
        """
        return self._operator_state.get_broadcast_state(descriptor)

    def apply_to_keyed_state(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)`` for every key of this subtask that holds the state."""
        self._backend.apply_to_all_keys(descriptor, function)


class KeyedBroadcastProcessFunction(
    KeyedProcessFunction[K, IN, OUT], Generic[K, IN, BROADCAST, OUT]
):
    """A keyed function beside which rows of another stream reach every subtask.

    In ``process_element`` and ``on_timer``, ``context.get_broadcast_state(descriptor)`` gives
    the map to read. On Spark a micro-batch's broadcast rows come before its keyed rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; each row that it yields comes out once per subtask."""
