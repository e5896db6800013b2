"""A job in this process, without Spark: for trying a function out and for small data."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from itertools import chain, islice
from typing import Any, Self

import attrs
import pyarrow as pa
from typing_extensions import TypeVar

from millpond.arguments import INT64, check_type, check_within, checked, event_time_ms
from millpond.backend import KeyedStateBackend
from millpond.clock import Clock
from millpond.config import Config
from millpond.errors import ArgumentTypeError
from millpond.functions.checkpointed import CheckpointListener
from millpond.functions.dead_letters import DEFAULT_FAULTS, NullEventTimes, OnError, RowFaults
from millpond.functions.functions import (
    INPUTS,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OperatorFunction,
    SubtaskInfo,
)
from millpond.functions.idleness import Idleness
from millpond.functions.row_conversion import as_row, selector
from millpond.functions.side_outputs import Output
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keygroups import KeyGroupRange
from millpond.local.local_inputs import (
    FRAME_ROWS,
    KeyOfRow,
    declared_key_type,
    iterate_rows,
    key_selector,
    record_batches,
    row_frame,
    second_key_reader,
)
from millpond.operator.arrow_results import rows_of_table, table_of
from millpond.operator.opening import (
    Restorable,
    StartingPoint,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.operator.operator_class import operator_class_for
from millpond.operator.operators import (
    KeyedOperator,
    VectorizedOperator,
)
from millpond.operator_id import check_uid
from millpond.spi.keys import CurrentKey
from millpond.types import DeclaredKeyType, SerializerSnapshot, infer_key_type
from millpond.types.key_columns import codec_without_class

OUT = TypeVar("OUT", default=Any)


@checked
def run(
    function: OperatorFunction[OUT],
    rows: Iterable[Any] | pa.Table | pa.RecordBatch,
    *,
    key: KeyOfRow | None = None,
    backend: str = "heap",
    key_type: DeclaredKeyType[Any] | None = None,
    config: Config | None = None,
    clock: Clock | None = None,
    event_time: str | Callable[[Any], Any] | None = None,
    watermark_delay: int | None = None,
    broadcast: Iterable[Any] = (),
    broadcast_event_time: str | Callable[[Any], Any] | None = None,
    frame_rows: int = FRAME_ROWS,
    second: Iterable[Any] | pa.Table | pa.RecordBatch | None = None,
    second_key: KeyOfRow | None = None,
    second_event_time: str | Callable[[Any], Any] | None = None,
    restore: Restorable | Iterable[Restorable | None] | None = None,
    uid: str = "",
    on_error: OnError = "fail",
    null_event_times: NullEventTimes = "refuse",
    idle_timeout: timedelta | int | None = None,
) -> Output[OUT]:
    """Run a function over rows and return its output rows.

    The result is a list. Its method ``side_output(tag)`` returns the rows of a side output.

    Processing-time timers whose time the clock has passed fire before the next row and after the
    last row. Event-time timers fire when the watermark reaches their time, and after the last row.
    A ``CheckpointListener`` is notified of one snapshot, at the end.

    Args:
        function: the function.
        rows: a RecordBatch, a Table or a DataFrame; or an iterable. Dicts, named tuples, attrs and
            dataclass instances reach the function as rows, other objects unchanged. A vectorized
            function gets frames (batches of rows), and the watermark moves after each frame. The
            tables that it returns are output as rows with names.
        key: the name of the key field, or a function that takes a row and returns the key; None for
            a function without keys. With a list of several names the current key is a row of these
            fields, as with ``key_by``.
        backend: an installed backend's name.
        key_type: the type of the keys. By default it is the type of the first row's key or, if
            there are no rows, the type of the keys in ``restore``.
        config: further configuration.
        clock: the source of processing time.
        event_time: the name of the field with the event time in ms, or a function that takes a row
            and returns the event time.
        watermark_delay: the number of ms by which rows may be out of order. After each row the
            watermark is the highest event time so far minus this delay minus 1, as in Flink. By
            default there is no watermark until the end.
        broadcast: the rows of the broadcast stream of a ``KeyedBroadcastProcessFunction`` or a
            ``BroadcastProcessFunction``. They are processed before all other rows.
        broadcast_event_time: the field or function for the event time of broadcast rows. Broadcast
            rows do not move the watermark.
        frame_rows: the maximum number of rows in a frame of a vectorized function.
        second: the rows of the second input of a ``KeyedCoProcessFunction``, in any form that
            ``rows`` may have. If both inputs have event times, the row with the lower event time
            comes next; otherwise all rows of the first input come first, unless the function's
            attribute ``second_input_first`` is true. The watermark follows the slowest input that
            has event times and has not ended.
        second_key: the key of the second input, if it differs from ``key``.
        second_event_time: the field or function for the event time of the second input.
        restore: the state to start from: a savepoint's path or handle, or handles of snapshots.
            The snapshot at the end has the id after the highest restored id.
        uid: the operator whose state is restored; not needed if a savepoint has one operator.
        on_error: the treatment of a row for which ``process_element`` raises an exception. By
            default the run fails. With ``side_output`` the row's changes are undone, and the row is
            output to ``mp.DEAD_LETTERS``.
        null_event_times: the treatment of a row whose event time is null. By default the function
            gets the row. ``drop`` drops the row, ``side_output`` outputs it to ``mp.DEAD_LETTERS``.
        idle_timeout: the time without rows after which the watermark follows the clock, as a
            timedelta or in ms. The watermark moves before the next row. A row whose event time is
            behind the clock may then be late. By default the watermark waits for rows.

    Raises:
        ConfigError: the function cannot have dead letters, or ``idle_timeout`` is not positive.
        CorruptSnapshotError, RestoreError: the state to start from cannot be read.
        StateMigrationError: the stored state does not fit the function.
    """
    if watermark_delay is not None:
        check_within("watermark_delay", watermark_delay, 0, INT64[1])
    check_within("frame_rows", frame_rows, 1, 1 << 31)
    if uid:
        check_uid(uid, "mp.local.run(...)")
    vectorized = isinstance(function, VectorizedProcessFunction)
    given: Iterable[Any] = record_batches(rows, frame_rows) if vectorized else iterate_rows(rows)
    first = _Input.from_arguments(
        given, key_selector(function, key), event_time, "event_time", "process_element"
    )
    second_reader = first.key if second_key is None else second_key_reader(key, second_key)
    inputs = _inputs(function, first, second, second_reader, second_event_time)
    timed = frozenset(each.method for each in inputs if each.is_timed)
    faults = RowFaults(on_error, null_event_times, timed)
    faults.check(function, "mp.local.run(...)")
    broadcast_time = _time_reader(broadcast_event_time, "broadcast_event_time")
    start = StartingPoint.from_argument(restore, config)
    stored = start.stored_operator(uid)
    kind = declared_key_type(function, key, key_type, config)
    if kind is None:
        kind, inputs = _inferred_key_type(inputs, None if stored is None else stored.key)
    max_parallelism = 128 if stored is None else stored.max_parallelism
    info = SubtaskInfo(uid or "local", max_parallelism=max_parallelism)
    output: Output[OUT] = Output()
    with ExitStack() as resources:
        opened, operator = open_local_operator(
            resources,
            function,
            start,
            info,
            backend,
            kind,
            clock=clock,
            config=config,
            uid=uid,
            faults=faults,
            idleness=Idleness.from_argument(idle_timeout, "mp.local.run(...)"),
        )
        resources.enter_context(operator.opened())
        for row in map(as_row, iterate_rows(broadcast, "broadcast")):
            check_type(
                "function", function, KeyedBroadcastProcessFunction | BroadcastProcessFunction
            )
            operator.process_broadcast(row, broadcast_time(row), output)
        if isinstance(operator, VectorizedOperator):
            _process_frames(operator, opened.current, inputs[0], watermark_delay, output)
        else:
            _process(operator, inputs, watermark_delay, output)
        operator.drain(output)
        operator.fire_processing_time(output)
        operator.advance_watermark(MAX_TIMESTAMP, output)
        if isinstance(function, CheckpointListener):
            checkpoint_id = (start.checkpoint_id or 0) + 1
            operator.prepare_snapshot(checkpoint_id)
            operator.notify_checkpoint_complete(checkpoint_id)
    return output


def _inputs(
    function: OperatorFunction[Any],
    first: _Input,
    second: Iterable[Any] | pa.Table | pa.RecordBatch | None,
    second_key: Callable[[Any], Any],
    second_event_time: str | Callable[[Any], Any] | None,
) -> list[_Input]:
    """Return the first input alone, or both inputs for a ``KeyedCoProcessFunction``.

    Of rows that may come in any order, the rows of the first returned input come first.
    """
    if second is None and not isinstance(function, KeyedCoProcessFunction):
        return [first]
    check_type("function", function, KeyedCoProcessFunction)
    assert isinstance(function, KeyedCoProcessFunction)
    rows = () if second is None else iterate_rows(second, "second")
    other = _Input.from_arguments(
        rows, second_key, second_event_time, "second_event_time", INPUTS[1]
    )
    inputs = [attrs.evolve(first, method=INPUTS[0]), other]
    return inputs[::-1] if function.second_input_first else inputs


def open_local_operator(
    resources: ExitStack,
    function: OperatorFunction[Any],
    start: StartingPoint,
    info: SubtaskInfo,
    backend: str,
    key_type: DeclaredKeyType[Any],
    *,
    key_group_range: KeyGroupRange | None = None,
    clock: Clock | None = None,
    config: Config | None = None,
    uid: str = "",
    faults: RowFaults = DEFAULT_FAULTS,
    idleness: Idleness | None = None,
) -> tuple[KeyedStateBackend, KeyedOperator]:
    """Return a restored backend in a temporary directory, and the operator that runs a function.

    Args:
        resources: the stack that will close the backend and delete the directory.
        function: the function.
        start: the snapshots to restore.
        info: the subtask.
        backend: an installed backend's name.
        key_type: the type of the keys.
        key_group_range: the key groups of the subtask; by default all.
        clock: the source of processing time.
        config: further configuration.
        uid: the operator whose state is restored; may be empty if there is only one operator.
        faults: the treatment of rows that the function cannot process.
        idleness: advances the watermark while there are no rows; None to leave it to the rows.
    """
    directory = tempfile.TemporaryDirectory(prefix="millpond-")
    opened = resources.enter_context(
        open_keyed_backend(
            backend,
            key_type=key_type,
            max_parallelism=info.max_parallelism,
            key_group_range=key_group_range,
            directory=resources.enter_context(directory),
            clock=clock,
            config=config,
            restore=start.handles,
            place=uid,
        )
    )
    share = start.operator_state(uid, info.index, info.parallelism)
    operator_state = resources.enter_context(open_operator_backend(restore=share, config=config))
    operator = operator_class_for(function)(
        function,
        opened,
        info,
        operator_state,
        is_restored=start.given,
        restored_checkpoint_id=start.checkpoint_id,
        faults=faults,
        idleness=idleness,
    )
    return opened, operator


def _process(
    operator: KeyedOperator,
    inputs: Sequence[_Input],
    watermark_delay: int | None,
    output: list[Any],
) -> None:
    """Process the rows of all inputs.

    Processing-time timers fire before each row, event-time timers after it.
    """
    highest = {each.method: MIN_TIMESTAMP for each in inputs if each.is_timed}
    for key, row, timestamp, method in _merge_inputs(inputs, highest):
        operator.fire_processing_time(output)
        operator.advance_idle(output)
        operator.process(key, row, timestamp, output, method)
        if watermark_delay is not None and timestamp is not None:
            highest[method] = max(highest[method], timestamp)
            behind = min(highest.values())
            if behind > MIN_TIMESTAMP:
                operator.advance_watermark(behind - watermark_delay - 1, output)


def _process_frames(
    operator: VectorizedOperator,
    current: CurrentKey,
    batches: _Input,
    watermark_delay: int | None,
    output: list[Any],
) -> None:
    """Process each batch of rows as a frame.

    Processing-time timers fire before each frame, event-time timers after it.
    """
    times = batches.event_time if batches.is_timed else None
    for batch in batches.rows:
        frame = row_frame(current, batch, batches.key, times)
        operator.fire_processing_time(output)
        operator.advance_idle(output)
        operator.process_rows(frame, output)
        if watermark_delay is not None and frame.timestamp is not None:
            operator.advance_watermark(frame.timestamp - watermark_delay - 1, output)


# ---------------------------------------------------------------- inputs

_Keyed = tuple[Any, Any, int | None, str]
"""A row's key, the row, its event time in ms, and the function's method that processes it."""


@attrs.frozen
class _Input:
    """An input of a local run.

    Attributes:
        rows: the rows; for a vectorized function batches of rows.
        key: takes a row and returns its key.
        event_time: takes a row and returns its event time in ms.
        method: the function's method that processes the rows.
        is_timed: whether the rows have event times.
    """

    rows: Iterable[Any]
    key: Callable[[Any], Any]
    event_time: Callable[[Any], int | None]
    method: str
    is_timed: bool

    @classmethod
    def from_arguments(
        cls,
        rows: Iterable[Any],
        key: Callable[[Any], Any],
        event_time: str | Callable[[Any], Any] | None,
        argument: str,
        method: str,
    ) -> Self:
        """Return an input; ``argument`` is the name of the argument ``event_time``, for errors."""
        timed = event_time is not None
        return cls(rows, key, _time_reader(event_time, argument), method, timed)

    def keyed(self, highest: dict[str, int]) -> Iterator[_Keyed]:
        """Yield each row with its key, its event time and the method that processes it.

        Args:
            highest: the highest event time so far of each input, by the input's method. When this
                input has ended, its entry is removed, so the watermark no longer waits for it.
        """
        for row in map(as_row, self.rows):
            yield self.key(row), row, self.event_time(row), self.method
        highest.pop(self.method, None)


def _time_reader(
    field: str | Callable[[Any], Any] | None, argument: str
) -> Callable[[Any], int | None]:
    """Return a function that takes a row and returns its event time in ms.

    If ``field`` is None, the function returns None.
    """
    if field is None:
        return lambda _: None
    read = selector(field, argument)
    return lambda row: event_time_ms(argument, read(row))


def _merge_inputs(inputs: Sequence[_Input], highest: dict[str, int]) -> Iterator[_Keyed]:
    """Yield the rows of all inputs: by event time if all inputs have one, else input by input."""
    keyed = [each.keyed(highest) for each in inputs]
    if not all(each.is_timed for each in inputs):
        return chain.from_iterable(keyed)
    return heapq.merge(*keyed, key=lambda row: MIN_TIMESTAMP if row[2] is None else row[2])


def _inferred_key_type(
    inputs: Sequence[_Input], stored: SerializerSnapshot | None
) -> tuple[DeclaredKeyType[Any], list[_Input]]:
    """Infer the type of the keys from the first row; if there is no row, from the stored keys.

    Returns:
        The type, and inputs that still yield all rows, including the row that was read.

    Raises:
        ArgumentTypeError: there is no row, and the stored keys are instances of a user's class.
    """
    found = list(inputs)
    for at, each in enumerate(found):
        rows = iter(each.rows)
        first = list(islice(rows, 1))
        found[at] = attrs.evolve(each, rows=chain(first, rows))
        if first:
            return infer_key_type(each.key(_first_row(first[0]))), found
    if stored is None:
        return str, found  # there are no keys, so any type fits
    codec = codec_without_class(stored)
    if codec is None:
        expected = f"the type of the stored keys ({stored}), as there is no row to infer it from"
        raise ArgumentTypeError("key_type", expected, "None")
    return codec, found


def _first_row(given: Any) -> Any:
    """Return ``given`` in the form that functions get; for a batch, return its first row."""
    table = table_of(given)
    if table is None:
        return as_row(given)
    if not table.num_rows:  # batches that this module makes have rows
        raise ArgumentTypeError("rows", "rows, or one table of them", "an empty table among rows")
    return next(iter(rows_of_table(table.slice(0, 1))))
