"""A harness for unit tests of functions. The test passes the rows and sets the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Self

from typing_extensions import TypeVar, override

from millpond.arguments import check_type, checked, event_time_ms, moment_ms
from millpond.clock import ManualClock
from millpond.closeable import Closeable
from millpond.config import Config
from millpond.errors import ArgumentValueError, HarnessNotOpenError
from millpond.functions.async_functions import AsyncCalls
from millpond.functions.dead_letters import NullEventTimes, OnError, RowFaults
from millpond.functions.functions import (
    INPUTS,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OperatorFunction,
    ProcessFunction,
    SubtaskInfo,
)
from millpond.functions.idleness import Idleness
from millpond.functions.row_conversion import as_row
from millpond.functions.side_outputs import Output
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keygroups import KeyGroupRange
from millpond.keygroups import key_group_range as subtask_groups
from millpond.local.local_inputs import (
    KeyOfRow,
    declared_key_type,
    key_selector,
    record_batches,
    row_frame,
    second_key_reader,
)
from millpond.local.local_runner import open_local_operator
from millpond.operator.opening import Restorable, StartingPoint
from millpond.operator.operators import KeyedOperator, VectorizedOperator
from millpond.plugins import get_registry
from millpond.savepoints.collect import SavepointStrategy
from millpond.snapshots.handles import KeyedStateHandle, SavepointHandle
from millpond.storage.memory import MemoryStorage
from millpond.types import DeclaredKeyType

OUT = TypeVar("OUT", default=Any)


class KeyedOperatorHarness(Closeable, Generic[OUT]):
    """A context manager that runs a function in this process, as one subtask.

    Args:
        function: the function under test.
        key: the name of the key field, or a function that takes a row and returns the key; None for
            a ``ProcessFunction``. With a list of several names the current key is a row of these
            fields, as with ``key_by``.
        second_key: the key of the second input's rows, if it differs from ``key``.
        key_type: the type of the keys; with several fields a tuple of their types.
        backend: an installed backend's name.
        max_parallelism: the number of key groups.
        key_group_range: the key groups of this subtask; by default computed from ``subtask``.
        subtask: the index of the subtask, from 0.
        parallelism: the number of subtasks.
        restore: the state to start from: the handle of a snapshot or savepoint, or a savepoint's
            path. To rescale, pass a list of the handles of all old subtasks, with None for a
            subtask without state.
        clock_ms: the processing time at the start, in ms since the epoch.
        config: further configuration.
        on_error: the treatment of a row whose ``process_element`` raises an exception, as in
            ``mp.local.run``.
        null_event_times: the treatment of a row without a timestamp, as in ``mp.local.run``.
        idle_timeout: the processing time without rows after which ``advance_processing_time`` also
            advances the watermark, as a timedelta or in ms.

    Attributes:
        output: the rows yielded so far: a list, with ``.side_output(tag)``.
        clock: the processing time, a ManualClock.
    """

    @checked
    def __init__(
        self,
        function: OperatorFunction[OUT],
        *,
        key: KeyOfRow | None = None,
        second_key: KeyOfRow | None = None,
        key_type: DeclaredKeyType[Any] = str,
        backend: str = "heap",
        max_parallelism: int = 128,
        key_group_range: KeyGroupRange | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        restore: Restorable | Iterable[Restorable | None] | None = None,
        clock_ms: int = 0,
        config: Config | None = None,
        on_error: OnError = "fail",
        null_event_times: NullEventTimes = "refuse",
        idle_timeout: timedelta | int | None = None,
    ) -> None:
        self.output: Output[OUT] = Output()
        self.clock = ManualClock(clock_ms)
        self._select = self._second_select = key_selector(function, key)
        if second_key is not None:
            self._second_select = second_key_reader(key, second_key)
        self._function = function
        self._entered = False
        self._storage = MemoryStorage.private()
        self._config = config
        self._registry = get_registry((config or Config()).plugins)
        faults = RowFaults(on_error, null_event_times, frozenset({"process_element", *INPUTS}))
        faults.check(function, "KeyedOperatorHarness(...)")
        info = SubtaskInfo("harness", subtask, parallelism, max_parallelism)
        start = StartingPoint.from_argument(restore, config)
        self._checkpoint_id = start.checkpoint_id or 0
        kind = declared_key_type(function, key, key_type, config)
        groups = key_group_range or subtask_groups(max_parallelism, parallelism, subtask)
        with ExitStack() as resources:
            self._backend, self._operator = open_local_operator(
                resources,
                function,
                start,
                info,
                backend,
                kind,
                key_group_range=groups,
                clock=self.clock,
                config=config,
                faults=faults,
                idleness=Idleness.from_argument(idle_timeout, "KeyedOperatorHarness(...)"),
            )
            self._resources = resources.pop_all()

    @override
    def __enter__(self) -> Self:
        with self._resources as resources:
            resources.enter_context(self._operator.opened())
            self._resources = resources.pop_all()
        self._entered = True
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._entered = False
        self._resources.__exit__(kind, error, traceback)  # keeps the error if closing fails too

    @override
    def close(self) -> None:
        """Close the function, then the backend."""
        self._entered = False
        self._resources.close()

    def _opened(self, method: str) -> KeyedOperator:
        """Return the operator; raise HarnessNotOpenError if the function is not open.

        ``method`` is the harness's method that the error names.
        """
        if not self._entered:
            raise HarnessNotOpenError(method)
        return self._operator

    def process(self, row: Any, timestamp: int | None = None) -> None:
        """Process one row; ``timestamp`` is its event time in ms.

        If the function makes asynchronous calls, wait until they have ended.
        """
        operator = self._opened("process")
        timestamp = event_time_ms("timestamp", timestamp)
        if isinstance(operator, VectorizedOperator):
            self.process_batch([row], None if timestamp is None else [timestamp])
            return
        kinds = KeyedProcessFunction | ProcessFunction | AsyncCalls
        check_type("function", self._function, kinds)
        row = as_row(row)
        operator.process(self._select(row), row, timestamp, self.output)
        operator.drain(self.output)

    def process1(self, row: Any, timestamp: int | None = None) -> None:
        """Process one row of a ``KeyedCoProcessFunction``'s first input; see ``process``."""
        self._process_input(0, self._select, row, timestamp)

    def process2(self, row: Any, timestamp: int | None = None) -> None:
        """Process one row of a ``KeyedCoProcessFunction``'s second input; see ``process``."""
        self._process_input(1, self._second_select, row, timestamp)

    def _process_input(
        self, number: int, select: Callable[[Any], Any], row: Any, timestamp: int | None
    ) -> None:
        """Process one row of the input ``number``: 0 is the first input, 1 the second."""
        operator = self._opened(f"process{number + 1}")
        check_type("function", self._function, KeyedCoProcessFunction)
        timestamp = event_time_ms("timestamp", timestamp)
        row = as_row(row)
        operator.process(select(row), row, timestamp, self.output, INPUTS[number])

    def process_batch(self, rows: Any, timestamps: Iterable[int | None] | None = None) -> None:
        """Pass rows to a ``VectorizedProcessFunction`` as one frame, i.e. in one batch.

        Args:
            rows: a RecordBatch, a Table or a DataFrame, or rows with names.
            timestamps: the event time of each row in ms; None for rows without event times.

        Raises:
            ArgumentValueError: there are not as many timestamps as rows.
        """
        operator = self._opened("process_batch")
        check_type("timestamps", timestamps, Iterable | None)
        times = None
        if timestamps is not None:
            times = [event_time_ms("timestamps", time) for time in timestamps]
        check_type("function", self._function, VectorizedProcessFunction)
        assert isinstance(operator, VectorizedOperator)
        for batch in record_batches(rows, 1 << 31):
            if times is not None and len(times) != batch.num_rows:
                given = f"{len(times)} timestamps"
                raise ArgumentValueError("timestamps", f"{batch.num_rows}, one a row", given)
            frame = row_frame(self._backend.current, batch, self._select, times)
            operator.process_rows(frame, self.output)

    def process_broadcast(self, row: Any, timestamp: int | None = None) -> None:
        """Process one row of the broadcast stream; ``timestamp`` is its event time in ms."""
        operator = self._opened("process_broadcast")
        check_type(
            "function", self._function, KeyedBroadcastProcessFunction | BroadcastProcessFunction
        )
        moment = event_time_ms("timestamp", timestamp)
        operator.process_broadcast(as_row(row), moment, self.output)

    def advance_watermark(self, ms: int) -> None:
        """Raise the watermark to ``ms`` and fire due timers; ignore a lower watermark."""
        moment = moment_ms("ms", ms)
        self._opened("advance_watermark").advance_watermark(moment, self.output)

    def advance_processing_time(self, ms: int) -> None:
        """Set the processing time to ``ms``, in ms since the epoch, and fire due timers.

        A timer is due once the clock has passed its time: a timer for 10 fires at 11.
        """
        operator = self._opened("advance_processing_time")
        self.clock.set(ms)
        operator.fire_processing_time(self.output)
        operator.advance_idle(self.output)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the operator by name; the function's own begin with ``user.``."""
        return self._operator.metrics.values()

    def snapshot(self) -> KeyedStateHandle | None:
        """Take a snapshot, confirm it, and return its handle; None if there is no state."""
        self._prepare_snapshot("snapshot")
        result = self._backend.snapshot(self._checkpoint_id, self._storage).result()
        self._backend.notify_checkpoint_complete(self._checkpoint_id)
        self._operator.notify_checkpoint_complete(self._checkpoint_id)
        handle: KeyedStateHandle | None = result.handle
        return handle

    def _prepare_snapshot(self, method: str) -> None:
        """Increase the checkpoint id, and call the function's ``snapshot_state``.

        ``method`` is the harness's method that the error names if the harness is not open.
        """
        operator = self._opened(method)
        self._checkpoint_id += 1
        operator.prepare_snapshot(self._checkpoint_id)

    def savepoint(self, path: str | PathLike[str]) -> SavepointHandle | None:
        """Write a savepoint into a directory and return its handle; None if there is no state.

        Raises:
            DirectoryNotEmptyError: the directory contains files.
        """
        check_type("path", path, str | PathLike)
        self._prepare_snapshot("savepoint")
        target = self._registry.savepoint(path, self._config)
        strategy = self._backend.strategy(SavepointStrategy.name)
        assert isinstance(strategy, SavepointStrategy)
        result = strategy.save(self._checkpoint_id, target.storage, target.folder).result()
        handle: SavepointHandle | None = result.handle
        return handle
