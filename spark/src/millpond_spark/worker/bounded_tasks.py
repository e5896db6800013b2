"""Tasks over rows that end: a partition whose state lives for one call, and a bootstrap's part."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain

import pandas as pd
from millpond.backend import KeyedStateBackend
from millpond.backend.single_key import SingleKeyBackend
from millpond.operator.bootstrap import BootstrapOperator, fill_states, save_filled
from millpond.operator.opening import (
    StartingPoint,
    open_batch_backend,
    open_keyed_backend,
    open_operator_backend,
)
from millpond.savepoints.savepoint_file import operator_to_json
from millpond.savepoints.table_writer import SpooledRows
from pyspark import TaskContext
from typing_extensions import override

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.second_input import Keyed
from millpond_spark.plan.timing import own_rows
from millpond_spark.values.schemas import LABEL_COLUMN
from millpond_spark.worker.error_report import failed_before, readable_errors
from millpond_spark.worker.gc_control import gc_paused
from millpond_spark.worker.local_copies import roomiest_directory
from millpond_spark.worker.runner import SubtaskRunner
from millpond_spark.worker.vectorized import runner_of


def run_partition(plan: OperatorPlan, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Run all keys of a partition: the function behind ``mapInPandas``."""
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
    """Return the number of a partition's subtask by the label of its rows; None if it has none.

    Spark numbers the partitions of a whole stage, so ``union`` and ``coalesce`` change the number.
    If state is restored each subtask has a row. Otherwise a partition without rows may take any
    number.
    """
    if first is not None:
        return plan.subtask_of(first[LABEL_COLUMN].iloc[0])
    context = TaskContext.get()
    number = context.partitionId() if context else 0
    return number if number < plan.parallelism and not plan.restores else None


def _bounded_backend(
    plan: OperatorPlan, directory: str, index: int, start: StartingPoint
) -> KeyedStateBackend | SingleKeyBackend:
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
        key_group_range=plan.key_groups(index),
        directory=directory,
        config=plan.config,
        restore=start.handles,
        place=plan.uid,
    )


PART_COLUMN = "part"
"""The column of a written part, as JSON."""


class _Runner(SubtaskRunner):
    """Decodes rows for a bootstrap function."""

    @override
    def _operator_class(self, plan: OperatorPlan) -> type[BootstrapOperator]:
        return BootstrapOperator

    def keyed(self, frames: Iterable[pd.DataFrame]) -> Iterator[Keyed]:
        """Yield all rows, each with its key, key group and timestamp."""
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
        readable_errors(plan),
        gc_paused(),
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
