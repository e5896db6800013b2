"""The second input of an operator: keyed rows, or broadcast rows.

The rows of both inputs reach the worker in the same frames. A row of the second input is encoded as
one JSON text in a further column. If the row has a key, the key is in the columns of the first
input's key. All other columns of the first input are empty in this row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any, Self

import attrs
import pandas as pd
from millpond.errors import ConfigError
from millpond.functions.functions import INPUTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond_spark.plan import timing
from millpond_spark.plan.column_arguments import Choice, ColumnOrName, choose, time_choice
from millpond_spark.values.frames import RowCodec, nulls_first, plain_name, sort_keys
from millpond_spark.values.nested import NestedCarrier
from millpond_spark.values.schemas import GROUP_COLUMN, LABEL_COLUMN

_ROW = "millpond_row"


@attrs.frozen
class TextRows:
    """The codec of a second input: Spark encodes each row as a text, and the worker decodes it.

    Attributes:
        names: the names of the second input's columns.
        order_by: the positions of the columns by which the rows of a batch are sorted.
        event_time: the position of the event-time column, or None.
        watermarked: whether the second input is a stream with a watermark.
        chained: whether its rows may come only when the watermark has passed them.
        behind_join: the uid of an operator before that follows a join of two streams, or "".
    """

    names: tuple[str, ...]
    order_by: tuple[int, ...]
    event_time: int | None
    watermarked: bool
    chained: bool
    behind_join: str
    _carrier: NestedCarrier

    @classmethod
    def from_rows(
        cls,
        rows: DataFrame,
        first: DataFrame,
        order_by: ColumnOrName | Sequence[ColumnOrName],
        event_time: ColumnOrName | None,
    ) -> Self:
        """Return the codec of the rows of a second input.

        Args:
            rows: the second input.
            first: the first input.
            order_by: the columns by which the second input's rows in a batch are sorted.
            event_time: the second input's event-time column; by default its column with the
                watermark.

        Raises:
            ConfigError: only one of the two inputs is streaming, or `order_by` or `event_time`
                names an expression instead of a column of `rows`.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        if rows.isStreaming != first.isStreaming:
            reason = "either both DataFrames are streaming or neither is"
            raise ConfigError("other", reason, "connect(...)")
        schema = rows.schema
        positions = tuple(map(_position, choose(rows, "order_by", order_by, "connect")))
        if event_time is not None:
            at: int | None = _position(time_choice(rows, event_time, "connect"))
        else:
            at = timing.watermark_column(schema, "connect")
        carrier = NestedCarrier("connect", schema)
        chained = timing.may_hold_rows(rows)
        watermarked = chained or timing.is_watermarked(rows)
        behind = timing.operator_behind_join(rows)
        return cls(tuple(schema.names), positions, at, watermarked, chained, behind, carrier)

    @property
    def schema(self) -> StructType:
        """The columns of the rows."""
        declared = self._carrier.declared
        assert isinstance(declared, StructType)
        return declared

    @property
    def encoded(self) -> str:
        """The SQL that turns a row, as the method ``whole`` returns it, into a text."""
        return self._carrier.encode(_ROW)

    def whole(self, rows: DataFrame, *beyond: str) -> DataFrame:
        """Return each row as a struct in one column. The SQL ``encoded`` refers to this column.

        Args:
            rows: the second input's rows. They may have further columns at the end.
            beyond: the names of the further columns, which are returned unchanged.
        """
        plain = list(map(plain_name, range(len(self.names))))
        parts = [f"struct({', '.join(plain)}) AS {_ROW}", *beyond]
        whole = rows.toDF(*plain, *beyond).selectExpr(*parts)
        return whole.withColumn(_ROW, self._carrier.by_position(F.col(_ROW)))

    def decode(self, texts: Iterable[str]) -> list[Any]:
        """Decode `texts`; return the rows that functions see."""
        return list(map(self._carrier.decode, texts))

    def order(self, row: Any) -> list[Any]:
        """Return the sort key of `row`: its values in the columns `order_by`."""
        return [nulls_first(row[at]) for at in self.order_by]

    def timestamps(self, rows: Sequence[Any]) -> Iterable[int | None]:
        """Return the event time in ms of each of `rows`.

        A row's event time is None if the value is null or if there is no event-time column.
        """
        at = self.event_time
        return (
            repeat(None, len(rows)) if at is None else timing.event_times(row[at] for row in rows)
        )


def _position(choice: Choice) -> int:
    """Return the position of `choice`; raise ConfigError if it is an expression."""
    if choice.position is None:
        reason = "expected one of the connected rows' own columns: add it to them by withColumn"
        raise ConfigError(choice.field.name, reason, "connect(...)")
    return choice.position


SECOND_COLUMN = "millpond_second"
"""The column with the text of a second input's row. It is null in rows of the first input."""

Keyed = tuple[Any, int, Any, int | None]
"""A row's key, the key's group, the row itself, and the row's event time in ms.

The key's type has been checked.
"""

InputRow = tuple[int, Any, Keyed]
"""The number of a row's input (0 for the first, 1 for the second), the sort key, and the row."""


