"""The worker's side of a bootstrap: one call writes the tables of one subtask."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

import pandas as pd
from millpond.operator.bootstrap import BootstrapOperator, fill_states, save_filled
from millpond.operator.opening import open_batch_backend, open_operator_backend
from millpond.savepoints.savepoint_file import operator_to_json
from millpond.savepoints.table_writer import SpooledRows
from pyspark import TaskContext
from typing_extensions import override

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.second_input import Keyed
from millpond_spark.worker.error_report import failed_before, told_readably
from millpond_spark.worker.gc_control import collector_paused
from millpond_spark.worker.local_copies import roomiest_directory
from millpond_spark.worker.runner import SubtaskRunner

PART_COLUMN = "part"
"""What a task has written, as JSON."""


class _Runner(SubtaskRunner):
    """Decodes rows for a bootstrap function."""

    @override
    def _operator_class(self, plan: OperatorPlan) -> type[BootstrapOperator]:
        return BootstrapOperator

    def keyed(self, frames: Iterable[pd.DataFrame]) -> Iterator[Keyed]:
        """All rows, each with its key, key group and timestamp."""
        return (row for decoded in self._decoded(frames) for row in self._keyed_rows(decoded))


def write_part(
    plan: OperatorPlan, place: str, exact: frozenset[str], frames: Iterable[pd.DataFrame]
) -> Iterator[pd.DataFrame]:
    """Write a subtask's part of an operator: the function behind ``mapInPandas``.

    Files have names that no other attempt uses.

    Args:
        plan: the operator's, with a bootstrap function.
        place: the savepoint's URI.
        exact: the states to write in the exact form.
        frames: the rows, sorted by key group and key.
    """
    context = TaskContext.get()
    index = context.partitionId() if context else 0
    if index >= plan.parallelism:
        return
    info = plan.subtask(index, failed_before())
    with (
        told_readably(plan),
        collector_paused(),
        open_batch_backend(
            key_type=plan.key_codec(),
            max_parallelism=plan.max_parallelism,
            config=plan.config,
            place=plan.uid,
        ) as backend,
        open_operator_backend(config=plan.config) as own,
        SpooledRows(backend.current.layout, roomiest_directory()) as spooled,
    ):
        runner = _Runner(plan, info, backend, own)
        fill_states(runner.operator, runner.keyed(frames), backend, spooled)
        mark = f"-{uuid.uuid4().hex[:12]}"
        saved = save_filled(backend, spooled, plan.located(place), plan.uid, exact, mark)
        yield pd.DataFrame({PART_COLUMN: [operator_to_json(saved)]})
