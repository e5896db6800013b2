"""The functions that Spark runs in a task: one for a micro-batch, two for bounded rows.

``run_subtask`` runs a subtask in a micro-batch. It reads the pointer, a row in Spark's state that
names the last snapshot. It opens a backend with exactly this state, processes the rows, takes a
snapshot and writes a pointer to it. The new snapshot counts only when Spark has committed the
pointer.

``run_partition`` processes a partition of a DataFrame that is not streaming. Its state is lost at
the end of the call. ``write_part`` writes a partition of rows as state into a savepoint.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from time import perf_counter
from typing import Any

import attrs
import pandas as pd
from millpond.backend import KeyedStateBackend
from millpond.backend.single_key import SingleKeyBackend
from millpond.functions.checkpointed import CheckpointListener
from millpond.functions.functions import SubtaskInfo
from millpond.functions.idleness import Idleness
from millpond.functions.timer_service import MIN_TIMESTAMP
from millpond.operator.bootstrap import BootstrapOperator, fill_states, filled_view
from millpond.operator.opening import (
    StartingPoint,
    open_batch_backend,
    open_filling_backend,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.operator_id import OperatorId
from millpond.savepoints.savepoint_file import operator_to_json
from millpond.savepoints.table_files import SpooledRows, save_operator
from millpond.snapshots.snapshot_task import SnapshotTask
from millpond.spi.snapshots import SnapshotResult
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from millpond_spark.plan.batch_identity import BatchIdentity, identify_batch
from millpond_spark.plan.layout import Layout
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import Pointer
from millpond_spark.plan.timing import BatchTime, NextTimers, own_rows, set_timeout, sleeps_on
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.schemas import LABEL_COLUMN
from millpond_spark.values.side_outputs import SUBTASK_METRICS
from millpond_spark.worker.backend_source import Acquired, acquire_backend
from millpond_spark.worker.committed_state import (
    CommittedState,
    committed_state,
    layout_in_force,
    own_pointer,
)
from millpond_spark.worker.error_report import failed_before, readable_errors
from millpond_spark.worker.gc_control import freeze_after_full_gc, gc_paused
from millpond_spark.worker.local_copies import (
    executor_directory,
    remove_earlier_copies,
)
from millpond_spark.worker.outdated_files import Subtask
from millpond_spark.worker.runner import SubtaskRunner, runner_of

_READS = (".value", ".get", ".contains")


@attrs.define
class BatchMetrics:
    """Collects the metrics of a subtask during a batch: milliseconds by phase, and counts."""

    values: dict[str, Any] = attrs.field(factory=dict)
    _last: float = attrs.field(factory=perf_counter)
    _before: dict[str, int] = attrs.field(factory=dict)

    def lap(self, name: str) -> None:
        """Add the time since the last call, or since the creation, to the metric `name`."""
        now = perf_counter()
        self.values[name] = self.values.get(name, 0.0) + (now - self._last) * 1000
        self._last = now

    def begin(self, backend: KeyedStateBackend) -> None:
        """Remember the backend's counts. In a cached backend they include earlier batches."""
        self._before = _counts(backend)

    def add(self, **metrics: Any) -> None:
        """Add metrics by name."""
        self.values.update(metrics)

    def finish(
        self, backend: KeyedStateBackend, result: SnapshotResult, source: str, *, native: bool
    ) -> dict[str, Any]:
        """Return all metrics of the batch.

        Args:
            backend: the backend after the batch.
            result: the result of the snapshot.
            source: the source of the backend's state, see ``Acquired.source``.
            native: whether to include gauges of the backend's native library.
        """
        counts = {name: n - self._before.get(name, 0) for name, n in _counts(backend).items()}
        reads = sum(n for name, n in counts.items() if name.endswith(_READS))
        if reads and "store_reads" in counts:
            counts["cache_hits"] = max(0, reads - counts["store_reads"])
        gauges = backend.native_metrics() if native else {}
        figures = {**counts, **backend.restored_bytes.figures(), **backend.metrics.quantiles()}
        for state, size in backend.state_sizes().items():
            figures |= size.figures(state)
        return {
            **self.values,
            # Only the function's own metrics have names that begin with `user.`.
            **{re.sub("^user\\.", "state.user.", name): figures[name] for name in figures},
            **{f"native_{name}": value for name, value in gauges.items()},
            "bytes_written": result.bytes_written,
            "rows_written": result.rows_written,
            "snapshot_bytes": result.handle.size if result.handle else 0,
            "backend": backend.name,
            "source": source,
            "executor": executor_directory().name,
            "pid": os.getpid(),
        }


