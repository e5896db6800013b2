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
from pyspark.sql.types import StructType

from millpond.spark.carriers.carrier import Carrier
from millpond.spark.carriers.frames import nothing, nulls_first
from millpond.spark.carriers.nested import carrier_for
from millpond.spark.columns import GROUP_COLUMN, LABEL_COLUMN, column_named
from millpond.spark.driver.timing import event_times, watermark_column
from millpond.spark.schemas import position_of, time_position

__all__ = ["BroadcastCodec"]

BROADCAST_COLUMN = "millpond_broadcast"
_BROADCAST = -2


@attrs.frozen
class BroadcastCodec:
    """Carries broadcast rows to the workers, a text each.

    Attributes:
        names: the columns.
        order_by: the positions of those by which a batch's rows are ordered.
        event_time: the position of the column of event time, or None.
    """

    names: tuple[str, ...]
    order_by: tuple[int, ...]
    event_time: int | None
    _carrier: Carrier

    @classmethod
    def of(
        cls, schema: StructType, order_by: Sequence[str], event_time: str | None
    ) -> BroadcastCodec:
        """The codec of a schema; UnsupportedColumnError for a type that would lose values."""
        positions = tuple(position_of(schema, name, "connect") for name in order_by)
        moment = event_time or watermark_column(schema)
        at = None if moment is None else time_position(schema, moment)
        return cls(tuple(schema.names), positions, at, carrier_for("broadcast", schema))

    def joined(
        self, carried: DataFrame, fillers: dict[str, Any], rows: DataFrame, labels: Sequence[int]
    ) -> DataFrame:
        """Keyed and broadcast rows in one frame.

        Args:
            carried: the carrier columns of the keyed rows.
            fillers: what stands in those columns in a broadcast row; null where there is none.
            rows: the broadcast rows.
            labels: of all subtasks.
        """
        keyed = carried.withColumn(BROADCAST_COLUMN, F.lit(None).cast("string"))
        text = self._carrier.encode(F.struct(*(column_named(name) for name in self.names)))
        columns = {
            field.name: F.lit(fillers.get(field.name)).cast(field.dataType)
            for field in keyed.schema
        }
        columns[BROADCAST_COLUMN] = text
        columns[GROUP_COLUMN] = F.lit(_BROADCAST)
        columns[LABEL_COLUMN] = F.explode(F.array(*(F.lit(label) for label in labels)))
        spread = rows.select(*(column.alias(name) for name, column in columns.items()))
        return keyed.union(spread)

    def rows(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        """The broadcast rows of a batch's frames, in their order."""
        texts = sorted(
            text
            for frame in frames
            for text in frame.loc[frame[GROUP_COLUMN] == _BROADCAST, BROADCAST_COLUMN]
        )
        decoded = [self._carrier.decode(text) for text in texts]
        return sorted(decoded, key=lambda row: [nulls_first(row[at]) for at in self.order_by])

    def timestamps(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """The event times of broadcast rows in ms, or None for each."""
        at = self.event_time
        return nothing(len(rows)) if at is None else event_times(row[at] for row in rows)

    def keyed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame's keyed rows."""
        return frame[frame[GROUP_COLUMN] != _BROADCAST]
