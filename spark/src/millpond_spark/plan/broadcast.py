"""Broadcast rows on Spark: every one goes to all subtasks, as one text beside the keyed rows.

Each subtask must see the same broadcast rows in the same order, or their maps would part. A
shuffle has no order, so the rows of a micro-batch are sorted: by the columns that the user
names, then by their text, which is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond_spark.plan.text_rows import TextRows
from millpond_spark.values.columns import GROUP_COLUMN, LABEL_COLUMN

__all__ = ["BroadcastCodec"]

BROADCAST_COLUMN = "millpond_broadcast"
_BROADCAST = -2


@attrs.frozen
class BroadcastCodec:
    """Carries broadcast rows to the workers, a text each.

    Attributes:
        texts: what makes texts of them.
    """

    texts: TextRows

    def joined(
        self, carried: DataFrame, fillers: dict[str, str], rows: DataFrame, labels: Sequence[int]
    ) -> DataFrame:
        """Keyed and broadcast rows in one frame.

        Args:
            carried: the carrier columns of the keyed rows.
            fillers: what stands in those columns in a broadcast row, in SQL.
            rows: the broadcast rows.
            labels: of all subtasks.
        """
        keyed = carried.withColumn(BROADCAST_COLUMN, F.lit(None).cast("string"))
        columns = {
            **fillers,
            GROUP_COLUMN: str(_BROADCAST),
            LABEL_COLUMN: f"array({', '.join(map(str, labels))})",
            BROADCAST_COLUMN: self.texts.encoded,
        }
        whole = self.texts.whole(rows)
        once = whole.selectExpr(*(f"{columns[name]} AS {name}" for name in keyed.columns))
        # A select that explodes loses the names of fields that it makes, on Spark 4.0 and 4.1.
        return keyed.union(once.withColumn(LABEL_COLUMN, F.explode(LABEL_COLUMN)))

    def rows(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        """The broadcast rows of a batch's frames, in their order."""
        texts = sorted(
            text
            for frame in frames
            for text in frame.loc[frame[GROUP_COLUMN] == _BROADCAST, BROADCAST_COLUMN]
        )
        return sorted(self.texts.decode(texts), key=self.texts.order)

    def timestamps(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """The event times of broadcast rows in ms, or None for each."""
        return self.texts.timestamps(rows)

    def keyed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame's keyed rows."""
        return frame[frame[GROUP_COLUMN] != _BROADCAST]
