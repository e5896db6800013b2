"""The functions that users write, and the contexts that functions get. Names are PyFlink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, cast

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.backend.operator_state import BroadcastState, OperatorStateBackend
from millpond.backend.subtask_states import SubtaskStates
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
    SortedMapState,
    SortedMapStateDescriptor,
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
    """The description of a subtask: one parallel part of an operator.

    Attributes:
        operator_uid: the operator's stable name.
        index: the subtask, from 0.
        parallelism: the number of subtasks.
        max_parallelism: the number of key groups.
        attempt: the number of earlier, failed attempts of the task; always 0 without Spark.
    """

    operator_uid: str
    index: int = 0
    parallelism: int = 1
    max_parallelism: int = 128
    attempt: int = 0


@attrs.frozen
class RuntimeContext:
    """The argument of ``open``: gives states, metrics and parameters, and describes the subtask."""

    info: SubtaskInfo
    _backend: SubtaskStates
    _metrics: MetricGroup = attrs.field(factory=MetricGroup)
    _parameters: Mapping[str, Any] = attrs.field(factory=dict)
    _timers: TimerService | None = None

    def get_job_parameter(self, key: str, default_value: T) -> Any | T:
        """Return a parameter of the job: the option ``parameters.<key>`` of the configuration.

        Args:
            key: the name; dots separate sections. ``_`` is read as ``-``.
            default_value: the value to return if the job has no such parameter.
        """
        check_type("key", key, str)
        found: Any = self._parameters
        for part in key.replace("_", "-").split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return default_value if found is None else found

    def get_metric_group(self) -> MetricGroup:
        """Return the function's own metrics, which are reported as ``user.…``."""
        return self._metrics.add_group("user")

    def own_metrics(self) -> MetricGroup:
        """Return the metrics of the operator, which include the function's metrics as a group.

        Only Millpond's own functions call this method.
        """
        return self._metrics

    def get_task_name(self) -> str:
        """Return ``info.operator_uid``, under PyFlink's name."""
        return self.info.operator_uid

    def get_index_of_this_subtask(self) -> int:
        """Return ``info.index``, under PyFlink's name."""
        return self.info.index

    def get_number_of_parallel_subtasks(self) -> int:
        """Return ``info.parallelism``, under PyFlink's name."""
        return self.info.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return ``info.max_parallelism``, under PyFlink's name."""
        return self.info.max_parallelism

    def get_attempt_number(self) -> int:
        """Return ``info.attempt``, under PyFlink's name."""
        return self.info.attempt

    def get_task_name_with_subtasks(self) -> str:
        """Return text such as ``totals (2/4)`` for the second of four subtasks of ``totals``."""
        return f"{self.info.operator_uid} ({self.info.index + 1}/{self.info.parallelism})"

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the value state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, ValueStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the list state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, ListStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the map state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, MapStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_sorted_map_state(
        self, descriptor: SortedMapStateDescriptor[K, V]
    ) -> SortedMapState[K, V]:
        """Return the sorted map state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, SortedMapStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the reducing state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, ReducingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Return the aggregating state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, AggregatingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_folding_state(
        self, descriptor: FoldingStateDescriptor[IN, ACC]
    ) -> FoldingState[IN, ACC]:
        """Return the folding state that ``descriptor`` describes."""
        check_type("descriptor", descriptor, FoldingStateDescriptor)
        return self._backend.get_partitioned_state(descriptor)

    def get_namespaced_state(
        self,
        descriptor: StateDescriptor[S],
        namespace: Any,
        namespace_type: DeclaredKeyType[Any] | None = None,
    ) -> S:
        """Return a state of any kind, whose current namespace is ``namespace``.

        The state's method ``set_current_namespace`` selects another namespace later.

        Args:
            descriptor: the descriptor of the state.
            namespace: the first namespace.
            namespace_type: the type of the namespaces; inferred from a namespace of a plain type.
        """
        return self._backend.get_partitioned_state(descriptor, namespace, namespace_type)


def current_key_of(context: RuntimeContext) -> CurrentKey:
    """Return the holder of a subtask's current key; only Millpond's own functions call this."""
    return context._backend.current  # noqa: SLF001 - this module's own class


def timers_of(context: RuntimeContext) -> TimerService:
    """Return the timer service of a subtask; only Millpond's own functions call this."""
    return cast("TimerService", context._timers)  # noqa: SLF001 - this module's own class


