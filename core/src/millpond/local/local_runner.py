"""A job in this process, without Spark: for trying a function out and for small data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypeVar

from millpond.arguments import INT64, check_type, check_within, checked
from millpond.backend import KeyedStateBackend
from millpond.clock import Clock
from millpond.config import Config
from millpond.functions.checkpointed import CheckpointListener
from millpond.functions.functions import (
    INPUTS,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OperatorFunction,
    SubtaskInfo,
)
from millpond.functions.row_conversion import as_row
from millpond.functions.side_outputs import Output
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keygroups import KeyGroupRange
from millpond.local.local_inputs import (
    FRAME_ROWS,
    Input,
    KeyOfRow,
    declared_key_type,
    inferred_key_type,
    iterate_rows,
    key_selector,
    merge_inputs,
    record_batches,
    row_frame,
    second_input,
    time_reader,
)
from millpond.operator.opening import (
    Restorable,
    StartingPoint,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.operator.operators import (
    KeyedOperator,
    RowFrame,
    VectorizedOperator,
    operator_class_for,
)
from millpond.operator_id import check_uid
from millpond.types import DeclaredKeyType

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
) -> Output[OUT]:
    """Run a function over rows and return what it yielded.

    That is a list, which has the rows of side outputs as ``.side_output(tag)``.

    Processing-time timers fire before the next row, and after the last one, where the clock has
    passed their time by then; event-time timers when the watermark reaches theirs, and at the end
    of the rows, when no further one can come. A ``CheckpointListener`` is told of one snapshot, at
    the end.

    Args:
        function: the function.
        rows: dicts, named tuples, attrs or dataclass instances, which functions see as rows; or
            anything else, which they see as it is; or a RecordBatch, a Table or a DataFrame. A
            vectorized function gets them in frames, after each of which the watermark moves, and
            what it returns comes out as rows with names.
        key: a field's name, or a function of the row; none of a function without keys. With a
            list of several fields' names, the current key is a row of them, as with ``key_by``.
        backend: an installed backend's name.
        key_type: the type of the keys; where it is None, that of the first row's key, and without
            rows that of the keys in ``restore``.
        config: further configuration.
        clock: the source of processing time.
        event_time: a field with the row's event time in ms, or a function of the row.
        watermark_delay: by how many ms rows may be out of order: after each row the watermark is
            the highest event time so far less this delay less 1, as Flink has it. By default
            there is no watermark until the end.
        broadcast: the rows for a ``KeyedBroadcastProcessFunction`` or a
            ``BroadcastProcessFunction``; they come first.
        frame_rows: how many rows a frame of a vectorized function has at most.
        broadcast_event_time: the same as ``event_time`` for them; they move no watermark.
        second: the rows of the second input of a ``KeyedCoProcessFunction``, given as ``rows`` are.
            Where both inputs have an event time, the row with the lower one comes next; else the
            first input's rows come first. The watermark follows the input that is behind, of those
            that have an event time and have not ended.
        second_key: the same as ``key`` for them, where it differs.
        second_event_time: the same as ``event_time`` for them.
        restore: what to start from: a savepoint's path or handle, or snapshots' handles. The
            snapshot at the end has the number after theirs.
        uid: the operator whose state that is; a savepoint of a single operator needs none.

    Raises:
        CorruptSnapshotError, RestoreError: what to start from cannot be read.
        StateMigrationError: it does not fit.
    """
    if watermark_delay is not None:
        check_within("watermark_delay", watermark_delay, 0, INT64[1])
    check_within("frame_rows", frame_rows, 1, 1 << 31)
    if uid:
        check_uid(uid, "mp.local.run(...)")
    select, time_of = key_selector(function, key), time_reader(event_time, "event_time")
    vectorized = isinstance(function, VectorizedProcessFunction)
    given: Iterable[Any] = record_batches(rows, frame_rows) if vectorized else iterate_rows(rows)
    inputs = [Input(given, select, time_of, "process_element", event_time is not None)]
    if second is not None or isinstance(function, KeyedCoProcessFunction):
        check_type("function", function, KeyedCoProcessFunction)
        theirs = second_input(second, second_key, second_event_time, inputs[0])
        inputs = [attrs.evolve(inputs[0], method=INPUTS[0]), theirs]
    broadcast_time = time_reader(broadcast_event_time, "broadcast_event_time")
    start = StartingPoint.from_argument(restore, config)
    stored = start.stored_operator(uid)
    kind = declared_key_type(function, key, key_type, config)
    if kind is None:
        kind, inputs = inferred_key_type(inputs, None if stored is None else stored.key)
    max_parallelism = 128 if stored is None else stored.max_parallelism
    info = SubtaskInfo(uid or "local", max_parallelism=max_parallelism)
    output: Output[OUT] = Output()
    with ExitStack() as resources:
        opened, operator = open_local_operator(
            resources, function, start, info, backend, kind, clock=clock, config=config, uid=uid
        )
        resources.enter_context(operator.opened())
        for row in map(as_row, iterate_rows(broadcast, "broadcast")):
            check_type(
                "function", function, KeyedBroadcastProcessFunction | BroadcastProcessFunction
            )
            operator.process_broadcast(row, broadcast_time(row), output)
        if isinstance(operator, VectorizedOperator):
            moments = None if event_time is None else time_of
            frames = (row_frame(opened.current, b, select, moments) for b in inputs[0].rows)
            _process_frames(operator, frames, watermark_delay, output)
        else:
            _process(operator, inputs, watermark_delay, output)
        operator.fire_processing_time(output)
        operator.advance_watermark(MAX_TIMESTAMP, output)
        if isinstance(function, CheckpointListener):
            checkpoint_id = (start.checkpoint_id or 0) + 1
            operator.prepare_snapshot(checkpoint_id)
            operator.notify_checkpoint_complete(checkpoint_id)
    return output


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
) -> tuple[KeyedStateBackend, KeyedOperator]:
    """Return a restored backend in a temporary directory, and the operator of a function on it.

    Args:
        resources: closes the backend and deletes the directory.
        function: the function.
        start: the snapshots to restore.
        info: the subtask.
        backend: an installed backend's name.
        key_type: the type of the keys.
        key_group_range: the groups of the subtask; by default all.
        clock: the source of processing time.
        config: further configuration.
        uid: the operator whose state is restored; empty for the only operator.
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
    )
    return opened, operator


def _process(
    operator: KeyedOperator,
    inputs: Sequence[Input],
    watermark_delay: int | None,
    output: list[Any],
) -> None:
    """Process rows, and fire the timers as time goes on."""
    highest = {each.method: MIN_TIMESTAMP for each in inputs if each.is_timed}
    for key, row, timestamp, method in merge_inputs(inputs, highest):
        operator.fire_processing_time(output)
        operator.process(key, row, timestamp, output, method)
        if watermark_delay is not None and timestamp is not None:
            highest[method] = max(highest[method], timestamp)
            behind = min(highest.values())
            if behind > MIN_TIMESTAMP:
                operator.advance_watermark(behind - watermark_delay - 1, output)


def _process_frames(
    operator: VectorizedOperator,
    frames: Iterable[RowFrame],
    watermark_delay: int | None,
    output: list[Any],
) -> None:
    """The same with frames; the watermark moves after each."""
    for frame in frames:
        operator.fire_processing_time(output)
        operator.process_rows(frame, output)
        if watermark_delay is not None and frame.timestamps is not None:
            latest = pc.max(frame.timestamps).as_py()
            if latest is not None:
                operator.advance_watermark(latest - watermark_delay - 1, output)
