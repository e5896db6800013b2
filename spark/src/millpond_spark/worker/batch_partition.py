"""A partition of a DataFrame that is not streaming: its state lives for one call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain

import pandas as pd
from millpond.backend import KeyedStateBackend
from millpond.backend.single_key import SingleKeyBackend
from millpond.operator.opening import (
    StartingPoint,
    open_batch_backend,
    open_keyed_backend,
    open_operator_backend,
)
from pyspark import TaskContext

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.timing import own_rows
from millpond_spark.values.schemas import LABEL_COLUMN
from millpond_spark.worker.error_report import failed_before, told_readably
from millpond_spark.worker.gc_control import collector_paused
from millpond_spark.worker.vectorized import runner_of


def run_partition(plan: OperatorPlan, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Run all keys of a partition: the function behind ``mapInPandas``."""
    with told_readably(plan):
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
        collector_paused(),
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
    """The number of a partition's subtask, which its rows say by their label; None without one.

    Spark's number of the partition is that of the whole stage's, which ``union`` and ``coalesce``
    make another. Where state is restored, each subtask has a row; elsewhere it does not matter
    which one it is that has none.
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
