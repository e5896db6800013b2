"""A vectorized function's rows in a worker: they remain columns from end to end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from millpond.errors import OutputTypeError
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.operator.arrow_results import ResultTable, rows_of_table
from millpond.operator.operators import RowFrame, VectorizedOperator
from typing_extensions import override

from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.frames import in_key_order
from millpond_spark.values.schemas import GROUP_COLUMN
from millpond_spark.worker.gc_control import with_gc_between
from millpond_spark.worker.ordering import in_order
from millpond_spark.worker.runner import SubtaskRunner


class VectorizedRunner(SubtaskRunner):
    """Feeds frames to a vectorized function, and packs the tables that it returns."""

    operator: VectorizedOperator

    @override
    def _batches(self, frames: Iterable[pd.DataFrame]) -> Iterator[RowFrame]:
        if self._plan.order_by:
            frames = in_order(frames, self._sort_keys)
        for frame in with_gc_between(frames):
            if len(frame):
                yield self._frame(in_key_order(frame, self._key_columns, GROUP_COLUMN))

    @override
    def _process(self, frame: RowFrame, output: list[Any]) -> Iterator[pd.DataFrame]:
        self.rows_in += frame.rows.num_rows
        yield from self._packed(output)  # of timers that fired before
        for table in self.operator.process_frame(frame):
            self.rows_out += table.num_rows
            yield from self._frames(table)

    def _frames(self, table: ResultTable) -> list[pd.DataFrame]:
        """Return the carrier frames of a table that the function returned."""
        plan = self._plan
        if not table.num_rows:
            return []
        try:
            if plan.sides is None:
                return [plan.output.table_frame(table, plan.uid)]
            self._packer.add(list(rows_of_table(table)))
            return self._packer.take()
        except OutputTypeError as error:
            raise self.operator.output_error(error) from error

    @property
    def _key_columns(self) -> list[str]:
        return self._plan.rows.carried_names(self._plan.key_positions)

    def _frame(self, frame: pd.DataFrame) -> RowFrame:
        """Decode a carrier frame whose rows are sorted by key."""
        plan = self._plan
        carried = [plan.rows.carried_values(frame, each) for each in plan.key_positions]
        # A null is carried as a value that may be a key too, so the mask counts as a column.
        starts = _starts([each for pair in carried for each in pair if each is not None])
        first = frame if len(starts) == len(frame) else frame.take(starts)
        keys = self._keys(plan.rows.decode(first))
        return RowFrame(
            plan.rows.batch(frame),
            keys,
            first[GROUP_COLUMN].tolist(),
            starts,
            self._column(keys),
            self._times(frame),
        )

    def _column(self, keys: list[Any]) -> Any:
        """Return the keys for the function: for one key column, an array of its type."""
        positions = self._plan.key_positions
        if len(positions) > 1:
            return keys
        return pa.array(keys, self._plan.rows.arrow_types[positions[0]])

    def _times(self, frame: pd.DataFrame) -> Any:
        """Return the event times of rows in ms."""
        position = self._plan.event_time
        if position is None:
            return None
        values, nulls = self._plan.rows.carried_values(frame, position)
        return pa.array(values // 1000, pa.int64(), mask=nulls)


def _starts(keys: list[Any]) -> Any:
    """Return the positions of the first rows of keys in sorted columns; a null is a key too."""
    new = np.ones(len(keys[0]), bool)
    new[1:] = np.logical_or.reduce([_changes(column) for column in keys])
    return np.flatnonzero(new)


def _changes(column: Any) -> Any:
    """Return whether each value but the first differs from the one before; NaN is one key."""
    after, before = column[1:], column[:-1]
    if column.dtype.kind == "f":
        return (after != before) & ~(np.isnan(after) & np.isnan(before))
    return np.asarray(after != before, bool)


def runner_of(plan: OperatorPlan) -> type[SubtaskRunner]:
    """Return the class that runs a plan's function."""
    vectorized = isinstance(plan.function, VectorizedProcessFunction)
    return VectorizedRunner if vectorized else SubtaskRunner
