"""The Spark job of a ``SavepointWriter``: it writes rows as an operator's state into a savepoint.

Spark spreads the rows over subtasks, as it does for an operator, and sorts them by key group and
key. Therefore a task needs memory only for the state of one key and for a buffer of rows to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pandas as pd
from millpond.config import Config
from millpond.keygroups import spreading
from millpond.operator.bootstrap import Bootstrap
from millpond.savepoints.collect import merged_operator
from millpond.savepoints.savepoint_file import SavedOperator, operator_from_json
from millpond.snapshots.handles import SavepointHandle
from pyspark.sql import DataFrame

from millpond_spark.api.operator_output import carried_rows
from millpond_spark.api.process_call import ProcessCall
from millpond_spark.plan.column_arguments import Choice
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN
from millpond_spark.worker.shipping import ShippedPlan
from millpond_spark.worker.task import PART_COLUMN, write_part


def write_operator(
    df: DataFrame, keys: Sequence[Choice], job: Bootstrap, config: Config, target: SavepointHandle
) -> SavedOperator:
    """Write the rows `df` as the state of an operator into the savepoint `target`.

    Returns:
        The record of the operator's states, for the savepoint's metadata file.

    Args:
        df: the rows, none of which has a null key.
        keys: the key columns.
        job: the operator's uid, its number of key groups, and the function that fills its states.
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
    # A state with values beyond 64 bits is stored in columns of another type. The job finds these
    # values only while it writes. It then runs again, with the other type for these states.
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
    """Run the job once, and return one record per Spark task: the states that the task wrote.

    Args:
        carried: the encoded rows, see ``carried_rows``.
        plan: the operator's plan.
        place: the savepoint's URI.
        exact: the names of states to store in columns for values beyond 64 bits.
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