def required_event_time(timestamp: int | None) -> int:
    """Return ``timestamp``; raise NoEventTimeError if it is None."""
    if timestamp is None:
        raise NoEventTimeError
    return timestamp


@attrs.frozen
class ReadOnlyBroadcastState(Mapping[K, V]):
    """A read-only view of a broadcast map, which only broadcast rows may change.

    It has the reading methods and operators of a dict, and PyFlink's ``contains`` and ``is_empty``.
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
        """Return whether the map contains ``key``."""
        return self._state.contains(key)

    def is_empty(self) -> bool:
        """Return whether the map has no entries."""
        return self._state.is_empty()


@attrs.define
class ProcessContext:
    """The context of a row in a function without keys. Every call gets the same context object.

    Attributes:
        timestamp: the row's event time in ms; None if it has none.
    """

    timestamp: int | None = None
    _timers: TimerService | None = None
    _operator_state: OperatorStateBackend | None = None

    @property
    def event_time(self) -> int:
        """The row's event time in ms; if the row has none, NoEventTimeError is raised."""
        return required_event_time(self.timestamp)

    def get_broadcast_state(
        self, descriptor: MapStateDescriptor[T, V]
    ) -> ReadOnlyBroadcastState[T, V]:
        """Return the broadcast map that ``descriptor`` describes, for reading only."""
        check_type("descriptor", descriptor, MapStateDescriptor)
        assert self._operator_state is not None
        return ReadOnlyBroadcastState(self._operator_state.get_broadcast_state(descriptor))

    def timer_service(self) -> TimerService:
        """Return the service for the clock, the watermark and the timers of the current key.

        A function without keys cannot set timers.
        """
        assert self._timers is not None
        return self._timers


@attrs.define
class Context(ProcessContext, Generic[K]):
    """The context of a row or timer in a keyed function. Every call gets the same context object.

    Attributes:
        timestamp: the row's event time in ms, None if the row has no event time. In ``on_timer`` it
            is the time of the timer.
        current_key: the key of the row or timer.
        time_domain: in ``on_timer``, event time or processing time; else None.
        namespace: in ``on_timer``, the namespace of the timer; for a window's timer, the window.
    """

    current_key: K = attrs.field(default=None)
    time_domain: TimeDomain | None = None
    namespace: Any = VOID_NAMESPACE

    def get_current_key(self) -> K:
        """Return ``current_key``, under PyFlink's name."""
        return self.current_key


class OperatorFunction(ABC, Generic[OUT]):
    """The base class of all functions, with keys or without.

    On Spark an instance lives for one micro-batch of one subtask. Data that must last longer
    belongs in state, not in attributes.
    """

    def open(self, context: RuntimeContext) -> None:
        """Get states and prepare the function; called once per subtask, before the first row."""

    def close(self) -> None:
        """Release the resources of ``open``; called after the last row, also after a failure."""


