"""``operator``: run functions over a DataFrame's rows without keys."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from millpond.arguments import check_type
from millpond.functions.dead_letters import NullEventTimes, OnError
from millpond.functions.functions import KeylessFunction
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond_spark.api.operator_output import OperatorOutput, output_of_call
from millpond_spark.api.process_call import OutputMode, ProcessCall
from millpond_spark.plan.column_arguments import ColumnOrName
from millpond_spark.plan.second_input import BroadcastCodec, TextRows


def operator(df: DataFrame) -> OperatorStream:
    """Use a DataFrame, streaming or not, without keys: its rows are spread over the subtasks.

    A row's subtask depends on the row's values and on its partition in Spark. Therefore equal rows
    of a partition go to the same subtask.
    """
    check_type("df", df, DataFrame)
    return OperatorStream(df)


@attrs.frozen
class OperatorStream:
    """A DataFrame whose rows are spread over subtasks."""

    _df: DataFrame
    _connected: tuple[DataFrame, BroadcastCodec] | None = None

    def connect(
        self,
        other: DataFrame,
        *,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        event_time: ColumnOrName | None = None,
    ) -> OperatorStream:
        """Broadcast the rows of `other` to all subtasks.

        ``process`` then needs a ``BroadcastProcessFunction``.

        Args:
            other: the broadcast rows. It must be streaming if and only if this stream is.
            order_by: the columns of `other` by which its rows are sorted within a micro-batch,
                ascending and nulls first. Rows with equal values in these columns have a fixed but
                arbitrary order.
            event_time: the event-time column of `other`; by default its column with the watermark.

        Raises:
            ConfigError: a column does not exist, or only one of the two inputs is streaming.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        check_type("other", other, DataFrame)
        codec = BroadcastCodec(TextRows.from_rows(other, self._df, order_by, event_time))
        return attrs.evolve(self, connected=(other, codec))

    def process(
        self,
        function: KeylessFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: OutputMode = "append",
        event_time: ColumnOrName | None = None,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        on_error: OnError = "fail",
        null_event_times: NullEventTimes = "refuse",
    ) -> OperatorOutput:
        """Run `function` over the rows and return a DataFrame, as ``KeyedStream.process`` does.

        Args:
            function: the function. It is pickled and sent to the workers.
            output: the columns of the main output, as DDL or a StructType.
            uid: the operator's stable name. Millpond finds the operator's state by this name, so
                never change it.
            output_mode: the output mode of the query that uses the operator.
            event_time: the event-time column; by default the column with the watermark.
            order_by: the columns by which the rows of each subtask are sorted within a micro-batch,
                ascending and nulls first. By default the rows come in the order of Spark's shuffle,
                which varies.
            on_error: the treatment of a row whose ``process_element`` raises an exception, see
                ``KeyedStream.process``.
            null_event_times: the treatment of a row whose event time is null, see
                ``KeyedStream.process``.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: Millpond does not support a column's type.
            PluginError: the configured backend cannot be used.
        """
        check_type("output_mode", output_mode, OutputMode)
        other, connected = self._connected or (None, None)
        call = ProcessCall(
            df=self._df,
            keys=(),
            function=function,
            output=output,
            uid=uid,
            event_time=event_time,
            order_by=order_by,
            connected=connected,
            on_error=on_error,
            null_event_times=null_event_times,
        )
        return output_of_call(call, self._df, other, output_mode)