def _counts(backend: KeyedStateBackend) -> dict[str, int]:
    return {**backend.counters(), **backend.metrics.calls()}


def numbers_of(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the metrics whose values are numbers, except the process id."""
    return {
        name: value
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and name != "pid"
    }


def run_subtask(
    plan: OperatorPlan, label: int, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Run one subtask for one micro-batch: the function behind ``applyInPandasWithState``.

    Args:
        plan: the operator's plan.
        label: the number by which Spark groups the rows of the subtask.
        frames: the subtask's encoded rows.
        state: Spark's state of the subtask, which has the pointer.
    """
    with readable_errors(plan):
        yield from _run_subtask(plan, label, frames, state)


def _run_subtask(
    plan: OperatorPlan, label: int, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    # PySpark joins output frames with an empty frame, and pandas would warn of this in each batch.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concat", FutureWarning)
    freeze_after_full_gc()
    metrics = BatchMetrics()
    found = Pointer.from_row(state.get) if state.exists else None
    batch, frames = identify_batch(plan, frames, found)
    layout = layout_in_force(plan, batch, found)
    pointer = own_pointer(plan, batch.query, layout, found)
    if label not in group_labels(plan.parallelism):
        state.remove()  # The parallelism was larger before, and this subtask no longer exists.
        return
    info = plan.subtask(plan.subtask_of(label), failed_before())
    has_rows = True
    if plan.wakes:
        frames = own_rows(frames)
        first = next(frames, None)
        has_rows = first is not None
        frames = frames if first is None else chain((first,), frames)
    idleness = _idleness(plan, state, pointer, batch.run)
    time = _batch_time(plan, state, pointer, None if has_rows else idleness)
    if pointer is not None and not has_rows and not state.hasTimedOut:
        # A CheckpointListener must be called even if the batch has no rows for the subtask.
        listens = isinstance(plan.function, CheckpointListener) and pointer.has_worked
        due = pointer.next_event_timer, pointer.next_clock_timer
        if not listens and sleeps_on(state, plan.time_mode, time, due):
            if plan.chained or idleness is not None:
                timed = _with_time(pointer, time, idleness, batch.run)
                state.update(attrs.astuple(timed))
            return
    committed = committed_state(plan, layout, info.index, pointer)
    task = _Task(plan, info, batch, time, idleness, committed, state, metrics)
    yield from task.run(frames)
    task.tidy_up(layout, pointer)


def _idleness(
    plan: OperatorPlan, state: GroupState, pointer: Pointer | None, run: str
) -> Idleness | None:
    """Return the record of a subtask's rows before this batch; None without an ``idle_timeout``.

    In the first batch of a run, the time without rows begins again, because the query was not idle
    but stopped.

    Args:
        plan: the operator's plan.
        state: Spark's state of the subtask.
        pointer: the pointer of the last batch; None if the subtask has not run before.
        run: the id of the query's run.
    """
    if plan.idle_timeout is None:
        return None
    idleness, now = Idleness(plan.idle_timeout), state.getCurrentProcessingTimeMs()
    if pointer is None:
        idleness.note(_sparks_time(plan, state).watermark, now)
    else:
        last_row = pointer.last_row if pointer.run == run else None
        idleness.note(pointer.highest_event_time, now if last_row is None else last_row)
    return idleness


def _batch_time(
    plan: OperatorPlan, state: GroupState, pointer: Pointer | None, idleness: Idleness | None
) -> BatchTime:
    """Return the time of a batch for a subtask.

    Behind another operator, the subtask begins with the watermark of its last batch. If the subtask
    is idle, its watermark may be ahead of Spark's.

    Args:
        plan: the operator's plan.
        state: Spark's state of the subtask.
        pointer: the pointer of the last batch; None if the subtask has not run before.
        idleness: the record of the subtask's rows; None if it has rows in this batch.
    """
    time = _sparks_time(plan, state)
    last = MIN_TIMESTAMP
    if pointer is not None and pointer.watermark is not None:
        last = pointer.watermark
    watermark = time.watermark
    if plan.idle_timeout is not None:
        watermark = max(watermark, last)
    if idleness is not None:
        watermark = max(watermark, idleness.watermark(time.processing_time))
    before = min(last, watermark) if plan.chained else watermark
    return attrs.evolve(time, before=before, watermark=watermark)


def _sparks_time(plan: OperatorPlan, state: GroupState) -> BatchTime:
    """Return the time of a batch by Spark's watermark."""
    delay = plan.watermark_delay
    return BatchTime.from_state(state, watermarked=plan.watermarked, delay=delay)


def _with_time(pointer: Pointer, time: BatchTime, idleness: Idleness | None, run: str) -> Pointer:
    """Return `pointer` with the watermark of a batch, and with the record of the subtask's rows."""
    timed = attrs.evolve(pointer, watermark=_or_none(time.watermark))
    if idleness is None:
        return timed
    return attrs.evolve(
        timed,
        last_row=idleness.last_row,
        highest_event_time=_or_none(idleness.highest),
        run=run,
    )


def _or_none(timestamp: int) -> int | None:
    return None if timestamp == MIN_TIMESTAMP else timestamp


@attrs.frozen
class _Task:
    """A subtask in a micro-batch.

    Attributes:
        idleness: the record of the subtask's rows; None without an ``idle_timeout``.
        committed: the state that the subtask starts from.
        state: Spark's state of the subtask, which has the pointer.
    """

    plan: OperatorPlan
    info: SubtaskInfo
    batch: BatchIdentity
    time: BatchTime
    idleness: Idleness | None
    committed: CommittedState
    state: GroupState
    metrics: BatchMetrics

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint id of the batch: the batch id plus one."""
        return self.batch.batch_id + 1

    def run(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Process `frames` and yield the output; then set Spark's pointer and timeout."""
        plan, metrics, batch, time = self.plan, self.metrics, self.batch, self.time
        groups = plan.key_groups(self.info.index)
        restored = self.committed.operator_state(self.info, plan.config.restore)
        with (
            gc_paused(),
            plan.config.locating_errors(),
            acquire_backend(
                plan, batch.query, batch.run, groups, self.committed, time.processing_time
            ) as acquired,
            open_operator_backend(restore=restored, config=plan.config) as own,
        ):
            metrics.lap("open_ms")
            metrics.begin(acquired.backend)
            last = self.committed.checkpoint_id
            runner = runner_of(plan)(
                plan,
                self.info,
                acquired.backend,
                own,
                last,
                again=bool(self.info.attempt),
                idleness=self.idleness,
            )
            # As in Flink, the function is still open when `snapshot_state` and gauges are called.
            with runner.operator.opened():
                yield from runner.run(frames, time)
                metrics.lap("process_ms")
                due = runner.operator.timers.next_due()
                plan.require_firing(due)
                metrics.add(next_timers=due)
                reported = self._commit(acquired, runner, due)
                yield from self._metrics_rows(runner, reported)
            set_timeout(self.state, plan.time_mode, time, due)
            acquired.succeeded = True

    def tidy_up(self, layout: Layout, pointer: Pointer | None) -> None:
        """Delete outdated files, and record the subtask's first snapshot under `layout`.

        Later deletions need this record.

        Args:
            layout: the operator's layout, the division of its key groups among subtasks.
            pointer: the pointer before this batch, if it was written under `layout`.
        """
        subtask = Subtask(
            storage=self.plan.storage(),
            operator=OperatorId(self.batch.query, self.plan.uid),
            layout=layout,
            index=self.info.index,
            checkpoint_id=self.checkpoint_id,
            retained=self.plan.config.checkpoint.retained,
        )
        if self.committed.handle is None and Pointer.from_row(self.state.get).handle:
            subtask.record_first_snapshot()
            divisions = map(layout.key_groups, range(layout.parallelism))
            local = self.plan.config.local.dir
            remove_earlier_copies(subtask.operator.folder, divisions, local)
        if pointer is not None:
            subtask.delete_outdated(pointer.checkpoint_id, self.committed.handle)

    def _metrics_rows(
        self, runner: SubtaskRunner, metrics: dict[str, Any]
    ) -> Iterable[pd.DataFrame]:
        """Return the frame with the row of the side output of metrics, if the query reads it."""
        sides = self.plan.sides
        if sides is None or SUBTASK_METRICS.tag_id not in sides.tags:
            return ()
        groups = self.plan.key_groups(self.info.index)
        numbers = {name: float(value) for name, value in numbers_of(metrics).items()}
        row = (groups.start, groups.end, self.checkpoint_id, numbers)
        return runner.packed([(SUBTASK_METRICS, row)])

    def _commit(self, acquired: Acquired, runner: SubtaskRunner, due: NextTimers) -> dict[str, Any]:
        """Take the snapshot, put the new pointer into Spark's state, and return the metrics."""
        runner.operator.prepare_snapshot(self.checkpoint_id)
        result = acquired.backend.snapshot(self.checkpoint_id, self.plan.storage()).result()
        self.metrics.lap("snapshot_ms")
        groups = acquired.backend.key_group_range
        metrics = self._reported(acquired, runner, result)
        pointer = Pointer(
            operator_uid=self.plan.uid,
            version=acquired.backend.version or "",
            checkpoint_id=self.checkpoint_id,
            first_group=groups.start,
            last_group=groups.end,
            handle=result.handle.to_json() if result.handle else "",
            metrics=json.dumps(metrics),
            layout=self.committed.layout,
            query=self.batch.query,
            has_worked=bool(runner.rows_in or runner.operator.timers_fired),
            next_event_timer=due[0],
            next_clock_timer=due[1],
        )
        timed = _with_time(pointer, self.time, self.idleness, self.batch.run)
        self.state.update(attrs.astuple(timed))
        return metrics

    def _reported(
        self, acquired: Acquired, runner: SubtaskRunner, result: SnapshotResult
    ) -> dict[str, Any]:
        """Pass the batch's metrics to the configured reporters, and return them."""
        self.metrics.add(
            rows_in=runner.rows_in,
            rows_out=runner.rows_out,
            timers_fired=runner.operator.timers_fired,
            copies_discarded=acquired.copies_discarded,
            failed_attempts=self.info.attempt,
            subtask=str(self.info.index),
            **runner.operator.metrics.values(),
        )
        config = self.plan.config
        native = config.metrics.native
        metrics = self.metrics.finish(acquired.backend, result, acquired.source, native=native)
        labels = {
            "query": self.batch.query,
            "operator": self.plan.uid,
            "subtask": str(self.info.index),
            "backend": acquired.backend.name,
        }
        self.plan.registry.report(config, numbers_of(metrics), labels)
        return metrics


def run_partition(plan: OperatorPlan, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Run one subtask over bounded rows: the function behind ``mapInPandas``."""
    with readable_errors(plan):
        frames = filter(len, frames)
        first = next(frames, None)
        index = _subtask(plan, first)
        if index is not None:
            frames = frames if first is None else chain((first,), frames)
            yield from _run(plan, index, own_rows(frames) if plan.restores else frames)


def _run(plan: OperatorPlan, index: int, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    info = plan.subtask(index, failed_before())
    start = StartingPoint.from_argument(plan.savepoint() if plan.restores else None, plan.config)
    own = start.operator_state(plan.uid, index, plan.parallelism)
    with (
        gc_paused(),
        tempfile.TemporaryDirectory(prefix="millpond-") as directory,
        _bounded_backend(plan, directory, index, start) as backend,
        open_operator_backend(restore=own, config=plan.config) as operator_state,
    ):
        last = start.checkpoint_id
        again = bool(info.attempt)
        runner = runner_of(plan)(plan, info, backend, operator_state, last, again=again)
        with runner.operator.opened():
            yield from runner.run_by_key(frames) if plan.batch else runner.run(frames, None)


def _subtask(plan: OperatorPlan, first: pd.DataFrame | None) -> int | None:
    """Return the index of the subtask that a partition belongs to, or None.

    If the partition has rows, their label determines the subtask. Spark's partition number would be
    wrong: it counts over a whole stage, so ``union`` and ``coalesce`` change it. If the partition
    has no rows, Spark's number is returned if it is a subtask's index. It does not have to be the
    right subtask, because nothing is restored. If state is restored, each subtask has a row.

    Args:
        plan: the operator's plan.
        first: the first frame of the partition that has rows, or None.
    """
    if first is not None:
        return plan.subtask_of(first[LABEL_COLUMN].iloc[0])
    context = TaskContext.get()
    number = context.partitionId() if context else 0
    return number if number < plan.parallelism and not plan.restores else None


def _backend_of_one_key(plan: OperatorPlan) -> SingleKeyBackend:
    groups, codec = plan.max_parallelism, plan.key_codec()
    return open_batch_backend(
        key_type=codec, max_parallelism=groups, config=plan.config, place=plan.uid
    )


def _bounded_backend(
    plan: OperatorPlan, directory: str, index: int, start: StartingPoint
) -> KeyedStateBackend | SingleKeyBackend:
    """Open the backend of the subtask `index` over bounded rows.

    If the rows are sorted by key, the backend has in memory only the state of one key.
    """
    if plan.batch:
        return _backend_of_one_key(plan)
    target = plan.resolution.target
    name = target if ":" in target else plan.resolution.name
    return open_keyed_backend(
        name,
        key_type=plan.key_codec(),
        max_parallelism=plan.max_parallelism,
        key_group_range=plan.key_groups(index),
        directory=directory,
        config=plan.config,
        restore=start.handles,
        place=plan.uid,
    )


PART_COLUMN = "part"
"""The column with a JSON record of the states that a task has written into a savepoint."""


def write_part(
    plan: OperatorPlan, place: str, exact: frozenset[str], frames: Iterable[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """Write a partition of rows as the state of an operator into a savepoint.

    This is the function behind ``mapInPandas``. If Spark runs the task again, the second attempt
    uses other names of files.

    Args:
        plan: the operator's plan. Its function fills the states.
        place: the savepoint's URI.
        exact: the names of states to store in columns for values beyond 64 bits.
        frames: the encoded rows, sorted by key group and key.

    Yields:
        One row with a JSON record of the written states.
    """
    context = TaskContext.get()
    index = context.partitionId() if context else 0
    if index >= plan.parallelism:
        return
    info = plan.subtask(index, failed_before())
    with (
        readable_errors(plan),
        gc_paused(),
        SpooledRows(executor_directory()) as spooled,
        open_filling_backend(
            spooled.add,
            key_type=plan.key_codec(),
            max_parallelism=plan.max_parallelism,
            config=plan.config,
            place=plan.uid,
        ) as backend,
        open_operator_backend(config=plan.config) as own,
    ):
        runner = SubtaskRunner(plan, info, backend, own, operator_class=BootstrapOperator)
        assert isinstance(runner.operator, BootstrapOperator)
        fill_states(runner.operator, runner.keyed_rows(frames), backend)
        mark = f"-{uuid.uuid4().hex[:12]}"
        view, target = filled_view(backend, spooled), plan.located(place)
        saved = save_operator(view, target, plan.uid, SnapshotTask(), exact, mark)
        yield pd.DataFrame({PART_COLUMN: [operator_to_json(saved)]})
