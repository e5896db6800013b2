"""From a ``process`` call to its output: what keyed and keyless operators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs
from millpond.errors import ConfigError
from millpond.functions.side_outputs import OutputTag
from pyspark.sql import DataFrame

from millpond_spark.api.operator_frame import bounded_output, carried_rows, streaming_output
from millpond_spark.api.operator_output import OperatorOutput, operator_output
from millpond_spark.api.planning import ProcessCall
from millpond_spark.driver.bounded_start import starting_from_savepoint
from millpond_spark.driver.query_start import warn_of_no_end, watch_operator
from millpond_spark.driver.several_operators import watch_starts
from millpond_spark.driver.workers_python import check_workers_python
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.session.session import is_connect, spark_configuration
from millpond_spark.values.schemas import output_schema
from millpond_spark.values.side_rows import SideRows

__all__ = ["OutputMode", "output_of"]

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
    with config.placed():
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
        with config.placed():
            made = attrs.evolve(plan, sides=sides)
            if not rows.isStreaming:
                return bounded_output(carried, starting_from_savepoint(made))
            return streaming_output(carried, made, output_mode, _watched(rows, made))

    return operator_output(build)


def _watched(df: DataFrame, plan: OperatorPlan) -> str:
    """Have the operator's layout settled when a query starts; returns its function's name."""
    watch_starts(remote=is_connect(df.sparkSession))
    if not plan.settles:
        return watch_operator(df.sparkSession, plan)
    warn_of_no_end(df.sparkSession, plan)
    return f"millpond[{plan.uid}]"
