"""``key_by`` and ``operator``: run functions over a DataFrame's rows, with or without keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from millpond import keyed
from millpond.arguments import check_type
from millpond.config import Config
from millpond.errors import ConfigError, MillpondError, brief
from millpond.functions.dead_letters import NullEventTimes, OnError
from millpond.functions.functions import KeyedFunction, ProcessFunction
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keyed import Filtering, FlatMapping, Mapping, Reducing
from millpond.operator.bootstrap import (
    Bootstrap,
    ColumnsToStates,
    KeyedRows,
    KeyedStateBootstrapFunction,
)
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.snapshots.handles import SavepointHandle
from millpond.windows import WindowAssigner, count_window, window
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import Unpack, override

from millpond_spark.api.bootstrapping import write_operator
from millpond_spark.api.process_call import (
    ExecutionMode,
    NullKeys,
    OperatorOutput,
    OutputMode,
    ProcessCall,
    ProcessOptions,
    output_of_call,
)
from millpond_spark.api.windowed_stream import WindowedStream
from millpond_spark.plan.column_arguments import (
    Choice,
    ColumnOrName,
    choose,
    no_such_column,
    time_choice,
)
from millpond_spark.plan.plan import key_codec_of
from millpond_spark.plan.second_input import BroadcastCodec, SecondInput, TextRows, check_keys
from millpond_spark.plan.timing import TimeMode, watermarked_columns
from millpond_spark.session.internals import analyzed_plan, keeps_columns
from millpond_spark.session.session import is_connect, spark_configuration
from millpond_spark.values.schemas import column_named, distinguishable


def key_by(df: DataFrame, *keys: ColumnOrName, null_keys: NullKeys = "refuse") -> KeyedStream:
    """Key a DataFrame, streaming or not, by one or more columns.

    Args:
        df: the rows.
        keys: columns, as names that Spark resolves (``a.x`` is a struct's field) or as Columns;
            with several, the current key is a row of them.
        null_keys: the treatment of a row in which a key column is null: ``refuse`` fails the
            query, ``drop`` leaves the row out, ``aside`` gives it to ``KeyedStream.null_key_rows``.

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
class KeyedStream(KeyedRows):
    """A DataFrame whose rows are grouped by key."""

    _df: DataFrame
    _keys: tuple[Choice, ...]
    _null_keys: NullKeys
    _connected: tuple[DataFrame, BroadcastCodec | SecondInput] | None = None
    _side_columns: StructType | None = None

    @property
    def row_schema(self) -> StructType:
        """The columns of the rows."""
        return self._df.schema

    @property
    def null_key_rows(self) -> DataFrame:
        """The unchanged rows that ``null_keys="aside"`` leaves out of the operator."""
        return self._df.where(~self._has_key())

    def _has_key(self) -> Column:
        condition = F.lit(True)
        for key in self._keys:
            condition = condition & key.column.isNotNull()
        return condition

    def _rows(self) -> DataFrame:
        """Return the rows that the operator gets."""
        return self._df if self._null_keys == "refuse" else self._df.where(self._has_key())

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Divide each key's rows into windows; see ``millpond.windows``."""
        return WindowedStream(self._process_windows, self._df.columns, window(assigner))

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide each key's rows into windows of a number of rows; see ``millpond.windows``."""
        windowing = count_window(size, slide)
        return WindowedStream(self._process_windows, self._df.columns, windowing)

    def _process_windows(
        self,
        function: KeyedFunction,
        value: str | None,
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Call ``process`` for a function of windows, with only the columns that it reads.

        The other columns are not sent to Python and, in many formats, not read from files.

        Args:
            function: the function.
            value: the column that it reads, next to the columns of ``options``; None for all.
            output: the columns that it yields.
            uid: the operator's stable name.
            options: the other arguments of ``process``.
        """
        whole = "side_output" in (options.get("on_error"), options.get("null_event_times"))
        if value is None or whole:  # a dead letter has all columns of its row
            return self.process(function, output=output, uid=uid, **options)
        positions = needed_columns(self._df, self._keys, value, options)
        if positions is None:
            return self.process(function, output=output, uid=uid, **options)
        rows = self._df.select(*(column_named(self._df.columns[at]) for at in positions))
        keys = tuple(
            attrs.evolve(key, position=rows.columns.index(key.field.name)) for key in self._keys
        )
        pruned = attrs.evolve(self, df=rows, keys=keys, side_columns=self._df.schema)
        return pruned.process(function, output=output, uid=uid, **options)

    def connect(
        self,
        other: DataFrame | KeyedStream,
        *,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        event_time: ColumnOrName | None = None,
        in_time_order: bool = False,
    ) -> KeyedStream:
        """Give the rows of another DataFrame to the same function.

        Keyed rows go to the subtask that has their key: ``process`` then takes a
        ``KeyedCoProcessFunction``. Plain rows go to every subtask: ``process`` then takes a
        ``KeyedBroadcastProcessFunction``.

        Args:
            other: the rows, streaming if this stream is. Keyed rows have keys of the same types,
                and travel more slowly than this stream's: let this stream be the larger one.
            order_by: columns by which a micro-batch's rows of the other input are ordered,
                ascending and nulls first. Broadcast rows with equal values in these columns have a
                fixed but arbitrary order. Keyed rows with equal values have no fixed order.
            event_time: the other rows' event-time column; by default the one with the watermark.
            in_time_order: for keyed rows: within a micro-batch, the rows of both inputs come in the
                order of their event times. If event times are equal, this stream's rows come first,
                and the rows of each input are in that input's own order. If false, this stream's
                rows come first if one of the inputs has an order; otherwise the rows of both come
                as the shuffle leaves them.

        Raises:
            ConfigError: a column does not exist; the two inputs have keys of different types;
                `in_time_order` is true, but the other input has no keys or no event-time column; or
                only one of the two inputs is streaming.
            UnsupportedColumnError: a column's type cannot cross without loss.
        """
        check_type("other", other, DataFrame | KeyedStream)
        check_type("in_time_order", in_time_order, bool)
        if isinstance(other, DataFrame):
            if in_time_order:
                reason = "broadcast rows come before a micro-batch's keyed rows"
                raise ConfigError("in_time_order", reason, "connect(...)")
            codec = BroadcastCodec(TextRows.from_rows(other, self._df, order_by, event_time))
            return attrs.evolve(self, connected=(other, codec))
        df, keys, rows = other._df, other._keys, other._rows()  # noqa: SLF001 - our own
        texts = TextRows.from_rows(df, self._df, order_by, event_time)
        check_keys(self._keys, keys)
        if in_time_order and texts.event_time is None:
            reason = "the second input has no event time: name its column as event_time="
            raise ConfigError("in_time_order", reason, "connect(...)")
        rows = rows.select("*", *(key.column for key in keys))
        return attrs.evolve(self, connected=(rows, SecondInput(texts, in_time_order)))

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
        on_error: OnError = "fail",
        null_event_times: NullEventTimes = "refuse",
    ) -> OperatorOutput:
        """Run a keyed function over the rows.

        Returns:
            A DataFrame of the main output. ``.side_output(tag)`` returns the rows of a side output,
            and ``.with_side_outputs(*tags)`` the rows of all outputs.

        Args:
            function: the function; it is pickled to the workers.
            output: the columns that it yields, as DDL or a StructType. Rows with names are matched
                by name, tuples and lists by position; any other value is the value of a single
                column.
            uid: the operator's stable name. State is found by it, so never change it.
            output_mode: the output mode of the query that the operator is used in.
            event_time: the event-time column; by default the one with the watermark. Event-time
                windows and timers of a stream need a watermark, whichever column is named.
            order_by: columns by which each key's rows of a micro-batch are ordered, ascending
                and nulls first. Without it they come in the shuffle's order, which varies.
            time_mode: for a function with timers, when Spark runs a batch without rows so that due
                timers fire. ``event-time``, the default with a watermark: when the watermark has
                moved. Processing-time timers then fire in the next batch, and are refused unless
                this mode is named. ``processing-time``, the default without a watermark and for
                processing-time windows: after every batch, so that both kinds of timers fire.
            execution_mode: for a DataFrame that is not streaming: ``batch`` sorts the rows by key
                and keeps state in memory for one key at a time; timers fire at the end of each
                key. ``streaming`` keeps all keys in the configured backend.
            on_error: the treatment of a row whose ``process_element`` raises an exception: ``fail``
                fails the query, ``side_output`` undoes the row's changes and puts it out to
                ``mp.DEAD_LETTERS``. The query must take that side output.
            null_event_times: the treatment of a row whose event time is null: ``refuse`` fails the
                query if the function or window needs the time, ``drop`` leaves the row out,
                ``side_output`` puts it out to ``mp.DEAD_LETTERS``.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            NoWatermarkError: there are event-time windows, and the stream has no watermark.
            UnsupportedColumnError: a column's type cannot cross without loss.
            PluginError: the configured backend cannot be used.
        """
        check_type("output_mode", output_mode, OutputMode)
        self._check_execution_mode(execution_mode, function)
        other, connected = self._connected or (None, None)
        call = ProcessCall(
            df=self._df,
            keys=self._keys,
            function=function,
            output=output,
            uid=uid,
            event_time=event_time,
            order_by=order_by,
            time_mode=time_mode,
            connected=connected,
            side_columns=self._side_columns,
            on_error=on_error,
            null_event_times=null_event_times,
        )
        batch = execution_mode == "batch"
        return output_of_call(call, self._rows(), other, output_mode, batch=batch)

    def _check_execution_mode(self, given: str, function: KeyedFunction) -> None:
        reason = ""
        if given not in ("streaming", "batch"):
            reason = f"expected one of streaming, batch, got {brief(given)}"
        elif given == "batch" and self._df.isStreaming:
            reason = "a streaming DataFrame has no end to sort for"
        elif given == "batch" and isinstance(function, VectorizedProcessFunction):
            reason = "batch keeps the state of one key at a time, and a vectorized function takes "
            reason += "many at once: leave it at streaming"
        if reason:
            raise ConfigError("execution_mode", reason, "process(...)")

    # ---------------------------------------------------------------- short forms of process

    def _process_rows(
        self, function: KeyedFunction, uid: str, options: ProcessOptions
    ) -> OperatorOutput:
        """Run a function whose output has the same columns as the input."""
        return self.process(function, output=self.row_schema, uid=uid, **options)

    def map(
        self,
        function: Mapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Turn each row into one row."""
        return self.process(keyed.map(function), output=output, uid=uid, **options)

    def flat_map(
        self,
        function: FlatMapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Turn each row into any number of rows."""
        return self.process(keyed.flat_map(function), output=output, uid=uid, **options)

    def filter(
        self, function: Filtering[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Keep the rows for which `function` returns true, and drop the others."""
        return self._process_rows(keyed.filter(function), uid, options)

    def reduce(
        self, function: Reducing[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Reduce each key's rows to one row; put out the result so far after each row."""
        return self._process_rows(keyed.reduce(function, self._row_type), uid, options)

    def sum(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row, with the sum so far in column `field`."""
        return self._process_rows(keyed.sum(field, self._row_type), uid, options)

    def min(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row, with the minimum so far in `field`."""
        return self._process_rows(keyed.min(field, self._row_type), uid, options)

    def max(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row, with the maximum so far in `field`."""
        return self._process_rows(keyed.max(field, self._row_type), uid, options)

    def min_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's row with the least value of `field` so far."""
        return self._process_rows(keyed.min_by(field, self._row_type), uid, options)

    def max_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's row with the greatest value of `field` so far."""
        return self._process_rows(keyed.max_by(field, self._row_type), uid, options)

    @property
    def _row_type(self) -> Any:
        return self.row_schema  # a type of state at run time, which type checkers do not know

    # ---------------------------------------------------------------- savepoints of the rows

    @override
    def check_bootstrap(self, function: KeyedStateBootstrapFunction) -> None:
        call = "with_operator(...)"
        if self._df.isStreaming:
            raise ConfigError("rows", "a streaming DataFrame has no end to write at", call)
        names = function.names if isinstance(function, ColumnsToStates) else ()
        for name in names:
            if name not in self._df.columns:
                raise no_such_column(name, self._df.columns, call)

    @override
    def bootstrap_config(self, place: str) -> Config:
        return spark_configuration(self._df.sparkSession, place)

    @override
    def bootstrap(self, job: Bootstrap, target: SavepointHandle) -> SavedOperator:
        config = self.bootstrap_config(target.storage.uri)
        return write_operator(self._rows(), self._keys, job, config, target)


def needed_columns(
    df: DataFrame, keys: Sequence[Choice], value: str, options: ProcessOptions
) -> list[int] | None:
    """Return the positions of the columns that a function reads; None for all.

    All columns are needed if an argument is an expression, because only Spark knows its columns.
    They are also needed if the rows come from Spark's own stateful operators, such as a join of
    streams: these operators keep the needed columns in their state, and the columns of a state may
    not change. Over Spark Connect the client does not see all operators, so all columns of a
    stream are needed.

    Args:
        df: the rows.
        keys: the columns of the key.
        value: the only other column that the function reads.
        options: the other arguments of the ``process`` call; some of them name further columns.
    """
    event_time, order_by = options.get("event_time"), options.get("order_by", ())
    try:
        named = [*keys, *choose(df, "order_by", order_by, "process")]
        if event_time is not None:
            named.append(time_choice(df, event_time, "process"))
    except MillpondError:
        return None  # ``process`` raises it, after errors that it finds earlier
    positions = [choice.position for choice in named if choice.position is not None]
    if len(positions) < len(named) or not distinguishable(df.columns):
        return None
    if df.isStreaming and (is_connect(df.sparkSession) or keeps_columns(analyzed_plan(df))):
        return None
    return sorted({df.columns.index(value), *watermarked_columns(df.schema), *positions})


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
    _connected: tuple[DataFrame, BroadcastCodec] | None = None

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
                ascending and nulls first. Rows with equal values in these columns have a fixed but
                arbitrary order.
            event_time: the other rows' event-time column; by default the one with the watermark.

        Raises:
            ConfigError: a column does not exist, or only one of the two inputs is streaming.
            UnsupportedColumnError: a column's type cannot cross without loss.
        """
        check_type("other", other, DataFrame)
        codec = BroadcastCodec(TextRows.from_rows(other, self._df, order_by, event_time))
        return attrs.evolve(self, connected=(other, codec))

    def process(
        self,
        function: ProcessFunction,
        *,
        output: str | StructType,
        uid: str,
        output_mode: OutputMode = "append",
        event_time: ColumnOrName | None = None,
        order_by: ColumnOrName | Sequence[ColumnOrName] = (),
        on_error: OnError = "fail",
        null_event_times: NullEventTimes = "refuse",
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
            on_error: the treatment of a row whose ``process_element`` raises an exception.
            null_event_times: the treatment of a row whose event time is null.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: a column's type cannot cross without loss.
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
