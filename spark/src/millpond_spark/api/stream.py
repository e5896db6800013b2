"""``key_by(df, …).process(function, …)``: the operator as users build it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import attrs
from millpond.arguments import check_type
from millpond.config import Config
from millpond.errors import ConfigError, brief
from millpond.functions.functions import KeyedFunction, OperatorFunction
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.operator.bootstrap import Bootstrap, KeyedRows, KeyedStateBootstrapFunction
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.snapshots.handles import SavepointHandle
from millpond.windows import WindowAssigner, count_window, window
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import override

from millpond_spark.api.bootstrapping import bootstrap_call, check_rows, write_operator
from millpond_spark.api.column_pruning import needed_columns
from millpond_spark.api.operator_output import OperatorOutput
from millpond_spark.api.planning import ProcessCall
from millpond_spark.api.process_call import OutputMode, output_of
from millpond_spark.api.short_forms import ProcessOptions, ShortForms
from millpond_spark.api.windowed import WindowedStream
from millpond_spark.plan.column_arguments import Choice, ColumnOrName, choose
from millpond_spark.plan.plan import key_codec_of
from millpond_spark.plan.second_input import BroadcastCodec, SecondInput, check_keys
from millpond_spark.plan.text_rows import TextRows
from millpond_spark.plan.timing import TimeMode
from millpond_spark.session.session import spark_configuration
from millpond_spark.values.schemas import column_named

NullKeys = Literal["refuse", "drop", "aside"]
ExecutionMode = Literal["streaming", "batch"]


def key_by(df: DataFrame, *keys: ColumnOrName, null_keys: NullKeys = "refuse") -> KeyedStream:
    """Key a DataFrame, streaming or not, by one or more columns.

    Args:
        df: the rows.
        keys: columns, as names that Spark resolves (``a.x`` is a struct's field) or as Columns;
            with several, the current key is a row of them.
        null_keys: what to do with a row in which a key column is null: ``refuse`` fails the
            query, ``drop`` leaves it out, ``aside`` leaves it to ``KeyedStream.null_key_rows``.

    Raises:
        ConfigError: a column does not exist, is ambiguous, or cannot be a key.
    """
    check_type("df", df, DataFrame)
    if not keys:
        raise ConfigError("keys", "name at least one column", "key_by(...)")
    if null_keys not in ("refuse", "drop", "aside"):
        reason = f"expected one of refuse, drop, aside, got {brief(null_keys)}"
        raise ConfigError("null_keys", reason, "key_by(null_keys=...)")
    chosen = choose(df, "keys", keys, "key_by")
    names = [key.field.name for key in chosen]
    for name in names:
        if names.count(name) > 1:
            reason = "two keys have this name: give one another, as F.col(...).alias(...) does"
            raise ConfigError(name, reason, "key_by(...)")
    key_codec_of(names, [key.field.dataType for key in chosen])
    return KeyedStream(df, tuple(chosen), null_keys)


@attrs.frozen
class KeyedStream(ShortForms, KeyedRows):
    """A DataFrame whose rows are grouped by key."""

    _df: DataFrame
    _keys: tuple[Choice, ...]
    _null_keys: NullKeys
    _broadcast: tuple[DataFrame, BroadcastCodec] | None = None
    _second: tuple[KeyedStream, SecondInput] | None = None
    _side_columns: StructType | None = None

    @property
    @override
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
            condition = condition & key.column.isNotNull()
        return condition

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Divide each key's rows into windows; see ``millpond.windows``."""
        return WindowedStream(self.process, self._df.columns, window(assigner), self._reading)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide each key's rows into windows of a number of rows; see ``millpond.windows``."""
        windowing = count_window(size, slide)
        return WindowedStream(self.process, self._df.columns, windowing, self._reading)

    def _reading(self, value: str, options: ProcessOptions) -> Callable[..., OperatorOutput]:
        """``process`` for a function that reads no more than a column, the key and the time."""
        needed = needed_columns(self._df, self._keys, value, options)
        if needed is None:
            return self.process
        rows = self._df.select(*(column_named(self._df.columns[at]) for at in needed))
        keys = [attrs.evolve(k, position=rows.columns.index(k.field.name)) for k in self._keys]
        narrow = attrs.evolve(self, df=rows, keys=tuple(keys), side_columns=self._df.schema)
        return narrow.process

    def connect(
        self,
        other: DataFrame | KeyedStream,
        *,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        event_time: ColumnOrName | None = None,
        in_time_order: bool = False,
    ) -> KeyedStream:
        """Have the rows of another DataFrame come to the same function.

        Those of a keyed one come to the subtask that has their key: ``process`` then takes a
        ``KeyedCoProcessFunction``. Those of a plain one reach every subtask: it takes a
        ``KeyedBroadcastProcessFunction``.

        Args:
            other: the rows, streaming if this stream is. Keyed ones have keys of the same types,
                and travel more slowly than this stream's: let that be the larger.
            order_by: columns by which a micro-batch's rows of the other input are ordered,
                ascending and nulls first. Without them, and among equals, broadcast rows have a
                fixed order of no meaning, keyed ones none.
            event_time: the other rows' column of event time; by default the one with the watermark.
            in_time_order: of keyed rows: within a micro-batch those of both inputs come in the
                order of their event times; at one time this stream's come first, and each input's
                in its own order. Without it this stream's rows come first where one of the inputs
                has an order; where neither has, the rows of both come as the shuffle leaves them.

        Raises:
            ConfigError: a column does not exist, the keys are of other types, rows are to come by
                a time they do not have, or only one of the two inputs is streaming.
            UnsupportedColumnError: a column's type cannot be carried without loss.
        """
        check_type("other", other, DataFrame | KeyedStream)
        check_type("in_time_order", in_time_order, bool)
        df = other._df if isinstance(other, KeyedStream) else other  # noqa: SLF001 - our own
        texts = TextRows.of(df, self._df, order_by, event_time)
        if isinstance(other, KeyedStream):
            check_keys(self._keys, other._keys)  # noqa: SLF001 - our own
            if in_time_order and texts.event_time is None:
                reason = "the second input has no event time: name its column as event_time="
                raise ConfigError("in_time_order", reason, "connect(...)")
            second = SecondInput(texts, in_time_order)
            return attrs.evolve(self, second=(other, second), broadcast=None)
        if in_time_order:
            reason = "broadcast rows come before a micro-batch's keyed rows"
            raise ConfigError("in_time_order", reason, "connect(...)")
        return attrs.evolve(self, broadcast=(df, BroadcastCodec(texts)), second=None)

    def _rows(self) -> DataFrame:
        """The rows, without those whose null keys are left out."""
        return self._df if self._null_keys == "refuse" else self._df.where(self._has_key())

    def _with_keys(self) -> DataFrame:
        """The rows, with the key behind them."""
        return self._rows().select("*", *(key.column for key in self._keys))

    @override
    def process(
        self,
        function: KeyedFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: OutputMode = "append",
        event_time: ColumnOrName | None = None,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        time_mode: TimeMode | None = None,
        execution_mode: ExecutionMode = "streaming",
    ) -> OperatorOutput:
        """Run a keyed function over the rows; returns a DataFrame.

        Of side outputs it gives the rows by ``.side_output(tag)``, and of all outputs by
        ``.with_side_outputs(*tags)``.

        Args:
            function: the function; it is pickled to the workers.
            output: the columns that it yields, as DDL or a StructType. Rows with names are matched
                by name, tuples and lists by position; another value is that of a single column.
            uid: the operator's stable name; state is found by it, so never change it.
            output_mode: the output mode of the query that the operator is used in.
            event_time: the column of event time; by default the one with the watermark. A stream
                needs a watermark for windows and timers of event time, whatever column is named.
            order_by: columns by which each key's rows of a micro-batch are ordered, ascending
                and nulls first. Without it their order is the shuffle's: none.
            time_mode: for a function with timers, when Spark runs a batch without rows so that due
                timers fire. ``event-time``, the default with a watermark: when the watermark has
                moved; processing-time timers fire in whatever batch comes next, and are refused
                unless this mode is named. ``processing-time``, the default without a watermark and
                for windows of processing time: batch after batch, and both kinds fire.
            execution_mode: of a DataFrame that is not streaming: ``batch`` sorts the rows by key
                and keeps state in memory for one key at a time; timers fire at the end of each
                key. ``streaming`` keeps all keys in the configured backend.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            NoWatermarkError: windows of event time are those of a stream without a watermark.
            UnsupportedColumnError: a column's type cannot be carried without loss.
            PluginError: the configured backend cannot be used.
        """
        check_type("output_mode", output_mode, OutputMode)
        _, broadcast = self._broadcast or (None, None)
        _, second = self._second or (None, None)
        call = ProcessCall(
            df=self._df,
            keys=self._keys,
            broadcast=broadcast,
            second=second,
            function=function,
            output=output,
            uid=uid,
            event_time=event_time,
            order_by=order_by,
            time_mode=time_mode,
            side_columns=self._side_columns,
        )
        other, _ = self._broadcast or (None, None)
        if self._second is not None:
            other = self._second[0]._with_keys()  # noqa: SLF001 - our own
        batch = self._is_batch(execution_mode, call.function)
        return output_of(call, self._rows(), other, output_mode, batch=batch)

    @override
    def check_bootstrap(self, function: KeyedStateBootstrapFunction) -> None:
        """Refuse rows without an end, and those that lack a column."""
        check_rows(self._df, function)

    @override
    def bootstrap_config(self, place: str) -> Config:
        return spark_configuration(self._df.sparkSession, place)

    @override
    def bootstrap(self, job: Bootstrap, target: SavepointHandle) -> SavedOperator:
        config = spark_configuration(self._df.sparkSession, target.storage.uri)
        call = bootstrap_call(self._df, self._keys, job)
        return write_operator(self._rows(), call, job, config, target)

    def _is_batch(self, execution_mode: str, function: OperatorFunction) -> bool:
        if execution_mode not in ("streaming", "batch"):
            reason = f"expected one of streaming, batch, got {brief(execution_mode)}"
            raise ConfigError("execution_mode", reason, "process(...)")
        if execution_mode == "batch" and self._df.isStreaming:
            reason = "a streaming DataFrame has no end to sort for"
            raise ConfigError("execution_mode", reason, "process(...)")
        if execution_mode == "batch" and isinstance(function, VectorizedProcessFunction):
            reason = "batch keeps the state of one key at a time, and a vectorized function takes "
            reason += "many at once: leave it at streaming"
            raise ConfigError("execution_mode", reason, "process(...)")
        return execution_mode == "batch"