def check_keys(first: Sequence[Choice], second: Sequence[Choice]) -> None:
    """Raise ConfigError unless the key columns of two inputs have the same types."""
    types = [[key.field.dataType.simpleString() for key in keys] for keys in (first, second)]
    if types[0] != types[1]:
        mine, theirs = (", ".join(each) for each in types)
        reason = f"the first input's are ({mine}), the second's ({theirs}): cast them to one type"
        raise ConfigError("keys", reason, "connect(...)")


@attrs.frozen
class SecondInput:
    """The second keyed input of an operator.

    Attributes:
        texts: the codec of the second input's rows.
        in_time_order: whether the rows of both inputs are processed in the order of event times.
        comes_first: whether the second input's rows come before the first input's rows of a batch,
            or of the same event time if the rows are in the order of event times.
    """

    texts: TextRows
    in_time_order: bool
    comes_first: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the rows of a batch must be sorted."""
        return self.in_time_order or bool(self.texts.order_by)

    def ahead(self, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the rows of all `frames`, the second input's rows first.

        All frames are in memory at the same time, because any frame may have rows of both inputs.
        """
        held = [(frame, frame[SECOND_COLUMN].notna()) for frame in frames]
        yield from (frame[second] for frame, second in held)
        yield from (frame[~second] for frame, second in held)

    def joined(
        self,
        carried: DataFrame,
        rows: RowCodec,
        key_positions: Sequence[int],
        group_and_label: tuple[str, str],
        second: DataFrame,
    ) -> DataFrame:
        """Return one DataFrame with the encoded rows of both inputs.

        Args:
            carried: the encoded rows of the first input.
            rows: the codec of the first input's rows.
            key_positions: the positions of the key columns in the first input.
            group_and_label: the SQL of a row's key group, and the SQL of the number by which Spark
                groups the rows of a subtask.
            second: the second input's rows, with their key columns appended.
        """
        first = carried.withColumn(SECOND_COLUMN, F.lit(None).cast("string"))
        columns = {
            **rows.expressions(key_positions),
            GROUP_COLUMN: group_and_label[0],
            LABEL_COLUMN: group_and_label[1],
            SECOND_COLUMN: self.texts.encoded,
        }
        names = {f"millpond_key{at}": plain_name(at) for at in key_positions}
        whole = self.texts.whole(second, *names).withColumnsRenamed(names)
        return first.union(
            whole.selectExpr(*(f"{columns[name]} AS {name}" for name in first.columns))
        )

    def rows(
        self,
        texts: Sequence[str | None],
        first: Iterable[Keyed],
        order: Sequence[Sequence[Any]],
    ) -> list[InputRow]:
        """Return the rows of both inputs in a frame, with their sort keys.

        Args:
            texts: for each row of the frame, the text of a second input's row, or None for a row of
                the first input.
            first: all rows of the frame, decoded as rows of the first input. Of a second input's
                row, only the key and the key group are used.
            order: the decoded columns by which the first input's rows are sorted.
        """
        keyed = list(first)
        numbers = [int(isinstance(text, str)) for text in texts]
        theirs = self.texts.decode(text for text in texts if isinstance(text, str))
        decoded = iter(zip(theirs, self.texts.timestamps(theirs), strict=False))
        own = list(sort_keys(order))
        result: list[InputRow] = []
        for at, (number, each) in enumerate(zip(numbers, keyed, strict=True)):
            if number:
                row, timestamp = next(decoded)
                mine: Keyed = (each[0], each[1], row, timestamp)
                rank: Any = self.texts.order(row)
            else:
                mine, rank = each, list(own[at]) if own else []
            time = nulls_first(mine[3]) if self.in_time_order else ()
            result.append((number, (time, number ^ self.comes_first, rank), mine))
        return result


def runs_of(rows: Iterable[InputRow]) -> Iterator[tuple[str, Iterator[Keyed]]]:
    """Yield each run of rows of one input, with the name of the function's method for them."""
    for number, run in groupby(rows, key=lambda row: row[0]):
        yield INPUTS[number], (row[2] for row in run)


BROADCAST_COLUMN = "millpond_broadcast"
_BROADCAST = -2


@attrs.frozen
class BroadcastCodec:
    """The broadcast input of an operator.

    Attributes:
        texts: the codec of the broadcast rows.
    """

    texts: TextRows

    def joined(
        self, carried: DataFrame, fillers: dict[str, str], rows: DataFrame, labels: Sequence[int]
    ) -> DataFrame:
        """Return one DataFrame with the encoded keyed rows, and each broadcast row per subtask.

        Args:
            carried: the encoded keyed rows.
            fillers: the SQL of the values that a broadcast row has in the columns of `carried`.
            rows: the broadcast rows.
            labels: for each subtask, the number by which Spark groups its rows.
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
        # On Spark 4.0 and 4.1 a select that explodes loses the names of new fields.
        return keyed.union(once.withColumn(LABEL_COLUMN, F.explode(LABEL_COLUMN)))

    def rows(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        """Return the broadcast rows in a batch's frames, sorted by the user's ``order_by``."""
        texts = sorted(
            text
            for frame in frames
            for text in frame.loc[frame[GROUP_COLUMN] == _BROADCAST, BROADCAST_COLUMN]
        )
        return sorted(self.texts.decode(texts), key=self.texts.order)

    def keyed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return `frame` without its broadcast rows."""
        return frame[frame[GROUP_COLUMN] != _BROADCAST]
