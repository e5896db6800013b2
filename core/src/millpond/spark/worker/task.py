"""The worker's side: one call runs one subtask for one micro-batch.

Read the pointer, get the backend at exactly that version, process the rows, take the snapshot,
write the new pointer. Nothing counts before Spark has committed the pointer.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from millpond.checkpoint import SnapshotResult
from millpond.errors import RestoreError
from millpond.operator_id import OperatorId
from millpond.runtime import SubtaskInfo, open_operator_backend
from millpond.spark.driver.layout import layout_of_run
from millpond.spark.driver.plan import OperatorPlan
from millpond.spark.driver.pointer import Pointer
from millpond.spark.driver.timing import BatchTime, set_timeout
from millpond.spark.metrics.worker_metrics import BatchMetrics, numbers_of
from millpond.spark.worker.backend_source import Acquired, acquire_backend
from millpond.spark.worker.committed_state import CommittedState, committed_state, own_pointer
from millpond.spark.worker.runner import SubtaskRunner, collector_paused

__all__ = ["run_subtask"]


def run_subtask(
    plan: OperatorPlan, label: int, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Run one subtask for one micro-batch: the function behind ``applyInPandasWithState``."""
    # pyspark joins our frames with an empty one, of which pandas warns in each batch.
    warnings.filterwarnings("ignore", "The behavior of DataFrame concat", FutureWarning)
    metrics = BatchMetrics()
    query, run, batch_id = _running_query()
    directory, rules = plan.config.checkpoint.dir or "", plan.config.plugins
    layout = layout_of_run(directory, rules, OperatorId(query, plan.uid), run)
    layout.require(plan.uid, plan.parallelism, plan.max_parallelism)
    pointer = own_pointer(plan, query, run, layout, state)
    if not plan.owns(label):
        # A timeout that a subtask of an earlier, larger parallelism has left.
        state.remove()
        return
    info = plan.subtask(label)
    committed = committed_state(plan, layout, info.index, pointer)
    yield from _Task(plan, info, query, batch_id + 1, committed, state, metrics).run(frames)


def _running_query() -> tuple[str, str, int]:
    """The query's id, the run's, and the number of the batch."""
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch = context.getLocalProperty("streaming.sql.batchId") if context else None
    if context is None or query is None or batch is None:
        raise RestoreError("the operator", ("it does not run in a streaming query",))
    return query, context.getLocalProperty("spark.jobGroup.id") or "", int(batch)


@attrs.frozen
class _Task:
    """A subtask's part of a micro-batch."""

    plan: OperatorPlan
    info: SubtaskInfo
    query: str
    checkpoint_id: int
    committed: CommittedState
    state: GroupState
    metrics: BatchMetrics

    def run(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the output; at the end Spark's state has the new pointer and timeout."""
        plan, metrics = self.plan, self.metrics
        groups = plan.key_groups(self.info.index)
        time = BatchTime.of(self.state, watermarked=plan.watermarked)
        restored = self.committed.operator_state
        with (
            plan.config.placed(),
            acquire_backend(
                plan, self.query, groups, self.committed, time.processing_time
            ) as acquired,
            open_operator_backend(restore=restored(self.info), config=plan.config) as own,
        ):
            metrics.lap("open_ms")
            metrics.begin(acquired.backend)
            last = self.committed.checkpoint_id
            runner = SubtaskRunner(plan, self.info, acquired.backend, own, last)
            yield from runner.run(frames, time)
            metrics.lap("process_ms")
            self._commit(acquired, runner)
            set_timeout(self.state, plan.time_mode, time, runner.operator.timers)
            acquired.succeeded = True

    def _commit(self, acquired: Acquired, runner: SubtaskRunner) -> None:
        """Take the snapshot, and hand Spark the pointer to it."""
        runner.operator.prepare_snapshot(self.checkpoint_id)
        with collector_paused():
            result = acquired.backend.snapshot(self.checkpoint_id, self.plan.storage()).result()
        self.metrics.lap("snapshot_ms")
        groups = acquired.backend.key_group_range
        pointer = Pointer(
            operator_uid=self.plan.uid,
            version=acquired.backend.version or "",
            checkpoint_id=self.checkpoint_id,
            first_group=groups.start,
            last_group=groups.end,
            handle=result.handle.to_json() if result.handle else "",
            figures=json.dumps(self._reported(acquired, runner, result)),
            layout=self.committed.layout,
        )
        self.state.update(attrs.astuple(pointer))

    def _reported(
        self, acquired: Acquired, runner: SubtaskRunner, result: SnapshotResult
    ) -> dict[str, Any]:
        """The batch's metrics, which the configured reporters have been given."""
        self.metrics.add(
            rows_in=runner.rows_in,
            rows_out=runner.rows_out,
            timers_fired=runner.operator.timers_fired,
            copies_discarded=acquired.copies_discarded,
        )
        config = self.plan.config
        native = config.metrics.native
        metrics = self.metrics.finish(acquired.backend, result, acquired.source, native=native)
        labels = {
            "operator": self.plan.uid,
            "subtask": str(self.info.index),
            "backend": acquired.backend.name,
        }
        self.plan.registry.report(config, numbers_of(metrics), labels)
        return metrics
