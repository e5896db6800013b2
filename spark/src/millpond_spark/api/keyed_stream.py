"""``key_by``: run functions over a DataFrame's rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import attrs
from millpond import keyed
from millpond.arguments import check_type
from millpond.config import Config
from millpond.errors import ConfigError, MillpondError, brief
from millpond.functions.async_functions import AsyncCalls
from millpond.functions.dead_letters import NullEventTimes, OnError
from millpond.functions.functions import KeyedFunction
from millpond.functions.joins import AsOfJoin, IntervalJoin, JoinType, LookupJoin
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keyed import Filtering, FlatMapping, Mapping, Reducing
from millpond.operator.bootstrap import (
    Bootstrap,
    ColumnsToStates,
    KeyedRows,
    KeyedStateBootstrapFunction,
)
from millpond.patterns import Pattern
from millpond.patterns import pattern as search_for
from millpond.savepoints.savepoint_file import SavedOperator
from millpond.snapshots.handles import SavepointHandle
from millpond.state import StateTtlConfig
from millpond.windows import WindowAssigner, count_window, window
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from typing_extensions import Unpack, override

from millpond_spark.api.bootstrapping import write_operator
from millpond_spark.api.joined_columns import JoinedColumns
from millpond_spark.api.operator_output import OperatorOutput, output_of_call
from millpond_spark.api.pattern_stream import PatternStream
from millpond_spark.api.process_call import (
    ExecutionMode,
    NullKeys,
    OutputMode,
    ProcessCall,
    ProcessOptions,
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
        keys: the key columns, each a name or a Column. Spark resolves names, so ``a.x`` is a field
            of the struct ``a``. If there are several key columns, the current key is a row of their
            values.
        null_keys: the treatment of a row in which a key column is null. ``refuse`` fails the query.
            ``drop`` ignores the row. ``aside`` puts the row into ``KeyedStream.null_key_rows``.

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
        """The rows with a null in a key column, unchanged.

        With ``null_keys="aside"`` the operator does not get these rows.
        """
        return self._df.where(~self._has_key())

    def _has_key(self) -> Column:
        condition = F.lit(True)
        for key in self._keys:
            condition = condition & key.column.isNotNull()
        return condition

    def _rows(self) -> DataFrame:
        return self._df if self._null_keys == "refuse" else self._df.where(self._has_key())

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Divide the rows of each key into the windows that `assigner` defines.

        See ``millpond.windows`` for assigners.
        """
        return WindowedStream(self._process_windows, self._df.columns, window(assigner))

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Divide the rows of each key into windows of `size` rows each.

        With `slide`, a window has the last `size` rows of the key, and fires after `slide` more
        rows. See ``millpond.windows``.
        """
        windowing = count_window(size, slide)
        return WindowedStream(self._process_windows, self._df.columns, windowing)

    def pattern(self, pattern: Pattern) -> PatternStream:
        """Search the rows of each key for a pattern, as in Flink's CEP.

        See ``millpond.patterns`` for patterns.

        Raises:
            ConfigError: the pattern could never match, or a column cannot be stored.
        """
        return PatternStream(self.process, search_for(pattern, self._row_type))

    def _process_windows(
        self,
        function: KeyedFunction,
        value: str | None,
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Call ``process`` for `function`, which runs windows, with only the columns that it reads.

        Spark does not send the other columns to Python, and reads fewer columns of Parquet files.

        Args:
            function: the function that runs the windows.
            value: the column that `function` reads; None if it may read all columns. Key columns
                and the columns in `options` are always included.
            output: the columns that `function` yields.
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
        """Add the rows of `other` as a second input of the function that ``process`` will get.

        If `other` is a KeyedStream, each of its rows goes to the subtask that has the row's key.
        ``process`` then needs a ``KeyedCoProcessFunction``. If `other` is a DataFrame, each of its
        rows is broadcast to all subtasks. ``process`` then needs a
        ``KeyedBroadcastProcessFunction``.

        Args:
            other: the rows of the second input. It must be streaming if and only if this stream is.
                The key columns of a KeyedStream must have the types of this stream's key columns.
                Rows of the second input take more time, so call ``connect`` on the larger stream.
            order_by: the columns of `other` by which its rows are sorted within a micro-batch,
                ascending and nulls first. Broadcast rows with equal values in these columns have a
                fixed but arbitrary order. Keyed rows with equal values have no fixed order.
            event_time: the event-time column of `other`; by default its column with the watermark.
            in_time_order: whether the rows of both inputs are sorted by event time within a
                micro-batch. `other` must then be a KeyedStream. If event times are equal, this
                stream's rows come first. If `in_time_order` is false and one of the inputs has an
                ``order_by``, all of this stream's rows come first. If none has an ``order_by``, the
                rows come in the order of Spark's shuffle. If the function's attribute
                ``second_input_first`` is true, the rows of `other` come first instead.

        Raises:
            ConfigError: a column does not exist. Or the keys of the inputs have different types. Or
                `in_time_order` is true, but `other` has no keys or no event-time column. Or only
                one of the inputs is streaming. Or one of the inputs is connected already.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        check_type("other", other, DataFrame | KeyedStream)
        check_type("in_time_order", in_time_order, bool)
        both = (self, other) if isinstance(other, KeyedStream) else (self,)
        if any(stream._connected is not None for stream in both):  # noqa: SLF001 - our own
            reason = "a function takes two inputs, and a stream is connected to another one already"
            raise ConfigError("other", reason, "connect(...)")
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
        idle_timeout: timedelta | int | None = None,
    ) -> OperatorOutput:
        """Run `function` over the rows of each key.

        Returns:
            A DataFrame of the main output. Its method ``side_output(tag)`` returns the rows of a
            side output. Its method ``with_side_outputs(*tags)`` returns the main output and side
            outputs together.

        Args:
            function: the function. It is pickled and sent to the workers.
            output: the columns of the main output, as DDL or a StructType. A yielded row with field
                names is matched by name, a tuple or list by position. Any other yielded value is
                the value of a single column.
            uid: the operator's stable name. Millpond finds the operator's state by this name, so
                never change it.
            output_mode: the output mode of the query that uses the operator.
            event_time: the event-time column; by default the column with the watermark. A stream
                with event-time windows or event-time timers needs a watermark in any case.
            order_by: the columns by which the rows of each key are sorted within a micro-batch,
                ascending and nulls first. By default the rows come in the order of Spark's shuffle,
                which varies.
            time_mode: for a function with timers, the condition under which Spark runs a
                micro-batch without rows, in which due timers fire. With ``event-time``, Spark does
                so when the watermark has moved. With ``processing-time``, it does so after every
                micro-batch, and both kinds of timers fire. The default is ``event-time`` if the
                stream has a watermark and the function is not a processing-time window; otherwise
                ``processing-time``. If ``event-time`` is the default, processing-time timers raise
                ``TimeModeError``. If you name ``event-time``, they fire in the next micro-batch.
            execution_mode: for a DataFrame that is not streaming. ``batch`` sorts the rows by key
                and keeps in memory the state of one key only; the timers of a key fire after its
                last row. ``streaming`` keeps the state of all keys in the configured backend.
            on_error: the treatment of a row whose ``process_element`` raises an exception. ``fail``
                fails the query. ``side_output`` undoes the row's changes of state and puts the row
                out to ``mp.DEAD_LETTERS``. The query must then take this side output.
            null_event_times: the treatment of a row whose event time is null. ``refuse`` fails the
                query if the function or the window needs the event time. ``drop`` ignores the row.
                ``side_output`` puts the row out to ``mp.DEAD_LETTERS``.
            idle_timeout: the time without rows after which the watermark of a subtask follows the
                clock, as a timedelta or in ms. Later rows of the subtask may then be late. By
                default the watermark waits for rows. With this argument, the default for
                `time_mode` is ``processing-time``.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            NoWatermarkError: the operator has event-time windows, but the stream has no watermark.
            UnsupportedColumnError: Millpond does not support a column's type.
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
            idle_timeout=idle_timeout,
        )
        batch = execution_mode == "batch"
        return output_of_call(call, self._rows(), other, output_mode, batch=batch)

    def _check_execution_mode(self, given: str, function: KeyedFunction) -> None:
        reason = ""
        if given not in ("streaming", "batch"):
            reason = f"expected one of streaming, batch, got {brief(given)}"
        elif given == "batch" and self._df.isStreaming:
            reason = "a streaming DataFrame has no end to sort for"
        elif given == "batch" and isinstance(function, (VectorizedProcessFunction, AsyncCalls)):
            kind = "an asynchronous" if isinstance(function, AsyncCalls) else "a vectorized"
            reason = f"batch keeps the state of one key at a time, and {kind} function takes "
            reason += "many at once: leave it at streaming"
        if reason:
            raise ConfigError("execution_mode", reason, "process(...)")

    # ---------------------------------------------------------------- short forms of process

    def _process_rows(
        self, function: KeyedFunction, uid: str, options: ProcessOptions
    ) -> OperatorOutput:
        return self.process(function, output=self.row_schema, uid=uid, **options)

    def map(
        self,
        function: Mapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Call `function` for each row; put out the row that it returns."""
        return self.process(keyed.map(function), output=output, uid=uid, **options)

    def flat_map(
        self,
        function: FlatMapping[Any, Any],
        *,
        output: str | StructType,
        uid: str,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Call `function` for each row; put out all rows that it returns."""
        return self.process(keyed.flat_map(function), output=output, uid=uid, **options)

    def filter(
        self, function: Filtering[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Put out the rows for which `function` returns true."""
        return self._process_rows(keyed.filter(function), uid, options)

    def reduce(
        self, function: Reducing[Any], *, uid: str, **options: Unpack[ProcessOptions]
    ) -> OperatorOutput:
        """Reduce the rows of each key by `function`; after each row put out the result so far."""
        return self._process_rows(keyed.reduce(function, self._row_type), uid, options)

    def sum(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row with the sum so far in column `field`."""
        return self._process_rows(keyed.sum(field, self._row_type), uid, options)

    def min(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row with the minimum so far in column `field`."""
        return self._process_rows(keyed.min(field, self._row_type), uid, options)

    def max(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's first row with the maximum so far in column `field`."""
        return self._process_rows(keyed.max(field, self._row_type), uid, options)

    def min_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's row that has the least `field` so far."""
        return self._process_rows(keyed.min_by(field, self._row_type), uid, options)

    def max_by(self, field: str, *, uid: str, **options: Unpack[ProcessOptions]) -> OperatorOutput:
        """After each row, put out the key's row that has the greatest `field` so far."""
        return self._process_rows(keyed.max_by(field, self._row_type), uid, options)

    @property
    def _row_type(self) -> Any:
        return self.row_schema  # a type of state at run time, which type checkers do not know

    # ---------------------------------------------------------------- joins

    def interval_join(
        self,
        right: KeyedStream,
        *,
        lower: timedelta | int,
        upper: timedelta | int,
        how: JoinType = "inner",
        uid: str,
        right_event_time: ColumnOrName | None = None,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Join the rows of this stream with the rows of `right` whose event times are close.

        A row of this stream at time ``t`` and a row of `right` with the same key match if the time
        of the latter is between ``t + lower`` and ``t + upper``, both inclusive, in ms. A row
        without a partner is put out when the watermark shows that none can come. See
        ``mp.IntervalJoin``.

        Returns:
            A DataFrame with the columns of this stream, and then the columns of `right`. A key
            column that has the same name in both occurs once. ``side_output(mp.LATE_LEFT)`` and
            ``side_output(mp.LATE_RIGHT)`` return the late rows, which do not take part in the join.

        Args:
            right: the right rows. Their key columns must have the types of this stream's key
                columns. Right rows take more time, so call the method on the larger stream.
            lower: the first time of matching right rows, relative to the left row: a timedelta or
                ms.
            upper: the last time of matching right rows.
            how: the rows to put out without a partner: ``inner`` for none, ``left`` for this
                stream's, ``right`` for the right ones, ``full`` for both.
            uid: the operator's stable name, see ``process``.
            right_event_time: the event-time column of `right`; by default its column with the
                watermark.
            options: the other arguments of ``process``.

        Raises:
            ConfigError: an argument is wrong, an input has no event-time column, or both inputs
                have a column of the same name that is not a key.
            NoWatermarkError: the streams have no watermark.
            UnsupportedColumnError: Millpond does not support a column's type.
        """
        check_type("right", right, KeyedStream)
        types = self._row_type, right._row_type
        join = IntervalJoin(*types, lower=lower, upper=upper, how=how)
        return self._join(right, join, "interval_join", right_event_time, uid, options)

    def as_of_join(
        self,
        right: KeyedStream,
        *,
        how: Literal["inner", "left"] = "inner",
        tolerance: timedelta | int | None = None,
        uid: str,
        right_event_time: ColumnOrName | None = None,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Join each row with the latest row of `right` at or before its event time.

        A row is put out when the watermark reaches its event time, so that right rows may arrive
        later than the row. See ``mp.AsOfJoin``.

        Returns:
            A DataFrame with the columns of this stream, and then the columns of `right`. A key
            column that has the same name in both occurs once. ``side_output(mp.LATE_LEFT)`` returns
            the rows of this stream that arrived behind the watermark.

        Args:
            right: the right rows. Their key columns must have the types of this stream's key
                columns.
            how: ``inner`` drops a row without a right row, ``left`` puts it out with nulls.
            tolerance: how much older than the row the right row may be, a timedelta or ms. By
                default there is no limit, and the join keeps a right row of each key for ever.
            uid: the operator's stable name, see ``process``.
            right_event_time: the event-time column of `right`; by default its column with the
                watermark.
            options: the other arguments of ``process``.

        Raises:
            ConfigError, NoWatermarkError, UnsupportedColumnError: as ``interval_join``.
        """
        check_type("right", right, KeyedStream)
        types = self._row_type, right._row_type
        join = AsOfJoin(*types, how=how, tolerance=tolerance)
        return self._join(right, join, "as_of_join", right_event_time, uid, options)

    def lookup_join(
        self,
        table: KeyedStream,
        *,
        how: Literal["inner", "left"] = "inner",
        ttl: StateTtlConfig | None = None,
        uid: str,
        table_event_time: ColumnOrName | None = None,
        **options: Unpack[ProcessOptions],
    ) -> OperatorOutput:
        """Join each row with the row that its key has in a table when the row is processed.

        Each row of `table` replaces the earlier row of its key. In a micro-batch, Millpond
        processes the rows of `table` first. See ``mp.LookupJoin``.

        Returns:
            A DataFrame with the columns of this stream, and then the columns of `table`. A key
            column that has the same name in both occurs once.

        Args:
            table: the rows of the table. Their key columns must have the types of this stream's key
                columns.
            how: ``inner`` drops a row whose key is not in the table, ``left`` puts it out with
                nulls.
            ttl: the time after which a row of the table expires; by default never.
            uid: the operator's stable name, see ``process``.
            table_event_time: the event-time column of `table`; by default its column with the
                watermark. With event times, a row of the table does not replace a row with a
                greater event time.
            options: the other arguments of ``process``.

        Raises:
            ConfigError, UnsupportedColumnError: as ``interval_join``.
        """
        check_type("table", table, KeyedStream)
        join = LookupJoin(table._row_type, how=how, ttl=ttl)
        return self._join(table, join, "lookup_join", table_event_time, uid, options)

    def _join(
        self,
        right: KeyedStream,
        join: IntervalJoin | AsOfJoin | LookupJoin,
        call: str,
        right_event_time: ColumnOrName | None,
        uid: str,
        options: ProcessOptions,
    ) -> OperatorOutput:
        """Run `join` with `right` as its second input; `call` is the user's call, for errors."""
        connected = self.connect(right, event_time=right_event_time)
        keys = list(zip(self._keys, right._keys, strict=True))
        columns = JoinedColumns.from_inputs(self.row_schema, right.row_schema, keys, f"{call}(...)")
        join.pair = columns.pair
        return connected.process(join, output=columns.schema, uid=uid, **options)

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
    """Return the positions of the columns of `df` that an operator needs; None for all columns.

    All columns are needed in three cases:

    * An argument is an expression, because only Spark knows which columns the expression reads.
    * The rows come from a stateful operator of Spark, such as a join of streams. Spark stores the
      needed columns in that operator's state, and these columns may not change.
    * The rows are a stream over Spark Connect, because the client cannot see all operators.

    Args:
        df: the rows.
        keys: the key columns.
        value: the name of the column that the function reads, in addition to the other arguments.
        options: the optional arguments of the ``process`` call, some of which name columns.
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
