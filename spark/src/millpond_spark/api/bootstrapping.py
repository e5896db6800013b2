"""The Spark job of a ``SavepointWriter``: it writes rows as an operator's state into a savepoint.

Spark spreads the rows over subtasks, as it does for an operator, and sorts them by key group and
key. So a task has in memory only the state of one key and the rows that wait to be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pandas as pd
from millpond.config import Config
from millpond.operator.bootstrap import Bootstrap
from millpond.savepoints.collect import merged_operator
from millpond.savepoints.savepoint_file import SavedOperator, operator_from_json
from millpond.snapshots.handles import SavepointHandle
from pyspark.sql import DataFrame

from millpond_spark.api.process_call import ProcessCall, carried_rows
from millpond_spark.plan.column_arguments import Choice
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.session.group_labels import spreading
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN
from millpond_spark.worker.shipping import ShippedPlan
from millpond_spark.worker.task import PART_COLUMN, write_part


def write_operator(
    df: DataFrame, keys: Sequence[Choice], job: Bootstrap, config: Config, target: SavepointHandle
) -> SavedOperator:
    """Run the job that writes the tables of an operator into a savepoint.

    Args:
        df: the rows that have keys.
        keys: the columns of the key.
        job: the operator to write.
        config: the session's configuration.
        target: the savepoint.
    """
    call = ProcessCall(df, keys, job.function, f"{PART_COLUMN} string", job.uid)
    with config.locating_errors():
        plan, extension = call.plan(config)
        groups = job.max_parallelism
        parallelism = min(plan.parallelism, groups)
        plan = attrs.evolve(plan, parallelism=parallelism, max_parallelism=groups)
        carried = carried_rows(extension.applied(df), plan, None)
    # Values beyond 64 bits need another form of column, and the job meets them only in writing.
    # So it runs again, with that form for the states that have such values.
    exact: frozenset[str] = frozenset()
    while True:
        parts = _write_parts(carried, plan, target.storage.uri, exact)
        wanted = frozenset(s.meta.name for part in parts for s in part.states if s.exact)
        if all(state.exact == (state.meta.name in wanted) for p in parts for state in p.states):
            return merged_operator(job.uid, parts)
        exact = wanted


def _write_parts(
    carried: DataFrame, plan: OperatorPlan, place: str, exact: frozenset[str]
) -> list[SavedOperator]:
    """Run the job once, and return for each task the part of the operator that it wrote.

    Args:
        carried: the rows as carrier frames.
        plan: the operator's plan.
        place: the savepoint's URI.
        exact: the states to write in the form for values beyond 64 bits.
    """
    shipped = ShippedPlan.from_plan(plan)

    def task(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return write_part(shipped.load(), place, exact, frames)

    spread = carried.repartition(spreading(plan.parallelism), LABEL_COLUMN)
    keys = plan.rows.carried_names(plan.key_positions)
    ordered = spread.sortWithinPartitions(GROUP_COLUMN, *keys)
    written: Any = ordered.mapInPandas(task, f"{PART_COLUMN} string").collect()
    texts = [row[0] for row in written]
    if not texts:
        texts = [text for frame in task(iter(())) for text in frame[PART_COLUMN]]
    return list(map(operator_from_json, texts))
