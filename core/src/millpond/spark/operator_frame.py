"""From an operator's plan to the DataFrame of its output: what Spark is asked to run."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from millpond.errors import ConfigError
from millpond.spark.columns import GROUP_COLUMN, LABEL_COLUMN, column_named
from millpond.spark.driver.group_labels import group_labels
from millpond.spark.driver.plan import OperatorPlan, key_group_column
from millpond.spark.driver.pointer import POINTER_SCHEMA
from millpond.spark.driver.timing import TIMEOUTS, time_column, with_wake_ups
from millpond.spark.schemas import brief_reason
from millpond.spark.worker.bounded import run_partition
from millpond.spark.worker.task import run_subtask

__all__ = ["bounded_output", "carried_rows", "streaming_output"]


def carried_rows(df: DataFrame, plan: OperatorPlan, broadcast: DataFrame | None) -> DataFrame:
    """The rows as they travel: carrier columns, the key group, the label of the group's subtask.

    Broadcast rows stand among them, once for each subtask.
    """
    columns = [column_named(name) for name in plan.rows.names]
    keys = [columns[position] for position in plan.key_positions]
    group = key_group_column(keys, plan.key_fields, plan.max_parallelism)
    carried = df.select(*plan.rows.encode(columns), group.alias(GROUP_COLUMN))
    all_labels = group_labels(plan.parallelism)
    labels = F.array(*(F.lit(label) for label in all_labels))
    owner = F.call_function(
        "div", F.col(GROUP_COLUMN) * plan.parallelism, F.lit(plan.max_parallelism)
    )
    carried = carried.withColumn(LABEL_COLUMN, F.get(labels, owner.cast("int")))
    if broadcast is None or plan.broadcast is None:
        return carried
    return plan.broadcast.joined(carried, plan.rows.fillers(), broadcast, all_labels)


@contextmanager
def _shipping(plan: OperatorPlan) -> Iterator[None]:
    """Spark pickles the plan; where that fails, it is for what the user's function holds."""
    try:
        yield
    except pickle.PicklingError as error:
        function = type(plan.function).__name__
        reason = f"{function} cannot be pickled for the workers: {brief_reason(error)}"
        raise ConfigError("function", reason, f"process(uid={plan.uid!r})") from error


def streaming_output(
    carried: DataFrame, plan: OperatorPlan, output_mode: str, name: str
) -> DataFrame:
    """The output of a streaming operator, whose function has the given name in Spark's plan."""

    def subtask(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        return run_subtask(plan, key[0], frames, state)

    subtask.__name__ = name
    carried = carried.select("*", time_column())
    if plan.wakes:
        carried = with_wake_ups(carried, group_labels(plan.parallelism))
    with _shipping(plan):
        result = carried.groupBy(LABEL_COLUMN).applyInPandasWithState(
            subtask,
            outputStructType=plan.output.output_schema(),
            stateStructType=POINTER_SCHEMA,
            outputMode=output_mode,
            timeoutConf=TIMEOUTS[plan.time_mode] if plan.timed else "NoTimeout",
        )
    return result.select(*plan.output.restore())


def bounded_output(carried: DataFrame, plan: OperatorPlan) -> DataFrame:
    """The output of an operator over a DataFrame that is not streaming."""

    def partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return run_partition(plan, frames)

    spread = carried.repartition(plan.parallelism, LABEL_COLUMN)
    if plan.batch:
        spread = spread.sortWithinPartitions(*plan.rows.sort_columns(plan.key_positions))
    with _shipping(plan):
        result = spread.mapInPandas(partition, plan.output.output_schema())
    return result.select(*plan.output.restore())
