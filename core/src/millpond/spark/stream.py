"""``key_by(df, …).process(function, …)``: the operator as users build it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.config import Config
from millpond.errors import ConfigError
from millpond.keygroups import check_parallelism
from millpond.runtime import KeyedBroadcastProcessFunction, KeyedProcessFunction
from millpond.runtime.opening import configured_backend
from millpond.runtime.windows import WindowAssigner, window
from millpond.spark.broadcast import BroadcastCodec
from millpond.spark.carriers.frames import RowCodec
from millpond.spark.columns import GROUP_COLUMN, LABEL_COLUMN, column_named
from millpond.spark.driver.group_labels import group_labels
from millpond.spark.driver.past import Past
from millpond.spark.driver.plan import OperatorPlan, check_uid, key_codec_of, key_group_column
from millpond.spark.driver.pointer import POINTER_SCHEMA
from millpond.spark.driver.query_start import watch_operator
from millpond.spark.driver.timing import (
    TIMEOUTS,
    TimeMode,
    time_column,
    watermark_column,
    with_wake_ups,
)
from millpond.spark.schemas import output_schema, position_of, time_position
from millpond.spark.session import spark_configuration
from millpond.spark.windowed import WindowedStream
from millpond.spark.worker.task import run_partition, run_subtask

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

__all__ = ["KeyedStream", "key_by"]

NullKeys = Literal["refuse", "drop", "aside"]


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
        reason = f"expected one of refuse, drop, aside, got {null_keys!r}"
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
        return WindowedStream(self, window(assigner))

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
        if broadcast.isStreaming != self._df.isStreaming:
            reason = "either both DataFrames are streaming or none is"
            raise ConfigError("broadcast", reason, "connect(...)")
        names = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        codec = BroadcastCodec.of(broadcast.schema, names, event_time)
        return attrs.evolve(self, broadcast=(broadcast, codec))

    def process(
        self,
        function: KeyedProcessFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: Literal["append", "update"] = "append",
        event_time: str | None = None,
        order_by: str | Sequence[str] = (),
        time_mode: TimeMode | None = None,
        execution_mode: Literal["streaming", "batch"] = "streaming",
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
        config = spark_configuration(self._df.sparkSession)
        with config.placed():
            plan = self._plan(function, output, uid, config, event_time, order_by, time_mode)
            return self._operator(plan, output_mode, execution_mode)

    def _operator(self, plan: OperatorPlan, output_mode: str, execution_mode: str) -> DataFrame:
        df = self._df if self._null_keys == "refuse" else self._df.where(self._has_key())
        carried = _carried(df, plan)
        if self._broadcast is not None:
            rows, codec = self._broadcast
            labels = group_labels(plan.parallelism)
            carried = codec.joined(carried, plan.rows.fillers(), rows, labels)
        if execution_mode not in ("streaming", "batch"):
            reason = f"expected one of streaming, batch, got {execution_mode!r}"
            raise ConfigError("execution_mode", reason, "process(...)")
        if not df.isStreaming:
            batch = execution_mode == "batch"
            return _run_bounded(carried, attrs.evolve(plan, batch=batch))
        if execution_mode == "batch":
            reason = "a streaming DataFrame has no end to sort for"
            raise ConfigError("execution_mode", reason, "process(...)")
        if plan.config.checkpoint.dir is None:
            reason = "a streaming query needs it: name a directory that all executors reach"
            raise ConfigError("checkpoint.dir", reason)
        name = watch_operator(self._df.sparkSession, plan)
        return _run_streaming(carried.select("*", time_column()), plan, output_mode, name)

    def _plan(
        self,
        function: KeyedProcessFunction,
        output: str | StructType,
        uid: str,
        config: Config,
        event_time: str | None,
        order_by: str | Sequence[str],
        time_mode: TimeMode | None,
    ) -> OperatorPlan:
        check_uid(uid)
        schema = self._df.schema
        parallelism = config.parallelism or self._df.sparkSession.sparkContext.defaultParallelism
        if config.checkpoint.claim:
            reason = (
                "cannot be on Spark: a query owns the snapshots it has taken, and a savepoint that "
                "it starts from stays yours, to delete when you like"
            )
            raise ConfigError("checkpoint.claim", reason)
        past = Past.of(config, uid) if self._df.isStreaming else Past()
        max_parallelism = config.max_parallelism or past.max_parallelism(parallelism)
        check_parallelism(max_parallelism, parallelism)
        if not isinstance(function, KeyedProcessFunction):
            raise ConfigError("function", "is no KeyedProcessFunction", f"process(uid={uid!r})")
        if isinstance(function, KeyedBroadcastProcessFunction) != (self._broadcast is not None):
            reason = "connect(...) and a KeyedBroadcastProcessFunction belong together"
            raise ConfigError("function", reason, f"process(uid={uid!r})")
        watermark = watermark_column(schema)
        moment = event_time or watermark
        mode = _time_mode(function, time_mode, watermarked=watermark is not None)
        ordering = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        return OperatorPlan(
            uid=uid,
            function=function,
            rows=RowCodec.of(schema),
            output=RowCodec.of(output_schema(output)),
            key_positions=tuple(position_of(schema, key, "key_by") for key in self._keys),
            key_fields=tuple(schema[key].dataType for key in self._keys),
            event_time=None if moment is None else time_position(schema, moment),
            order_by=tuple(position_of(schema, name, "order_by") for name in ordering),
            watermarked=self._df.isStreaming and watermark is not None,
            time_mode=mode,
            timed=mode is not None or past.timed(),
            wakes=self._df.isStreaming
            and (mode is not None or config.checkpoint.restore is not None),
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            config=config,
            broadcast=None if self._broadcast is None else self._broadcast[1],
            resolution=configured_backend(config),
        )


def _time_mode(
    function: KeyedProcessFunction, wanted: TimeMode | None, *, watermarked: bool
) -> TimeMode | None:
    if type(function).on_timer is KeyedProcessFunction.on_timer:
        return None
    if wanted is None:
        return "event-time" if watermarked else "processing-time"
    if wanted not in TIMEOUTS:
        reason = f"expected one of event-time, processing-time, got {wanted!r}"
        raise ConfigError("time_mode", reason, "process(...)")
    if wanted == "event-time" and not watermarked:
        reason = "event-time needs a watermark: call withWatermark before key_by"
        raise ConfigError("time_mode", reason, "process(...)")
    return wanted


def _carried(df: DataFrame, plan: OperatorPlan) -> DataFrame:
    """The carrier columns, the key group, and the label of the subtask that owns it."""
    columns = [column_named(name) for name in plan.rows.names]
    keys = [columns[position] for position in plan.key_positions]
    group = key_group_column(keys, plan.key_fields, plan.max_parallelism)
    carried = df.select(*plan.rows.encode(columns), group.alias(GROUP_COLUMN))
    labels = F.array(*(F.lit(label) for label in group_labels(plan.parallelism)))
    owner = F.call_function(
        "div", F.col(GROUP_COLUMN) * plan.parallelism, F.lit(plan.max_parallelism)
    )
    return carried.withColumn(LABEL_COLUMN, F.get(labels, owner.cast("int")))


def _run_streaming(
    carried: DataFrame, plan: OperatorPlan, output_mode: str, name: str
) -> DataFrame:
    def subtask(
        key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        return run_subtask(plan, key[0], frames, state)

    subtask.__name__ = name
    if plan.wakes:
        carried = with_wake_ups(carried, group_labels(plan.parallelism))
    result = carried.groupBy(LABEL_COLUMN).applyInPandasWithState(
        subtask,
        outputStructType=plan.output.output_schema(),
        stateStructType=POINTER_SCHEMA,
        outputMode=output_mode,
        timeoutConf=TIMEOUTS[plan.time_mode] if plan.timed else "NoTimeout",
    )
    return result.select(*plan.output.restore())


def _run_bounded(carried: DataFrame, plan: OperatorPlan) -> DataFrame:
    def partition(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return run_partition(plan, frames)

    spread = carried.repartition(plan.parallelism, LABEL_COLUMN)
    if plan.batch:
        spread = spread.sortWithinPartitions(*plan.rows.sort_columns(plan.key_positions))
    result = spread.mapInPandas(partition, plan.output.output_schema())
    return result.select(*plan.output.restore())
