"""``key_by(df, …).process(function, …)``: the operator as users build it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.arguments import check_type
from millpond.errors import ConfigError, brief
from millpond.runtime import KeyedProcessFunction
from millpond.runtime.windows import WindowAssigner, window
from millpond.spark.broadcast import BroadcastCodec
from millpond.spark.columns import column_named
from millpond.spark.driver.plan import key_codec_of
from millpond.spark.driver.planning import ProcessCall
from millpond.spark.driver.query_start import watch_operator
from millpond.spark.driver.timing import TimeMode
from millpond.spark.operator_frame import bounded_output, carried_rows, streaming_output
from millpond.spark.schemas import column_names
from millpond.spark.session import spark_configuration
from millpond.spark.windowed import WindowedStream

__all__ = ["KeyedStream", "key_by"]

NullKeys = Literal["refuse", "drop", "aside"]
OutputMode = Literal["append", "update"]
ExecutionMode = Literal["streaming", "batch"]


def key_by(df: DataFrame, *keys: str, null_keys: NullKeys = "refuse") -> KeyedStream:
    """Key a DataFrame, streaming or not, by one or more columns.

    Args:
        df: the rows.
        keys: names of columns; with several, the current key is a named tuple of them.
        null_keys: what to do with a row in which a key column is null: ``refuse`` fails the
            query, ``drop`` leaves it out, ``aside`` leaves it to ``KeyedStream.null_key_rows``.

    Raises:
        ConfigError: a column does not exist or cannot be a key.
    """
    check_type("df", df, DataFrame)
    if not keys:
        raise ConfigError("keys", "name at least one column", "key_by(...)")
    for key in keys:
        if not isinstance(key, str):
            reason = f"name columns by text, one argument each, not by {type(key).__name__}"
            raise ConfigError("keys", reason, "key_by(...)")
        if key not in df.columns:
            reason = f"there is no such column; there are: {', '.join(df.columns)}"
            raise ConfigError(key, reason, "key_by(...)")
    if null_keys not in ("refuse", "drop", "aside"):
        reason = f"expected one of refuse, drop, aside, got {brief(null_keys)}"
        raise ConfigError("null_keys", reason, "key_by(...)")
    key_codec_of(keys, [df.schema[key].dataType for key in keys])
    return KeyedStream(df, keys, null_keys)


@attrs.frozen
class KeyedStream:
    """A DataFrame whose rows are grouped by key."""

    _df: DataFrame
    _keys: tuple[str, ...]
    _null_keys: NullKeys
    _broadcast: tuple[DataFrame, BroadcastCodec] | None = None

    @property
    def row_schema(self) -> StructType:
        """The columns of the rows."""
        return self._df.schema

    @property
    def null_key_rows(self) -> DataFrame:
        """The rows that ``null_keys="aside"`` leaves out of the operator, as they came."""
        return self._df.where(~self._has_key())

    def _has_key(self) -> Column:
        condition = F.lit(True)
        for key in self._keys:
            condition = condition & column_named(key).isNotNull()
        return condition

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Divide each key's rows into windows; see ``millpond.windows``."""
        return WindowedStream(self.process, self.row_schema, window(assigner))

    def connect(
        self,
        broadcast: DataFrame,
        *,
        order_by: str | Sequence[str] = (),
        event_time: str | None = None,
    ) -> KeyedStream:
        """Have the rows of another DataFrame reach every subtask.

        ``process`` then takes a ``KeyedBroadcastProcessFunction``.

        Args:
            broadcast: the rows, streaming if this stream is.
            order_by: columns by which a micro-batch's broadcast rows are ordered, ascending and
                nulls first. Without them, and among equals, the order is a fixed one of no meaning.
            event_time: the broadcast rows' column of event time; by default the one with the
                watermark.

        Raises:
            ConfigError: a column does not exist, or only one of the two is streaming.
            UnsupportedColumnError: a column's type cannot be carried without loss.
        """
        check_type("broadcast", broadcast, DataFrame)
        check_type("event_time", event_time, str | None)
        if broadcast.isStreaming != self._df.isStreaming:
            reason = "either both DataFrames are streaming or neither is"
            raise ConfigError("broadcast", reason, "connect(...)")
        names = column_names("order_by", order_by)
        codec = BroadcastCodec.of(broadcast.schema, names, event_time)
        return attrs.evolve(self, broadcast=(broadcast, codec))

    def process(
        self,
        function: KeyedProcessFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: OutputMode = "append",
        event_time: str | None = None,
        order_by: str | Sequence[str] = (),
        time_mode: TimeMode | None = None,
        execution_mode: ExecutionMode = "streaming",
    ) -> DataFrame:
        """Run a keyed function over the rows; returns an ordinary DataFrame.

        Args:
            function: the function; it is pickled to the workers.
            output: the columns that it yields, as DDL or a StructType. Rows with names are matched
                by name, tuples and lists by position.
            uid: the operator's stable name; state is found by it, so never change it.
            output_mode: the output mode of the query that the operator is used in.
            event_time: the column of event time; by default the one with the watermark.
            order_by: columns by which each key's rows of a micro-batch are ordered, ascending
                and nulls first. Without it their order is the shuffle's: none.
            time_mode: for a function with timers, what makes Spark run a batch without rows so
                that due timers fire. ``event-time``, the default where there is a watermark: that
                the watermark has moved; processing-time timers fire in whatever batch comes next.
                ``processing-time``, the default without one: time goes on, so a query runs batch
                after batch, and both kinds fire.
            execution_mode: of a DataFrame that is not streaming: ``batch`` sorts the rows by key
                and keeps state in memory for one key at a time; timers fire at the end of each
                key. ``streaming`` keeps all keys in the configured backend.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: a column's type cannot be carried without loss.
            PluginError: the configured backend cannot be used.
        """
        check_type("event_time", event_time, str | None)
        check_type("output_mode", output_mode, OutputMode)
        rows, codec = self._broadcast or (None, None)
        call = ProcessCall(
            df=self._df,
            keys=self._keys,
            broadcast=codec,
            function=function,
            output=output,
            uid=uid,
            event_time=event_time,
            order_by=order_by,
            time_mode=time_mode,
        )
        config = spark_configuration(self._df.sparkSession)
        with config.placed():
            plan = call.plan(config)
            batch = self._is_batch(execution_mode)
            df = self._df if self._null_keys == "refuse" else self._df.where(self._has_key())
            carried = carried_rows(df, plan, rows)
            if not df.isStreaming:
                return bounded_output(carried, attrs.evolve(plan, batch=batch))
            if config.checkpoint.dir is None:
                reason = "a streaming query needs it: name a directory that all executors reach"
                raise ConfigError("checkpoint.dir", reason)
            name = watch_operator(df.sparkSession, plan)
            return streaming_output(carried, plan, output_mode, name)

    def _is_batch(self, execution_mode: str) -> bool:
        if execution_mode not in ("streaming", "batch"):
            reason = f"expected one of streaming, batch, got {brief(execution_mode)}"
            raise ConfigError("execution_mode", reason, "process(...)")
        if execution_mode == "batch" and self._df.isStreaming:
            reason = "a streaming DataFrame has no end to sort for"
            raise ConfigError("execution_mode", reason, "process(...)")
        return execution_mode == "batch"
