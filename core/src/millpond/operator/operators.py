"""Operators: each runs a function over the rows of one subtask, from ``open`` to ``close``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from traceback import clear_frames
from typing import Any, NoReturn

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from millpond.backend.bulk_keys import Frame
from millpond.backend.journal import Journal
from millpond.backend.operator_state import OperatorStateBackend
from millpond.backend.subtask_states import SubtaskStates
from millpond.backend.timer_queue import Timer
from millpond.clock import NoRow
from millpond.errors import (
    LateChangeError,
    NoEventTimeError,
    NoKeysError,
    NullValueError,
    OutputTypeError,
    StateTypeError,
    UserFunctionError,
    brief,
)
from millpond.functions.checkpointed import (
    CheckpointListener,
    RawKeyedOutput,
    RawOperatorOutput,
    SnapshotContext,
    StateInitializationContext,
    initialize_state,
    snapshot_state,
)
from millpond.functions.dead_letters import (
    DEAD_LETTERS,
    DEFAULT_FAULTS,
    UNTAKEN,
    RowFaults,
    dead_letter,
    is_fault_of_row,
)
from millpond.functions.functions import (
    INPUTS,
    BroadcastContext,
    BuiltInFunction,
    Context,
    KeyedFunction,
    KeylessFunction,
    OperatorFunction,
    ProcessContext,
    RuntimeContext,
    SubtaskInfo,
)
from millpond.functions.idleness import Idleness
from millpond.functions.metric_group import MetricGroup
from millpond.functions.timer_service import (
    MIN_TIMESTAMP,
    RefusedTimers,
    TimeDomain,
    TimerService,
)
from millpond.functions.user_code import Check, check_ran, checked_rows, result_error, rows_of
from millpond.functions.vectorized import VectorizedContext
from millpond.operator.arrow_results import ResultTable, rows_of_table
from millpond.operator.failures import failure_in, users_method_behind, yielding_methods
from millpond.state import StateDescriptor
from millpond.types import VOID_NAMESPACE

_KEYED = ("process_element", *INPUTS, "on_timer")
_NO_KEY: Any = object()
FAILURES: tuple[type[BaseException], ...] = (Exception, SystemExit, GeneratorExit)
"""The exceptions that count as failures of a function; ``sys.exit()`` would end a Spark worker."""

CHECKED_CALLS = 32
"""The number of calls of each method whose output rows are checked one by one.

The error for such a row names the key and the line of the ``yield``. The rows of later calls are
checked batch by batch, which is cheaper but finds neither. Most wrong rows are among the first.
"""

KeyedRow = tuple[Any, int, Any, int | None]
"""A key of the right type, its key group, a row with this key, and the row's event time in ms."""


