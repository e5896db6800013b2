"""The DataFrame that a call of ``process`` returns, with methods for side outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import pandas as pd
from millpond.arguments import check_type
from millpond.errors import ConfigError
from millpond.functions.dead_letters import DEAD_LETTERS
from millpond.functions.joins import LATE_RIGHT
from millpond.functions.side_outputs import OutputTag
from millpond.keygroups import spreading
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType

from millpond_spark.api.process_call import ProcessCall
from millpond_spark.driver.query_checks import watch_writer
from millpond_spark.driver.query_start import warn_of_no_end, watch_operator, watermark_delay
from millpond_spark.plan import timing
from millpond_spark.plan.batch_identity import batch_column
from millpond_spark.plan.layout_decision import restore_bounded
from millpond_spark.plan.plan import OperatorPlan, key_group_column
from millpond_spark.plan.pointer import POINTER_SCHEMA
from millpond_spark.session.group_labels import group_labels, keyless_group
from millpond_spark.session.session import is_connect, spark_configuration
from millpond_spark.values.schemas import (
    GROUP_COLUMN,
    LABEL_COLUMN,
    column_named,
    output_schema,
    quoted,
)
from millpond_spark.values.side_outputs import SideRows, dead_letter_tag
from millpond_spark.worker.shipping import ShippedPlan
from millpond_spark.worker.task import run_partition, run_subtask

Build = Callable[[Sequence[OutputTag]], DataFrame]
"""A function that gets tags of side outputs, and returns the DataFrame of an operator's output.

The DataFrame has the columns of the main output, and a struct column for each tag.
"""


class OperatorOutput(DataFrame):
    """The main output of an operator, as a Spark DataFrame with methods for side outputs."""

    _build: Build
    _tags: tuple[OutputTag, ...]

    def side_output(self, tag: OutputTag) -> DataFrame:
        """Return a DataFrame of the rows of the side output `tag`.

        A query over this DataFrame runs the operator by itself. If another query writes the main
        output, the operator runs twice. See ``with_side_outputs`` for both outputs from one run.

        Raises:
            ConfigError: a column has the tag's name, or the tag's type is not valid.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        joint = self.with_side_outputs(tag)
        return joint.where(column_named(tag.tag_id).isNotNull()).select(f"{quoted(tag.tag_id)}.*")

    get_side_output = side_output

    def with_side_outputs(self, *tags: OutputTag) -> DataFrame:
        """Return one DataFrame with the main output and the side outputs `tags`.

        The operator runs once for all of them. The DataFrame has a struct column for each tag,
        named like the tag. In a row of the side output, the struct has the row's values, and the
        columns of the main output are null. In all other rows the struct is null. For example,
        ``out.where("late is not null").select("late.*")`` has the rows of ``OutputTag("late")``.

        Raises:
            ConfigError, UnsupportedColumnError: as ``side_output``.
        """
        if not tags:
            raise ConfigError("tags", "name at least one side output", "with_side_outputs(...)")
        for tag in tags:
            check_type("tags", tag, OutputTag)
        return self._build((*self._tags, *tags))


def operator_output(build: Build, tags: Sequence[OutputTag] = ()) -> OperatorOutput:
    """Return the DataFrame of an operator's output, with the methods for side outputs.

    Args:
        build: builds the DataFrame for a list of tags.
        tags: the side outputs that have a struct column in the DataFrame.
    """
    main = build(tags)
    kind: Any = type(main)
    made: OperatorOutput = object.__new__(_output_class(kind))
    vars(made).update(vars(main), _build=build, _tags=tuple(tags))
    return made


@cache
def _output_class(kind: type[DataFrame]) -> type[OperatorOutput]:
    """Return a subclass of ``OperatorOutput`` and of `kind`, the DataFrame class of the session."""
    return type("OperatorOutput", (OperatorOutput, kind), {"__doc__": OperatorOutput.__doc__})


def output_of_call(
    call: ProcessCall,
    rows: DataFrame,
    other: DataFrame | None,
    output_mode: str,
    *,
    batch: bool = False,
) -> OperatorOutput:
    """Return the output of a call of ``process``; raise an error if the arguments are wrong.

    Args:
        call: the arguments of the call.
        rows: the rows for the operator. Rows that ``null_keys`` excludes are not among them.
        other: the connected rows, or None.
        output_mode: the output mode of the query that the operator is used in.
        batch: whether the rows are sorted by key, as with ``execution_mode="batch"``.
    """
    config = spark_configuration(rows.sparkSession)
    inputs = (rows,) if other is None else (rows, other)
    with config.locating_errors():
        plan, extension = call.plan(config)
        delay = max(map(watermark_delay, inputs)) if plan.chained else 0
        plan = attrs.evolve(plan, batch=batch, watermark_delay=delay)
        carried = carried_rows(extension.applied(rows), plan, other)
        if rows.isStreaming and config.checkpoint.dir is None:
            reason = "a streaming query needs it: name a directory that all executors reach"
            raise ConfigError("checkpoint.dir", reason)

    def build(tags: Sequence[OutputTag]) -> DataFrame:
        made = _with_sides(plan, call, tags)
        with config.locating_errors():
            if not rows.isStreaming:
                return _bounded_output(carried, restore_bounded(made))
            name = _watched_name(rows.sparkSession, made)
            passed = timing.passed_watermark(*inputs)
            return _streaming_output(carried, made, output_mode, name, passed)

    return operator_output(build)


