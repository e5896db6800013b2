"""The worker's side: one call runs one subtask for one micro-batch.

Read the pointer, get the backend at exactly that version, process the rows, take the snapshot,
write the new pointer. Nothing counts before Spark has committed the pointer.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import attrs
import pandas as pd
from pyspark import TaskContext

from millpond.backend import KeyedStateBackend
from millpond.checkpoint import KeyedStateHandle
from millpond.checkpoint.handles import OperatorStateHandle
from millpond.checkpoint.operator_state_assignment import operator_state_share
from millpond.errors import RestoreError
from millpond.runtime import (
    SubtaskInfo,
    open_batch_backend,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.spark.driver.layout import Layout, layout_of_run
from millpond.spark.driver.plan import OperatorPlan
from millpond.spark.driver.pointer import Pointer
from millpond.spark.driver.timing import BatchTime, set_timeout
from millpond.spark.metrics.worker_metrics import BatchFigures, numbers_of
from millpond.spark.worker.backend_source import CommittedState, acquire_backend
from millpond.spark.worker.runner import SubtaskRunner, collector_paused

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

__all__ = ["run_partition", "run_subtask"]


def run_subtask(
    plan: OperatorPlan, label: int, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Run one subtask for one micro-batch: the function behind ``applyInPandasWithState``."""
    # pyspark joins our frames with an empty one, of which pandas warns in each batch.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concat", FutureWarning)
    watch = BatchFigures()
    query, run, batch_id = _running_query()
    layout = layout_of_run(
        plan.config.checkpoint.dir or "", plan.config.plugins, query, plan.uid, run
    )
    layout.require(plan.uid, plan.parallelism, plan.max_parallelism)
    pointer = _own_pointer(plan, query, run, layout, state)
    if not plan.owns(label):
        # A timeout that a subtask of an earlier, larger parallelism has left.
        state.remove()
        return
    info = plan.subtask(label)
    groups = plan.key_groups(info.index)
    storage = plan.storage()
    committed = _committed_state(plan, layout, info, pointer)
    time = BatchTime.of(state, watermarked=plan.watermarked)
    with (
        plan.config.placed(),
        acquire_backend(plan, query, groups, committed, time.processing_time) as acquired,
        open_operator_backend(
            restore=_operator_state(plan, info, committed), config=plan.config
        ) as operator_state,
    ):
        watch.lap("open_ms")
        watch.begin(acquired.backend)
        runner = SubtaskRunner(
            plan,
            info,
            acquired.backend,
            operator_state,
            is_restored=committed.checkpoint_id is not None,
            restored_checkpoint_id=committed.checkpoint_id,
        )
        yield from runner.run(frames, time)
        watch.lap("process_ms")
        runner.operator.prepare_snapshot(batch_id + 1)
        with collector_paused():
            result = acquired.backend.snapshot(batch_id + 1, storage).result()
        watch.lap("snapshot_ms")
        watch.add(
            rows_in=runner.rows_in,
            rows_out=runner.rows_out,
            timers_fired=runner.operator.timers_fired,
            copies_discarded=acquired.copies_discarded,
        )
        native = plan.config.metrics.native
        figures = watch.finish(acquired.backend, result, acquired.source, native=native)
        labels = {
            "operator": plan.uid,
            "subtask": str(info.index),
            "backend": acquired.backend.name,
        }
        plan.registry.report(plan.config, numbers_of(figures), labels)
        pointer = Pointer(
            operator_uid=plan.uid,
            version=acquired.backend.version or "",
            checkpoint_id=batch_id + 1,
            first_group=groups.start,
            last_group=groups.end,
            handle=result.handle.to_json() if result.handle else "",
            figures=json.dumps(figures),
            layout=committed.layout,
        )
        state.update(attrs.astuple(pointer))
        set_timeout(state, plan.time_mode, time, runner.operator.timers)
        acquired.succeeded = True


def _operator_state(
    plan: OperatorPlan, info: SubtaskInfo, committed: CommittedState
) -> list[OperatorStateHandle]:
    """What the subtask starts from: its own, its shares after a rescale, or a savepoint's."""
    found: list[OperatorStateHandle] = []
    for handle in (committed.handle,) if committed.handle else committed.sources:
        if isinstance(handle, KeyedStateHandle):
            found += handle.operator_state
        else:
            found += operator_state_share([handle], plan.uid, info.index, info.parallelism)
    return found


def _own_pointer(
    plan: OperatorPlan, query: str, run: str, layout: Layout, state: GroupState
) -> Pointer | None:
    """The committed pointer, if it is this operator's, and of the layout in force.

    Raises:
        RestoreError: it is another operator's, which would lose it, or of a layout that is not
            there.
    """
    pointer = Pointer.from_row(state.get) if state.exists else None
    if pointer is None:
        return None
    theirs = layout
    if pointer.operator_uid != plan.uid:
        uri, rules = plan.config.checkpoint.dir or "", plan.config.plugins
        theirs = layout_of_run(uri, rules, query, pointer.operator_uid, run)
        if pointer.layout == theirs.number:
            cause = f"Spark hands it the state of operator {pointer.operator_uid!r}"
            raise RestoreError(f"operator {plan.uid!r}", (cause,))
    if pointer.layout > theirs.number:
        cause = f"Spark's state names layout {pointer.layout}, the last one is {theirs.number}"
        raise RestoreError(f"operator {pointer.operator_uid!r}", (cause,))
    return pointer if pointer.layout == layout.number and theirs is layout else None


def _committed_state(
    plan: OperatorPlan, layout: Layout, info: SubtaskInfo, pointer: Pointer | None
) -> CommittedState:
    """What the committed pointer names, or after a rescale what the layout's sources hold."""
    if pointer is None:
        sources = tuple(layout.starting_points(info.index, plan.registry))
        last = max((source.checkpoint_id for source in sources), default=None)
        return CommittedState(layout.number, None, sources, last)
    own = KeyedStateHandle.from_json(pointer.handle, plan.storage()) if pointer.handle else None
    return CommittedState(layout.number, own, checkpoint_id=pointer.checkpoint_id)


def _running_query() -> tuple[str, str, int]:
    """The query's id, the run's, and the number of the batch."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise RestoreError("the operator", ("it does not run in a streaming query",))
    return query, context.getLocalProperty("spark.jobGroup.id") or "", int(batch)


def run_partition(plan: OperatorPlan, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Run all keys of a partition of a plain, bounded DataFrame: state lives for this call."""
    context = TaskContext.get()
    index = context.partitionId() if context else 0
    info = SubtaskInfo(plan.uid, index, plan.parallelism, plan.max_parallelism)
    with (
        tempfile.TemporaryDirectory(prefix="millpond-") as directory,
        _bounded_backend(plan, directory) as backend,
        open_operator_backend(config=plan.config) as operator_state,
    ):
        runner = SubtaskRunner(plan, info, backend, operator_state)
        yield from runner.run_by_key(frames) if plan.batch else runner.run(frames, None)


def _bounded_backend(plan: OperatorPlan, directory: str) -> KeyedStateBackend:
    codec = plan.key_codec()
    if plan.batch:
        return open_batch_backend(
            key_type=codec,
            max_parallelism=plan.max_parallelism,
            config=plan.config,
            place=plan.uid,
        )
    target = plan.resolution.target
    name = target if ":" in target else plan.resolution.name
    return open_keyed_backend(
        name,
        key_type=codec,
        max_parallelism=plan.max_parallelism,
        directory=directory,
        config=plan.config,
        place=plan.uid,
    )
