"""The DataFrame that ``process`` returns: the main output, and side outputs on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import pandas as pd
from millpond.arguments import check_type
from millpond.errors import ConfigError
from millpond.functions.side_outputs import OutputTag
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState

from millpond_spark.api.process_call import ProcessCall
from millpond_spark.driver.query_start import warn_of_no_end, watch_operator
from millpond_spark.driver.watched_writer import watch_writer
from millpond_spark.plan.batch_identity import batch_column
from millpond_spark.plan.operator_declaration import restore_bounded
from millpond_spark.plan.plan import OperatorPlan, key_group_column
from millpond_spark.plan.pointer import POINTER_SCHEMA
from millpond_spark.plan.timing import TIMEOUTS, time_column, with_one_wake_up_each, with_wake_ups
from millpond_spark.session.group_labels import group_labels, keyless_group, spreading
from millpond_spark.session.session import is_connect, spark_configuration
from millpond_spark.values.frames import plain_name
from millpond_spark.values.schemas import (
    GROUP_COLUMN,
    LABEL_COLUMN,
    column_named,
    output_schema,
    quoted,
)
from millpond_spark.values.side_outputs import SideRows
from millpond_spark.worker.bounded_tasks import run_partition
from millpond_spark.worker.shipping import ShippedPlan
from millpond_spark.worker.task import run_subtask

Build = Callable[[Sequence[OutputTag]], DataFrame]
"""A function that builds an operator's DataFrame, with a struct column for each side output."""


class OperatorOutput(DataFrame):
    """The main output of an operator: a DataFrame of Spark's with methods for side outputs."""

    _build: Build
    _tags: tuple[OutputTag, ...]

    def side_output(self, tag: OutputTag) -> DataFrame:
        """Return the rows of a side output, as a DataFrame of its own.

        A query over it runs the operator again, next to a query over the main output. To get both
        from one run, see ``with_side_outputs``.

        Raises:
            ConfigError: the tag's name is that of a column, or its type is not one.
            UnsupportedColumnError: a column's type would lose values.
        """
        joint = self.with_side_outputs(tag)
        return joint.where(column_named(tag.tag_id).isNotNull()).select(f"{quoted(tag.tag_id)}.*")

    get_side_output = side_output

    def with_side_outputs(self, *tags: OutputTag) -> DataFrame:
        """Return the main output and side outputs in one DataFrame, from one run of the operator.

        A row of a side output is in the struct column that has the tag's name. This column is null
        in all other rows, and the columns of the main output are null in this row. So
        ``late is not null`` selects the rows of ``OutputTag("late")``, ``late.*`` their columns.

        Raises:
            ConfigError, UnsupportedColumnError: as ``side_output``.
        """
        if not tags:
            raise ConfigError("tags", "name at least one side output", "with_side_outputs(...)")
        for tag in tags:
            check_type("tags", tag, OutputTag)
        return self._build((*self._tags, *tags))


def operator_output(build: Build, tags: Sequence[OutputTag] = ()) -> OperatorOutput:
    """Return the output of an operator, with struct columns for some side outputs."""
    main = build(tags)
    kind: Any = type(main)
    made: OperatorOutput = object.__new__(_output_class(kind))
    vars(made).update(vars(main), _build=build, _tags=tuple(tags))
    return made


@cache
def _output_class(kind: type[DataFrame]) -> type[OperatorOutput]:
    """Return the class for DataFrames of this process, or for those over Spark Connect."""
    return type(
        OperatorOutput.__name__, (OperatorOutput, kind), {"__doc__": OperatorOutput.__doc__}
    )


def output_of_call(
    call: ProcessCall,
    rows: DataFrame,
    other: DataFrame | None,
    output_mode: str,
    *,
    batch: bool = False,
) -> OperatorOutput:
    """Return the output of a call, or raise the errors that are in the call.

    Args:
        call: the arguments of ``process``.
        rows: the rows, without those that ``null_keys`` leaves out.
        other: the connected rows.
        output_mode: the output mode of the query that the operator is used in.
        batch: whether rows come sorted by key.
    """
    session = rows.sparkSession
    config = spark_configuration(session)
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
            sides = SideRows.from_schema(schema, tags, columns, in_lists=rows.isStreaming)
        with config.locating_errors():
            made = attrs.evolve(plan, sides=sides)
            if not rows.isStreaming:
                return _bounded_output(carried, restore_bounded(made))
            watch_writer(remote=is_connect(session))
            if not made.settles:
                return _streaming_output(carried, made, output_mode, watch_operator(session, made))
            warn_of_no_end(session, made)
            return _streaming_output(carried, made, output_mode, f"millpond[{made.uid}]")

    return operator_output(build)


def carried_rows(df: DataFrame, plan: OperatorPlan, other: DataFrame | None) -> DataFrame:
    """Return the rows as carrier columns, the key group and the label of the group's subtask.

    The rows of a second keyed input are among them under their own keys; broadcast rows are among
    them once for each subtask.
    """
    labels = group_labels(plan.parallelism)
    types = [field.dataType for field in df.schema] if plan.is_keyless else []

    def group_and_label(names: Sequence[str]) -> list[str]:
        if plan.is_keyless:
            group = keyless_group(names, types, plan.max_parallelism)
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


def _streaming_output(
    carried: DataFrame, plan: OperatorPlan, output_mode: str, name: str
) -> DataFrame:
    """Return the output of a streaming operator; ``name`` is its function's in Spark's plan."""
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
        # In a batch without rows Spark omits the plan below the operator: use the column above it.
        result = result.where(batch.isNotNull())
    return plan.returned.restored(result)


def _bounded_output(carried: DataFrame, plan: OperatorPlan) -> DataFrame:
    """Return the output of an operator over a DataFrame that is not streaming."""
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
