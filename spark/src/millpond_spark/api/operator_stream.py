"""``operator(df).process(function, …)``: functions over rows without keys."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from millpond.arguments import check_type
from millpond.functions.functions import ProcessFunction
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond_spark.api.operator_dataframe import OperatorOutput, output_of_call
from millpond_spark.api.process_call import OutputMode, ProcessCall
from millpond_spark.plan.column_arguments import ColumnOrName
from millpond_spark.plan.second_input import BroadcastCodec, TextRows


def operator(df: DataFrame) -> OperatorStream:
    """Use a DataFrame, streaming or not, without keys: its rows are spread over the subtasks.

    The values of a row and its partition in Spark determine the subtask. So equal rows of one
    partition go to the same subtask; otherwise there is no order among subtasks.
    """
    check_type("df", df, DataFrame)
    return OperatorStream(df)


@attrs.frozen
class OperatorStream:
    """A DataFrame whose rows are spread over subtasks."""

    _df: DataFrame
    _broadcast: tuple[DataFrame, BroadcastCodec] | None = None

    def connect(
        self,
        other: DataFrame,
        *,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        event_time: ColumnOrName | None = None,
    ) -> OperatorStream:
        """Give the rows of another DataFrame to every subtask.

        ``process`` then takes a ``BroadcastProcessFunction``.

        Args:
            other: the rows, streaming if this stream is.
            order_by: columns by which a micro-batch's rows of the other input are ordered,
                ascending and nulls first. Equal rows have a fixed order without meaning.
            event_time: the other rows' event-time column; by default the one with the watermark.

        Raises:
            ConfigError: a column does not exist, or only one of the two inputs is streaming.
            UnsupportedColumnError: a column's type cannot cross without loss.
        """
        check_type("other", other, DataFrame)
        codec = BroadcastCodec(TextRows.from_rows(other, self._df, order_by, event_time))
        return attrs.evolve(self, broadcast=(other, codec))

    def process(
        self,
        function: ProcessFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: OutputMode = "append",
        event_time: ColumnOrName | None = None,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
    ) -> OperatorOutput:
        """Run a function over the rows and return a DataFrame, as ``KeyedStream.process`` does.

        Args:
            function: the function; it is pickled to the workers.
            output: the columns that it yields, as DDL or a StructType.
            uid: the operator's stable name. State is found by it, so never change it.
            output_mode: the output mode of the query that the operator is used in.
            event_time: the event-time column; by default the one with the watermark.
            order_by: columns by which a micro-batch's rows are ordered in each subtask, ascending
                and nulls first. Without it they come in the shuffle's order, which varies.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: a column's type cannot cross without loss.
            PluginError: the configured backend cannot be used.
        """
        check_type("output_mode", output_mode, OutputMode)
        other, broadcast = self._broadcast or (None, None)
        call = ProcessCall(
            df=self._df,
            keys=(),
            function=function,
            output=output,
            uid=uid,
            event_time=event_time,
            order_by=order_by,
            broadcast=broadcast,
        )
        return output_of_call(call, self._df, other, output_mode)