class KeyedOperator:
    """Runs a keyed function on a keyed backend.

    An exception of the function is raised again as a UserFunctionError, which names the method, the
    key and the row.

    Args:
        function: the user's function.
        backend: holds the keyed state and the timers.
        info: the subtask.
        operator_state: the subtask's operator state. The backend's snapshots include it.
        is_restored: whether the subtask starts from a snapshot.
        restored_checkpoint_id: the checkpoint id of that snapshot; None if nothing is restored.
        check: raises OutputTypeError for an output row that does not fit the declared output.
        checked_calls: the number of calls of each method whose output rows are checked one by one.
        refused_timers: for each time domain in which the user's function cannot set timers, a
            function that returns the error to raise.
        failures: the exceptions that count as failures of the function. Other exceptions pass
            unchanged, such as KeyboardInterrupt and the exceptions of test frameworks.
        faults: the treatment of rows that the function cannot process.
        idleness: advances the watermark while there are no rows; None to leave it to the input.

    Attributes:
        idleness: the argument ``idleness``.
        timers: the timers of the current key.
        timers_fired: the number of timers fired so far.
        metrics: the function's metrics.
    """

    def __init__(
        self,
        function: OperatorFunction,
        backend: SubtaskStates,
        info: SubtaskInfo,
        operator_state: OperatorStateBackend,
        *,
        is_restored: bool = False,
        restored_checkpoint_id: int | None = None,
        check: Check | None = None,
        checked_calls: int = CHECKED_CALLS,
        refused_timers: RefusedTimers | None = None,
        failures: tuple[type[BaseException], ...] = FAILURES,
        faults: RowFaults = DEFAULT_FAULTS,
        idleness: Idleness | None = None,
    ) -> None:
        self.idleness = idleness
        self._function: Any = function
        self._backend = backend
        self._info = info
        self._operator_state = backend.operator_state = operator_state
        self._is_restored = is_restored
        self._restored_checkpoint_id = restored_checkpoint_id
        self._check = check
        self._checked_calls = checked_calls
        self._calls: Counter[str] = Counter()
        self._failures = failures
        self._faults = faults
        self._journal: Journal | None = None
        if faults.on_error == "side_output":
            self._journal = operator_state.journal = backend.keep_journal()
            self._checked_calls = sys.maxsize  # a wrong output row is its input row's fault
        self.timers_fired = 0
        self.metrics = MetricGroup()
        if faults.has_letters:
            self._dead_letters = self.metrics.counter("numDeadLetters")
        keyed = not isinstance(function, KeylessFunction)
        no_keys: Any = _NoKeys(info.operator_uid)  # in place of the states
        self._states: SubtaskStates = backend if keyed else no_keys
        namespace = function.timer_namespace if isinstance(function, KeyedFunction) else None
        clock = backend.parameters.clock
        self.timers = TimerService(self._states, clock, namespace, refused_timers)
        context = Context if keyed else ProcessContext
        self._context: Any = context(timers=self.timers, operator_state=operator_state)
        self._event_time = backend.parameters.event_time
        self._event_time.row = self._context

    # ---------------------------------------------------------------- from open to close

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the function, and close it at the end of the ``with`` block.

        As in Flink, the function is also closed if its ``open`` fails. If ``close`` fails after an
        earlier error, the message of the failure becomes a note of the earlier error.
        """
        try:
            self.open()
            yield
        except BaseException as error:
            try:
                self.close()
            except UserFunctionError as later:
                error.add_note(f"Then {later}")
            raise
        self.close()

    def open(self) -> None:
        """Restore the function's operator state and call its ``open``."""
        parameters = self._backend.parameters.config.parameters
        keyed = RuntimeContext(self._info, self._states, self.metrics, parameters, self.timers)
        context = StateInitializationContext(
            is_restored=self._is_restored,
            restored_checkpoint_id=self._restored_checkpoint_id,
            operator_state_store=self._operator_state,
            keyed_state_store=keyed,
            key_groups=self._backend.key_group_range,
        )
        with self._calling("initialize_state"):
            initialize_state(self._function, context)
        with self._calling("open"):
            check_ran(self._function.open(keyed))

    def close(self) -> None:
        """Call the function's ``close``, in which changes of state raise errors.

        No snapshot follows, so such changes would be lost.
        """
        with (
            self._calling("close"),
            self._backend.current.refusing(),
            self._operator_state.refusing_changes(LateChangeError),
        ):
            check_ran(self._function.close())

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Call the function's ``snapshot_state``, which stores data in operator state."""
        context = SnapshotContext(
            checkpoint_id=checkpoint_id,
            timestamp=self.timers.current_processing_time(),
            raw_operator_output=RawOperatorOutput(),
            raw_keyed_output=RawKeyedOutput(self._backend.key_group_range),
        )
        with self._calling("snapshot_state"):
            snapshot_state(self._function, self._operator_state, context)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the function that a snapshot is committed, if it is a CheckpointListener."""
        if isinstance(self._function, CheckpointListener):
            with self._calling("notify_checkpoint_complete"):
                check_ran(self._function.notify_checkpoint_complete(checkpoint_id))

    # ---------------------------------------------------------------- rows

    def process(
        self,
        key: Any,
        row: Any,
        timestamp: int | None,
        output: list[Any],
        method: str = "process_element",
    ) -> None:
        """Check ``key``, the row's key, and pass ``row`` to the function's method ``method``.

        Raises:
            NullValueError, StateTypeError: the key is None, or not of the declared type.
            KeyGroupRangeError: the key belongs to another subtask.
        """
        if key is None:
            raise NullValueError("the key", brief(row))
        current = self._backend.current
        try:
            key, group = current.codec.check_with_group(key, current.max_parallelism)
        except StateTypeError as error:
            error.place = f"the key of {brief(row)}"
            raise
        self.process_all([(key, group, row, timestamp)], output, method)

    def expect(self, keys: Sequence[Any], groups: Sequence[int]) -> None:
        """Announce the keys of the next rows, so that the backend can read their state at once.

        The keys must be of the declared type. ``groups`` has the key group of each key.
        """
        self._backend.current.prefetch(keys, groups)

    def process_all(
        self, rows: Iterable[KeyedRow], output: list[Any], method: str = "process_element"
    ) -> None:
        """Process rows by a method of the function, and append output rows to ``output``."""
        if self.idleness is not None:
            rows = self.idleness.noted(rows, self.timers.current_processing_time())
        if method in self._faults.timed and self._faults.null_event_times != "refuse":
            rows = self._with_event_time(rows, output, method)
        if self._journal is None:
            self._process_rows(rows, output, method)
        else:
            self._process_each(self._journal, rows, output, method)

    def _process_rows(self, rows: Iterable[KeyedRow], output: list[Any], method: str) -> None:
        """Process rows; an exception ends the job.

        This is the hot path. For consecutive rows of one key, the key is selected only once, which
        saves 0.2 µs for each further row.
        """
        process, extend = self._method(method), output.extend
        context, current = self._context, self._backend.current
        select, exact, selected = current.select, current.codec.exact, _NO_KEY
        for key, group, row, timestamp in rows:
            # The function may have selected another key by a state's ``at(key)``.
            if key != selected or current.key_or_none is not selected:
                select(key, group)
                context.current_key = key
                selected = key if exact else _NO_KEY
            context.timestamp = timestamp
            try:
                result = process(row, context)
                if result is not None:
                    extend(rows_of(process, result))
            except BaseException as error:
                raise self._failure(method, error, row) from error

    def _process_each(
        self, journal: Journal, rows: Iterable[KeyedRow], output: list[Any], method: str
    ) -> None:
        """Process rows one by one. If a row fails, undo its changes and output a dead letter."""
        for row in rows:
            made: list[Any] = []
            journal.begin()
            try:
                self._process_rows((row,), made, method)
            except UserFunctionError as failure:
                made.clear()
                self._undo_row(journal, failure, row, made, method)
            else:
                journal.commit()
            finally:
                journal.is_open = False
            output.extend(made)

    def _undo_row(
        self,
        journal: Journal,
        failure: UserFunctionError,
        row: KeyedRow,
        output: list[Any],
        method: str,
    ) -> None:
        """Undo the changes of a failed row, and append its dead letter to ``output``.

        Raise ``failure`` instead if the row cannot have caused it.
        """
        cause = failure.__cause__ or failure
        if journal.store_failure is not None or not is_fault_of_row(cause):
            raise failure
        self._put_aside(failure, row, output, method)
        # Close generators that the row left suspended: their ``finally`` blocks may change
        # state, and without this the garbage collector would run them after the undo.
        for error in (failure, cause):
            clear_frames(error.__traceback__)
        journal.roll_back()
        if isinstance(self._function, BuiltInFunction):
            self._function.forget()

    def _with_event_time(
        self, rows: Iterable[KeyedRow], output: list[Any], method: str
    ) -> Iterator[KeyedRow]:
        """Yield the rows with an event time; drop other rows, or output them as dead letters."""
        for row in rows:
            if row[-1] is not None:
                yield row
            elif self._faults.null_event_times == "side_output":
                given = (self._function, method, self._info, NoEventTimeError())
                self._put_aside(failure_in(*given, key=row[0], row=row[2]), row, output, method)

    def _put_aside(
        self, failure: UserFunctionError, row: KeyedRow, output: list[Any], method: str
    ) -> None:
        """Append the dead letter of a row to ``output``.

        Raise ``failure`` instead if the job does not read the side output of dead letters.
        """
        if not self._faults.taken:
            failure.add_note(UNTAKEN)
            raise failure
        self._dead_letters.inc()
        # By extend, in which the output of a local run separates the side outputs.
        output.extend([(DEAD_LETTERS, dead_letter(failure, method, row[0], row[2]))])

    def drain(self, output: list[Any]) -> None:
        """Finish rows that wait for asynchronous calls; without such calls no row waits."""

    def process_broadcast(self, row: Any, timestamp: int | None, output: list[Any]) -> None:
        """Process one broadcast row without a current key, and append output rows to ``output``."""
        context = BroadcastContext(self._states, self._operator_state, self.timers, timestamp)
        self._backend.current.forget()
        if isinstance(self._context, Context):
            self._context.current_key = None
        process = self._method("process_broadcast_element")
        self._event_time.row = context
        try:
            with self._calling("process_broadcast_element", row):
                result = process(row, context)
                if result is not None:
                    output.extend(rows_of(process, result))
        finally:
            self._event_time.row = self._context

    # ---------------------------------------------------------------- time

    def advance_watermark(self, timestamp: int, output: list[Any]) -> None:
        """Raise the watermark to ``timestamp``, fire due timers, and append rows to ``output``."""
        self._fire(self.timers.advance_watermark(timestamp), TimeDomain.EVENT_TIME, output)
        self._event_time.advance(timestamp)

    def fire_processing_time(self, output: list[Any]) -> None:
        """Fire the processing-time timers whose time has passed, and append rows to ``output``."""
        self._fire(self.timers.due_by_processing_time(), TimeDomain.PROCESSING_TIME, output)

    def advance_idle(self, output: list[Any]) -> None:
        """Advance the watermark if there have been no rows for some time; fire due timers."""
        if self.idleness is not None:
            now = self.timers.current_processing_time()
            self.advance_watermark(self.idleness.watermark(now), output)

    def end_key(self, output: list[Any]) -> None:
        """Fire the current key's remaining timers after its last row, in batch execution."""
        for domain in TimeDomain:
            self._fire(self.timers.end_key(domain), domain, output)
        self._event_time.now_ms = MIN_TIMESTAMP

    def _fire(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> None:
        """Call the function's ``on_timer`` for each due timer, and append the output rows.

        For TTL of event time, the time is that of the timer, even if the watermark is later. So the
        timer finds the state that it would find if the watermark rose in small steps.
        """
        context, event_time = self._context, self._event_time
        by_event = domain is TimeDomain.EVENT_TIME
        event_time.row = context if by_event else NoRow()
        context.time_domain = domain
        on_timer = self._method("on_timer")
        try:
            with self._calling("on_timer"):
                for timer in due:
                    self.timers_fired += 1
                    self._backend.current.select(timer.key, timer.key_group)
                    context.current_key = timer.key
                    context.timestamp = timer.timestamp
                    if by_event:
                        event_time.advance(timer.timestamp)
                    context.namespace = timer.namespace
                    result = on_timer(timer.timestamp, context)
                    if result is not None:
                        output.extend(rows_of(on_timer, result))
        finally:
            context.time_domain = None
            context.namespace = VOID_NAMESPACE
            event_time.row = context

    # ---------------------------------------------------------------- calls and their errors

    def _method(self, name: str) -> Callable[..., Any]:
        """Return the function's method ``name``, wrapped to check the rows of its first calls."""
        method: Callable[..., Any] = getattr(self._function, name)
        check, most = self._check, self._checked_calls
        if check is None or self._calls[name] >= most:
            return method
        users = users_method_behind(self._function, name)

        def checked(*args: Any) -> Any:
            self._calls[name] += 1
            result = method(*args)
            if result is None or self._calls[name] > most:
                return result
            return checked_rows(method, users, result, check)

        return checked

    @contextmanager
    def _calling(self, method: str, row: Any = None) -> Iterator[None]:
        """Turn an exception of the block into a UserFunctionError with method, key and row."""
        try:
            yield
        except BaseException as error:
            raise self._failure(method, error, row) from error

    def _failure(self, method: str, error: BaseException, row: Any = None) -> UserFunctionError:
        """Return the UserFunctionError for an exception of the function.

        If the exception is no failure of the function, such as KeyboardInterrupt, raise it again.
        """
        if not isinstance(error, self._failures):
            raise error
        key = getattr(self._context, "current_key", None) if method in _KEYED else None
        return failure_in(self._function, method, self._info, error, key=key, row=row)

    def output_error(self, error: OutputTypeError) -> UserFunctionError:
        """Return the error to raise for an output row that was checked only with its batch.

        The ``yield`` of the row is not known, so the error names all methods that may have yielded
        the row.
        """
        methods = yielding_methods(self._function)
        place = next(iter(methods.values()), None)
        if place is not None:
            error.file, error.line = place.file, place.line
        names = " or ".join(methods) or "process_element"
        return failure_in(self._function, names, self._info, error)


@attrs.frozen
class _NoKeys:
    """The substitute for keyed states in a function without keys. Each use raises NoKeysError."""

    operator_uid: str

    @property
    def current(self) -> NoReturn:
        raise NoKeysError(self.operator_uid, "the current key")

    def get_partitioned_state(
        self, descriptor: StateDescriptor[Any], namespace: Any = None, namespace_type: Any = None
    ) -> NoReturn:
        raise NoKeysError(self.operator_uid, f"keyed state {descriptor.name!r}")

    def apply_to_all_keys(self, descriptor: StateDescriptor[Any], function: Any) -> NoReturn:
        raise NoKeysError(self.operator_uid, f"keyed state {descriptor.name!r}")

    def timer_queue(self, domain: str, namespace_type: Any = None) -> NoReturn:
        raise NoKeysError(self.operator_uid, "timers")

    def has_timers(self, domain: str) -> bool:
        return False


class ProcessOperator(KeyedOperator):
    """Runs a ProcessFunction, which has no keys.

    The backend has no keyed state; its snapshots hold the operator state.
    """

    @override
    def _process_rows(self, rows: Iterable[KeyedRow], output: list[Any], method: str) -> None:
        context, process, extend = self._context, self._method(method), output.extend
        for _, _, row, timestamp in rows:
            context.timestamp = timestamp
            try:
                result = process(row, context)
                if result is not None:
                    extend(rows_of(process, result))
            except BaseException as error:
                raise self._failure(method, error, row) from error

    @override
    def _fire(self, due: Iterable[Timer], domain: TimeDomain, output: list[Any]) -> None:
        assert not list(due)  # only to raise the watermark: there are no timers


@attrs.frozen
class RowFrame:
    """A batch of rows for a vectorized function, sorted by key.

    Attributes:
        rows: the rows.
        keys: the distinct keys of the rows, as Python values of the declared type.
        groups: the key group of each key.
        starts: the index of each key's first row.
        column: the keys as the function gets them: an Arrow array, or a list.
        timestamps: the event time of each row, as an Arrow array; None if no row has an event time.
    """

    rows: pa.RecordBatch
    keys: list[Any]
    groups: list[int]
    starts: Any
    column: Any
    timestamps: Any = None

    @cached_property
    def timestamp(self) -> int | None:
        """The latest event time of the rows in ms; None if no row has an event time."""
        latest: int | None = None if self.timestamps is None else pc.max(self.timestamps).as_py()
        return latest


class VectorizedOperator(KeyedOperator):
    """Runs a VectorizedProcessFunction on a keyed backend."""

    def process_frame(self, frame: RowFrame) -> Iterator[ResultTable]:
        """Call the function with a frame, and yield the tables that it returns."""
        if self.idleness is not None:
            self.idleness.note(frame.timestamp, self.timers.current_processing_time())
        rows = frame.rows if self._function.frames == "arrow" else _data_frame(frame.rows)
        tables = self._tables(rows, frame)
        try:
            while True:
                # Only the user's code runs in this block, so a GeneratorExit comes from that code.
                with self._calling("process_batch"):
                    table = next(tables, None)
                if table is None:
                    return
                yield table
        finally:
            tables.close()
            self._backend.current.frame = None
            self._backend.current.forget()

    def process_rows(self, frame: RowFrame, output: list[Any]) -> None:
        """Call the function with a frame, and append the rows of its tables to ``output``."""
        for table in self.process_frame(frame):
            output.extend(rows_of_table(table))

    def _tables(self, rows: Any, frame: RowFrame) -> Generator[ResultTable, None, None]:
        """Call ``process_batch`` with the rows of a frame, and yield the returned tables."""
        current = self._backend.current
        keys = Frame(current, frame.keys, frame.groups, frame.column)
        current.forget()
        current.frame = keys
        context: VectorizedContext[Any] = VectorizedContext(
            keys, frame.starts, frame.rows, frame.timestamps, self.timers
        )
        self._event_time.row = frame
        method = self._function.process_batch
        result = method(rows, context)
        table = ResultTable.from_returned(result)
        if table is not None:
            yield table
        elif result is not None:
            if not isinstance(result, Iterable) or isinstance(result, (str, bytes, Mapping, tuple)):
                raise result_error(method, result, "tables")
            for each in result:
                table = ResultTable.from_returned(each)
                if table is None:
                    raise result_error(method, each, "tables")
                yield table


def _data_frame(rows: pa.RecordBatch) -> Any:
    """Return ``rows`` as a DataFrame, in which maps are dicts."""
    return rows.to_pandas(integer_object_nulls=True, date_as_object=True, maps_as_pydicts="strict")