class KeyedFunction(OperatorFunction[OUT], Generic[K, OUT]):
    """The base class of functions over keyed rows. Subclasses get single rows, or batches of rows.

    Attributes:
        timer_namespace: the type of the namespaces of timers; None if timers have no namespaces,
            like the timers that a function sets by ``Context.timer_service()``.
    """

    timer_namespace: DeclaredKeyType[Any] | None = None

    def on_timer(self, timestamp: int, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a due timer of the current key; yield output rows, or return a list of them."""
        return None


class KeyedProcessFunction(KeyedFunction[K, OUT], Generic[K, IN, OUT]):
    """A function over the rows of a keyed stream, one after the other, with state.

    Type checkers accept the types of the key, of the rows and of the output:
    ``KeyedProcessFunction[str, Order, tuple[str, float]]``.
    """

    @abstractmethod
    def process_element(self, row: IN, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the current key; yield output rows, or return a list of them."""


class BuiltInFunction(KeyedProcessFunction):
    """The base class of Millpond's own keyed functions that call functions of the user.

    Attributes:
        subject: the subject of errors: windows or patterns.
        is_event_time: whether the function works by event time; otherwise by processing time.
    """

    subject: str
    is_event_time: bool

    @property
    @abstractmethod
    def fires_by_clock(self) -> bool:
        """Whether the function sets timers of processing time for rows of any kind."""

    @property
    @abstractmethod
    def users_function(self) -> Callable[..., Any] | None:
        """The user's function that makes the output rows; None if the user gave none."""

    def forget(self) -> None:
        """Forget cached data of the last row, because the row's changes were undone."""


class KeylessFunction(OperatorFunction[OUT]):
    """The base class of functions over rows without keys."""


class ProcessFunction(KeylessFunction[OUT], Generic[IN, OUT]):
    """A function over rows without keys. The rows are distributed over the subtasks.

    It has neither keyed state nor timers. Keep lasting data in operator state, by
    ``CheckpointedFunction`` or ``ListCheckpointed``. Type checkers accept the types of the rows
    and of the output.
    """

    @abstractmethod
    def process_element(self, row: IN, context: ProcessContext) -> Iterable[OUT] | None:
        """Handle a row; yield output rows, or return a list of them."""


class BroadcastProcessFunction(ProcessFunction[IN, OUT], Generic[IN, BROADCAST, OUT]):
    """A function over rows without keys and over a broadcast stream.

    Every subtask gets all broadcast rows.

    In ``process_element``, ``context.get_broadcast_state(descriptor)`` returns the map to read. On
    Spark a micro-batch's broadcast rows come before its other rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; each yielded row is output once per subtask."""


INPUTS = ("process_element1", "process_element2")
"""The methods for the rows of the first input and of the second."""


class KeyedCoProcessFunction(KeyedFunction[K, OUT], Generic[K, IN1, IN2, OUT]):
    """A function over two keyed inputs. The rows of a key in both inputs share the key's state.

    Type checkers accept the types of the key, of the rows of both inputs, and of the output, in
    Flink's order.

    Attributes:
        second_input_first: whether the second input's rows come before the first input's rows if
            the rows have no other order: on Spark within a micro-batch, in ``mp.local.run`` at
            equal event times, and without event times.
    """

    second_input_first: bool = False

    @abstractmethod
    def process_element1(self, row: IN1, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the first input and the current key; yield rows, or return a list."""

    @abstractmethod
    def process_element2(self, row: IN2, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the second input and the current key; yield rows, or return a list."""


@attrs.frozen
class BroadcastContext:
    """The context of a broadcast row.

    Attributes:
        timestamp: the row's event time in ms; None if it has none.
    """

    _backend: SubtaskStates
    _operator_state: OperatorStateBackend
    _timers: TimerService
    timestamp: int | None

    @property
    def event_time(self) -> int:
        """The row's event time in ms; if the row has none, NoEventTimeError is raised."""
        return required_event_time(self.timestamp)

    def current_watermark(self) -> int:
        """Return the watermark in ms."""
        return self._timers.current_watermark()

    def current_processing_time(self) -> int:
        """Return the processing time in ms."""
        return self._timers.current_processing_time()

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
        """Return the broadcast map that ``descriptor`` describes, for reading and writing.

        Each subtask has a copy of the map, and all copies must remain equal. Therefore a change may
        depend only on the broadcast row and the map, not on keyed state, time or random numbers.
        """
        return self._operator_state.get_broadcast_state(descriptor)

    def apply_to_keyed_state(
        self, descriptor: StateDescriptor[S], function: Callable[[Any, S], None]
    ) -> None:
        """Call ``function(key, state)`` for every key of this subtask that has the state."""
        self._backend.apply_to_all_keys(descriptor, function)


class KeyedBroadcastProcessFunction(
    KeyedProcessFunction[K, IN, OUT], Generic[K, IN, BROADCAST, OUT]
):
    """A function over keyed rows and over a broadcast stream.

    Every subtask gets all broadcast rows.

    In ``process_element`` and ``on_timer``, ``context.get_broadcast_state(descriptor)`` returns
    the map to read. On Spark a micro-batch's broadcast rows come before its keyed rows.
    """

    @abstractmethod
    def process_broadcast_element(
        self, row: BROADCAST, context: BroadcastContext
    ) -> Iterable[OUT] | None:
        """Handle a broadcast row; each yielded row is output once per subtask."""