def _with_sides(plan: OperatorPlan, call: ProcessCall, tags: Sequence[OutputTag]) -> OperatorPlan:
    """Return `plan` with the side outputs `tags` of a call.

    Raises:
        ConfigError: a column has a tag's name, or a tag's type is not valid.
        UnsupportedColumnError: Millpond does not support a column's type.
    """
    if not tags:
        return attrs.evolve(plan, faults=attrs.evolve(plan.faults, taken=False))
    columns = call.side_columns or call.df.schema
    typed = [_typed_tag(tag, plan, columns) for tag in tags]
    schema = output_schema(call.output)
    sides = SideRows.from_schema(schema, typed, columns, in_lists=call.df.isStreaming)
    faults = attrs.evolve(plan.faults, taken=DEAD_LETTERS in tags)
    return attrs.evolve(plan, sides=sides, faults=faults)


def _watched_name(session: SparkSession, plan: OperatorPlan) -> str:
    """Watch the queries of an operator; return the name of its function in Spark's plan."""
    watch_writer(remote=is_connect(session))
    if not plan.settles:
        return watch_operator(session, plan)
    warn_of_no_end(session, plan)
    return f"millpond[{plan.uid}]"


def _typed_tag(tag: OutputTag, plan: OperatorPlan, columns: StructType) -> OutputTag:
    """Return `tag`, with a type if it is one of Millpond's own tags.

    ``DEAD_LETTERS`` gets the columns of the dead letters, ``LATE_RIGHT`` those of the second input.

    Args:
        tag: a tag that the user has named.
        plan: the operator's plan.
        columns: the columns of the operator's input.

    Raises:
        ConfigError: the tag is ``DEAD_LETTERS``, and the operator has no dead letters.
    """
    second = None if plan.second is None else plan.second.texts.schema
    if tag is LATE_RIGHT and second is not None:
        return OutputTag(tag.tag_id, second)
    if tag == DEAD_LETTERS and plan.faults.has_letters:
        return dead_letter_tag(columns, second)
    if tag is DEAD_LETTERS:
        reason = "this operator has none: give process(...) on_error='side_output'"
        raise ConfigError(tag.tag_id, reason, "with_side_outputs(...)")
    return tag


def carried_rows(df: DataFrame, plan: OperatorPlan, other: DataFrame | None) -> DataFrame:
    """Return the input of an operator, encoded so that pandas does not change any value.

    The returned DataFrame has the encoded columns (see ``RowCodec``), a column with the key group,
    and a column with the label, the number by which Spark groups the rows of a subtask. It contains
    each row of a second keyed input once, and each broadcast row once per subtask.

    Args:
        df: the rows of the first input.
        plan: the operator's plan.
        other: the rows of the second input or the broadcast rows, if there are any.
    """
    labels = group_labels(plan.parallelism)

    names = plan.rows.plain_names
    if plan.is_keyless:
        types = [field.dataType for field in df.schema]
        group = keyless_group(names, types, plan.max_parallelism)
    else:
        keys = [names[position] for position in plan.key_positions]
        group = key_group_column(keys, plan.key_fields, plan.max_parallelism)
    owner = f"CAST({group} * {plan.parallelism} div {plan.max_parallelism} AS INT)"
    label = f"get(array({', '.join(map(str, labels))}), {owner})"
    carried = plan.rows.encoded(df, f"{group} AS {GROUP_COLUMN}", f"{label} AS {LABEL_COLUMN}")
    if other is not None and plan.second is not None:
        return plan.second.joined(carried, plan.rows, plan.key_positions, (group, label), other)
    if other is None or plan.broadcast is None:
        return carried
    return plan.broadcast.joined(carried, plan.rows.expressions(()), other, labels)


def _streaming_output(
    carried: DataFrame,
    plan: OperatorPlan,
    output_mode: str,
    name: str,
    passed: DataFrame | None,
) -> DataFrame:
    """Return the output of an operator over a stream.

    Args:
        carried: the operator's input, see ``carried_rows``.
        plan: the operator's plan.
        output_mode: the output mode of the query.
        name: the name of the operator's function in Spark's plan.
        passed: a stream with the watermark of the operators before; None without such operators.
    """
    shipped = ShippedPlan.from_plan(plan)

    def subtask(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        return run_subtask(shipped.load(), key[0], frames, state)

    subtask.__name__ = name
    labels = group_labels(plan.parallelism)
    if passed is not None:
        # The wake-ups are in each batch. So each subtask knows the watermark of the batch before.
        carried = timing.with_one_wake_up_each(carried, labels, passed)
    carried = carried.select("*", timing.time_column())
    batch = batch_column(carried.sparkSession, plan) if plan.settles else None
    if plan.wakes and passed is None:
        carried = timing.with_wake_ups(carried, labels, batch)
    result = carried.groupBy(LABEL_COLUMN).applyInPandasWithState(
        subtask,
        outputStructType=plan.returned.schema(),
        stateStructType=POINTER_SCHEMA,
        outputMode=output_mode,
        timeoutConf=timing.TIMEOUTS[plan.time_mode],
    )
    if batch is not None and plan.time_mode is not None:
        # In a micro-batch without rows Spark does not compute the operator's input. The subquery
        # runs only if a step behind the operator uses it too.
        result = result.where(batch.isNotNull())
    return plan.returned.restored(result)


def _bounded_output(carried: DataFrame, plan: OperatorPlan) -> DataFrame:
    """Return the output of an operator over a DataFrame that is not streaming."""
    shipped = ShippedPlan.from_plan(plan)

    def partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return run_partition(shipped.load(), frames)

    if plan.restores:
        carried = timing.with_one_wake_up_each(carried, group_labels(plan.parallelism))
    spread = carried.repartition(spreading(plan.parallelism), LABEL_COLUMN)
    if plan.batch:
        spread = spread.sortWithinPartitions(*plan.rows.carried_names(plan.key_positions))
    result = spread.mapInPandas(partition, plan.returned.schema())
    return plan.returned.restored(result)
