"""Rows of a further input, which cross beside the carrier columns of the first as one text each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Self

import attrs
from millpond.errors import ConfigError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond_spark.plan.column_arguments import Choice, ColumnOrName, order_choices, time_choice
from millpond_spark.plan.timing import event_times
from millpond_spark.plan.watermarks import follows_outer_join, is_watermarked, watermark_column
from millpond_spark.values.frames import nulls_first, plain_name
from millpond_spark.values.nested import NestedCarrier

_ROW = "millpond_row"


@attrs.frozen
class TextRows:
    """Carries rows as texts.

    Attributes:
        names: the columns.
        order_by: the positions of those by which a batch's rows are ordered.
        event_time: the position of the column of event time, or None.
        watermarked: whether it is a stream with a watermark.
        from_outer_join: whether it has a watermark and comes from an outer join of two streams.
    """

    names: tuple[str, ...]
    order_by: tuple[int, ...]
    event_time: int | None
    watermarked: bool
    from_outer_join: bool
    _carrier: NestedCarrier

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        first: DataFrame,
        order_by: ColumnOrName | Sequence[ColumnOrName],
        event_time: ColumnOrName | None,
    ) -> Self:
        """The codec of a DataFrame's rows, which are connected to those of a first one.

        Raises:
            ConfigError: only one of the two is streaming; what the rows are ordered or dated by is
                not one of their columns.
            UnsupportedColumnError: a column's type would lose values.
        """
        if rows.isStreaming != first.isStreaming:
            reason = "either both DataFrames are streaming or neither is"
            raise ConfigError("other", reason, "connect(...)")
        schema = rows.schema
        positions = tuple(map(_position, order_choices(rows, order_by, "connect")))
        if event_time is not None:
            at: int | None = _position(time_choice(rows, event_time, "connect"))
        else:
            at = watermark_column(schema, "connect")
        carrier = NestedCarrier("connect", schema)
        watermarked = is_watermarked(rows)
        outer = watermarked and follows_outer_join(rows)
        return cls(tuple(schema.names), positions, at, watermarked, outer, carrier)

    @property
    def encoded(self) -> str:
        """In SQL, the text of a row of :meth:`whole`."""
        return self._carrier.encode(_ROW)

    def whole(self, rows: DataFrame, *beyond: str) -> DataFrame:
        """Rows as structs; a frame may have columns behind theirs, which get these names."""
        plain = list(map(plain_name, range(len(self.names))))
        parts = [f"struct({', '.join(plain)}) AS {_ROW}", *beyond]
        whole = rows.toDF(*plain, *beyond).selectExpr(*parts)
        return whole.withColumn(_ROW, self._carrier.by_position(F.col(_ROW)))

    def decode(self, texts: Iterable[str]) -> list[Any]:
        """The rows of texts."""
        return list(map(self._carrier.decode, texts))

    def order(self, row: Any) -> list[Any]:
        """What a row is ordered by."""
        return [nulls_first(row[at]) for at in self.order_by]

    def timestamps(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """The event times of rows in ms, or None for each."""
        at = self.event_time
        return repeat(None, len(rows)) if at is None else event_times(row[at] for row in rows)


def _position(choice: Choice) -> int:
    """Where a column of these rows stands: they travel as they are, with nothing beside."""
    if choice.position is None:
        reason = "expected one of the connected rows' own columns: add it to them by withColumn"
        raise ConfigError(choice.field.name, reason, "connect(...)")
    return choice.position
