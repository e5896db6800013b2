"""``process``: from an operator's plan to the DataFrame of its output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
import pandas as pd
from millpond.errors import ConfigError
from millpond.functions.side_outputs import OutputTag
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState

from millpond_spark.api.operator_output import OperatorOutput, operator_output
from millpond_spark.api.planning import ProcessCall
from millpond_spark.driver.query_start import warn_of_no_end, watch_operator
from millpond_spark.driver.several_operators import watch_starts
from millpond_spark.driver.workers_python import check_workers_python
from millpond_spark.plan.batch_identity import batch_column
from millpond_spark.plan.operator_declaration import restore_bounded
from millpond_spark.plan.plan import OperatorPlan, key_group_column
from millpond_spark.plan.pointer import POINTER_SCHEMA
from millpond_spark.plan.timing import TIMEOUTS, time_column, with_one_wake_up_each, with_wake_ups
from millpond_spark.session.group_labels import dealt_group, group_labels, spreading
from millpond_spark.session.session import is_connect, spark_configuration
from millpond_spark.values.frames import plain_name
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN, output_schema
from millpond_spark.values.side_outputs import SideRows
from millpond_spark.worker.batch_partition import run_partition
from millpond_spark.worker.shipping import ShippedPlan
from millpond_spark.worker.task import run_subtask


def carried_rows(df: DataFrame, plan: OperatorPlan, other: DataFrame | None) -> DataFrame:
    """The rows as they travel: carrier columns, the key group, the label of the group's subtask.

    Those of another input stand among them: of a second keyed one under their own keys, and
    broadcast rows once for each subtask.
    """
    labels = group_labels(plan.parallelism)
    types = [field.dataType for field in df.schema] if plan.is_keyless else []

    def group_and_label(names: Sequence[str]) -> list[str]:
        if plan.is_keyless:
            group = dealt_group(names, types, plan.max_parallelism)
        else:
            keys = [names[position] for position in plan.key_positions]
            group = key_group_column(keys, plan.key_fields, plan.max_parallelism)
        owner = f"CAST({group} * {plan.parallelism} div {plan.max_parallelism} AS INT)"
        label = f"get(array({', '.join(map(str, labels))}), {owner})"
        return [f"{group} AS {GROUP_COLUMN}", f"{label} AS {LABEL_COLUMN}"]

    carried = plan.rows.encoded(df, group_and_label)
    if other is not None and plan.second is not None:
        names = list(map(plain_name, range(len(plan.rows.names))))
        return plan.second.joined(
            carried, plan.rows, plan.key_positions, group_and_label(names), other
        )
    if other is None or plan.broadcast is None:
        return carried
    return plan.broadcast.joined(carried, plan.rows.fillers(), other, labels)


def streaming_output(
    carried: DataFrame, plan: OperatorPlan, output_mode: str, name: str
) -> DataFrame:
    """The output of a streaming operator, whose function has the given name in Spark's plan."""
    shipped = ShippedPlan.from_plan(plan)

    def subtask(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        return run_subtask(shipped.load(), key[0], frames, state)

    subtask.__name__ = name
    carried = carried.select("*", time_column())
    batch = batch_column(carried.sparkSession, plan) if plan.settles else None
    if plan.wakes:
        carried = with_wake_ups(carried, group_labels(plan.parallelism), batch)
    result = carried.groupBy(LABEL_COLUMN).applyInPandasWithState(
        subtask,
        outputStructType=plan.returned.schema(),
        stateStructType=POINTER_SCHEMA,
        outputMode=output_mode,
        timeoutConf=TIMEOUTS[plan.time_mode],
    )
    if batch is not None and plan.time_mode is not None:
        # In a batch without rows Spark leaves out what is below the operator.
        result = result.where(batch.isNotNull())
    return plan.returned.restored(result)


def bounded_output(carried: DataFrame, plan: OperatorPlan) -> DataFrame:
    """The output of an operator over a DataFrame that is not streaming."""
    shipped = ShippedPlan.from_plan(plan)

    def partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return run_partition(shipped.load(), frames)

    if plan.restores:
        carried = with_one_wake_up_each(carried, group_labels(plan.parallelism))
    spread = carried.repartition(spreading(plan.parallelism), LABEL_COLUMN)
    if plan.batch:
        spread = spread.sortWithinPartitions(*plan.rows.sort_columns(plan.key_positions))
    result = spread.mapInPandas(partition, plan.returned.schema())
    return plan.returned.restored(result)


OutputMode = Literal["append", "update"]


def output_of(
    call: ProcessCall,
    rows: DataFrame,
    other: DataFrame | None,
    output_mode: str,
    *,
    batch: bool = False,
) -> OperatorOutput:
    """The output of a call; errors in the call are raised at once.

    Args:
        call: what ``process`` was given.
        rows: the rows of the call, without those that are left out.
        other: the rows that are connected with them.
        output_mode: of the query that the operator is used in.
        batch: whether rows come sorted by key.
    """
    check_workers_python(rows.sparkSession)
    config = spark_configuration(rows.sparkSession)
    with config.locating_errors():
        plan, extension = call.plan(config)
        plan = attrs.evolve(plan, batch=batch)
        carried = carried_rows(extension.applied(rows), plan, other)
        if rows.isStreaming and config.checkpoint.dir is None:
            reason = "a streaming query needs it: name a directory that all executors reach"
            raise ConfigError("checkpoint.dir", reason)

    def build(tags: Sequence[OutputTag]) -> DataFrame:
        schema = output_schema(call.output)
        sides = None
        if tags:
            columns = call.side_columns or call.df.schema
            sides = SideRows.of(schema, tags, columns, in_lists=rows.isStreaming)
        with config.locating_errors():
            made = attrs.evolve(plan, sides=sides)
            if not rows.isStreaming:
                return bounded_output(carried, restore_bounded(made))
            return streaming_output(carried, made, output_mode, _watched(rows, made))

    return operator_output(build)


def _watched(df: DataFrame, plan: OperatorPlan) -> str:
    """Have the operator's layout settled when a query starts; returns its function's name."""
    watch_starts(remote=is_connect(df.sparkSession))
    if not plan.settles:
        return watch_operator(df.sparkSession, plan)
    warn_of_no_end(df.sparkSession, plan)
    return f"millpond[{plan.uid}]"
