"""A call of ``process``: its arguments, and the operator's plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Literal, TypedDict

import attrs
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    EventTimeChainError,
    MillpondError,
    NoWatermarkError,
    TimeModeError,
    brief,
)
from millpond.functions.checkpointed import CheckpointListener
from millpond.functions.dead_letters import NullEventTimes, OnError, RowFaults
from millpond.functions.functions import (
    INPUTS,
    BroadcastProcessFunction,
    BuiltInFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedFunction,
    KeylessFunction,
    OperatorFunction,
)
from millpond.functions.idleness import Idleness
from millpond.functions.joins import AsOfJoin, IntervalJoin
from millpond.functions.timer_service import RefusedTimers, TimeDomain
from millpond.functions.user_code import calling_place, notebook_cells
from millpond.keygroups import default_max_parallelism
from millpond.operator.opening import configured_backend
from millpond.operator_id import check_uid
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond_spark.driver.query_start import known_max_parallelism
from millpond_spark.plan import timing
from millpond_spark.plan.column_arguments import (
    Choice,
    ColumnOrName,
    Extension,
    choose,
    time_choice,
)
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import RetainedCheckpoint
from millpond_spark.plan.second_input import BroadcastCodec, SecondInput
from millpond_spark.session.session import is_connect
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import output_schema

OutputMode = Literal["append", "update"]
NullKeys = Literal["refuse", "drop", "aside"]
ExecutionMode = Literal["streaming", "batch"]


class ProcessOptions(TypedDict, total=False):
    """The optional arguments of ``KeyedStream.process``, which documents them."""

    output_mode: OutputMode
    event_time: ColumnOrName | None
    order_by: ColumnOrName | Sequence[ColumnOrName]
    time_mode: timing.TimeMode | None
    execution_mode: ExecutionMode
    on_error: OnError
    null_event_times: NullEventTimes
    idle_timeout: timedelta | int | None


@attrs.frozen
class ProcessCall:
    """The arguments of a call of ``KeyedStream.process`` or ``OperatorStream.process``.

    The two methods document the attributes that are not listed here.

    Attributes:
        df: the rows.
        keys: the key columns; empty for rows without keys.
        connected: the codec of the input that the user has connected by ``connect``, or None.
        side_columns: the columns of a side output whose tag has no type. None stands for the
            columns of ``df``.
    """

    df: DataFrame
    keys: Sequence[Choice]
    function: OperatorFunction
    output: str | StructType
    uid: str
    event_time: ColumnOrName | None = None
    order_by: ColumnOrName | Sequence[ColumnOrName] = ()
    time_mode: timing.TimeMode | None = None
    connected: BroadcastCodec | SecondInput | None = None
    side_columns: StructType | None = None
    on_error: OnError = "fail"
    null_event_times: NullEventTimes = "refuse"
    idle_timeout: timedelta | int | None = None

    @property
    def broadcast(self) -> BroadcastCodec | None:
        """The codec of the connected broadcast rows, or None."""
        return self.connected if isinstance(self.connected, BroadcastCodec) else None

    @property
    def second(self) -> SecondInput | None:
        """The codec of the connected keyed rows, or None."""
        if not isinstance(self.connected, SecondInput):
            return None
        function = self.function
        first = isinstance(function, KeyedCoProcessFunction) and function.second_input_first
        return attrs.evolve(self.connected, comes_first=first)

    def plan(self, config: Config) -> tuple[OperatorPlan, Extension]:
        """Return the operator's plan, and the columns to append to the rows of `df`.

        Args:
            config: the session's configuration.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: Millpond does not support a column's type.
            PluginError: the configured backend cannot be used.
        """
        self._check(config)
        schema, streaming = self.df.schema, self.df.isStreaming
        remote = is_connect(self.df.sparkSession)
        parallelism, max_parallelism = self._division(config)
        extension = Extension(len(schema))
        event_time = self._event_time(extension)
        mode = self._checked_time_mode()
        idleness = self._checked_idleness(mode)
        refused = self._refused_timers(extension, event_time, mode)
        self._check_both_times(event_time)
        key_positions = tuple(map(extension.position, self.keys))
        ordered = choose(self.df, "order_by", self.order_by, "process")
        order_by = tuple(map(extension.position, ordered))
        plan = OperatorPlan(
            uid=self.uid,
            function=self.function,
            output=OutputCodec.from_schema(output_schema(self.output), in_lists=streaming),
            key_positions=key_positions,
            key_fields=tuple(key.field.dataType for key in self.keys),
            order_by=order_by,
            event_time=event_time,
            rows=RowCodec.from_schema(schema, extension.fields),
            watermarked=self._is_watermarked,
            chained=self._is_chained,
            time_mode=mode,
            idle_timeout=None if idleness is None else idleness.timeout,
            refused_timers=refused,
            wakes=streaming and (remote or self._needs_wake_ups(config, mode)),
            settles=streaming and remote,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            config=config,
            broadcast=self.broadcast,
            second=self.second,
            faults=self._faults(event_time),
            resolution=configured_backend(config),
            made_at=calling_place(),
            cells=notebook_cells(),
        )
        return plan, extension

    def _check_both_times(self, event_time: int | None) -> None:
        """Raise ConfigError if an input lacks the event time that both inputs must have.

        Args:
            event_time: the position of the first input's event-time column, or None.
        """
        if self.second is None:
            return
        place = f"process(uid={self.uid!r})"
        if event_time is None and self.second.in_time_order:
            reason = "the first input has no event time: name its column as event_time="
            raise ConfigError("in_time_order", reason, place)
        if self._needs_event_time and self.second.texts.event_time is None:
            reason = f"{self._kind} need it for the second input, too: name a column of timestamps"
            raise ConfigError("event_time", reason, place)

    def _needs_wake_ups(self, config: Config, mode: timing.TimeMode | None) -> bool:
        """Return whether a micro-batch must also call subtasks without rows.

        Args:
            config: the session's configuration.
            mode: the time domain in which Spark calls subtasks for due timers.
        """
        restores = config.checkpoint.restore is not None
        listens = isinstance(self.function, CheckpointListener)
        return mode is not None or restores or listens or self._is_chained

    def _check(self, config: Config) -> None:
        """Raise ConfigError for a wrong uid or function, or an option that Spark excludes."""
        check_uid(self.uid, "process(...)")
        if config.checkpoint.claim:
            reason = (
                "cannot be used on Spark: a query owns only the snapshots that it has taken; you "
                "delete the savepoint that it starts from yourself"
            )
            raise ConfigError("checkpoint.claim", reason)
        restored = RetainedCheckpoint.from_config(config.checkpoint.restore)
        if restored and is_connect(self.df.sparkSession):
            reason = (
                "over Spark Connect nothing reads another query's checkpoint at the start: take a "
                "savepoint of it, as with `millpond savepoint create`, and name that"
            )
            raise ConfigError("checkpoint.restore", reason)
        if reason := self._misfit():
            raise ConfigError("function", reason, f"process(uid={self.uid!r})")

    def _misfit(self) -> str:
        """Return the reason why `function` does not fit the inputs; an empty string if it fits."""
        kind: type[OperatorFunction] = KeylessFunction
        expected = "a ProcessFunction, an AsyncFunction or a BroadcastProcessFunction"
        broadcast = BroadcastProcessFunction.__name__
        if self.keys:
            kind = KeyedFunction
            expected = "a KeyedProcessFunction, KeyedAsyncFunction or VectorizedProcessFunction"
            broadcast = KeyedBroadcastProcessFunction.__name__
        if not isinstance(self.function, kind):
            given = type(self.function).__name__
            if isinstance(self.function, type):
                given = f"the class {self.function.__name__}: pass an instance of it"
            return f"expected {expected}, got {given}"
        takes_broadcast = isinstance(
            self.function, (KeyedBroadcastProcessFunction, BroadcastProcessFunction)
        )
        if takes_broadcast != (self.broadcast is not None):
            return f"connect(...) and a {broadcast} belong together"
        if isinstance(self.function, KeyedCoProcessFunction) != (self.second is not None):
            return "connect(key_by(...)) and a KeyedCoProcessFunction belong together"
        return ""

    @cached_property
    def _is_watermarked(self) -> bool:
        """Whether the stream, or the connected keyed stream, has a watermark."""
        second = self.second is not None and self.second.texts.watermarked
        return second or self._is_chained or timing.is_watermarked(self.df)

    @cached_property
    def _is_chained(self) -> bool:
        """Whether rows of an input may come only when the watermark has passed them."""
        connected = self.connected is not None and self.connected.texts.chained
        return connected or timing.may_hold_rows(self.df)

    def _division(self, config: Config) -> tuple[int, int]:
        """Return the number of subtasks and the number of key groups."""
        parallelism, max_parallelism = config.parallelism, config.max_parallelism
        session = self.df.sparkSession
        remote = is_connect(session)
        if parallelism is None:
            if remote:
                reason = "Spark Connect does not report the number of cores: name it, for example 8"
                raise ConfigError(f"{SPARK_PREFIX}parallelism", reason)
            parallelism = session.sparkContext.defaultParallelism
        if max_parallelism is None and remote:
            max_parallelism = default_max_parallelism(parallelism)
        elif max_parallelism is None:
            max_parallelism = known_max_parallelism(
                config, self.uid, parallelism, streaming=self.df.isStreaming
            )
        if parallelism > max_parallelism:
            whose = "the configured" if config.max_parallelism else "its state's"
            reason = f"{parallelism} subtasks are more than {whose} max-parallelism, "
            reason += f"{max_parallelism}: use at most that many"
            raise ConfigError("parallelism", reason)
        return parallelism, max_parallelism

    def _event_time(self, extension: Extension) -> int | None:
        """Return the position of the event-time column, or None.

        The default for `event_time` is the column with the watermark.
        """
        if self.event_time is None:
            found = timing.watermark_column(self.df.schema, "process")
            if found is not None:
                return found
            if self._needs_event_time and (self._is_watermarked or not self.df.isStreaming):
                reason = f"{self._kind} need it: name a column of timestamps"
                if self._is_chained:
                    reason += "; the columns of an operator's output have no watermark's mark"
                raise ConfigError("event_time", reason, f"process(uid={self.uid!r})")
            return None
        return extension.position(time_choice(self.df, self.event_time, "process"))

    @property
    def _needs_event_time(self) -> bool:
        """Whether the function runs windows, patterns or joins of event time."""
        if isinstance(self.function, BuiltInFunction):
            return self.function.is_event_time
        return isinstance(self.function, (IntervalJoin, AsOfJoin))

    @property
    def _kind(self) -> str:
        """The name of Millpond's functions that need event time, for errors."""
        if isinstance(self.function, BuiltInFunction):
            return f"{self.function.subject} of event time"
        return "joins by event time"

    def _faults(self, event_time: int | None) -> RowFaults:
        """Return the treatment of rows that the function cannot process.

        Args:
            event_time: the position of the event-time column, or None.
        """
        timed = {INPUTS[0] if self.second is not None else "process_element": event_time}
        if self.second is not None:
            timed[INPUTS[1]] = self.second.texts.event_time
        methods = frozenset(method for method, at in timed.items() if at is not None)
        faults = RowFaults(self.on_error, self.null_event_times, methods)
        faults.check(self.function, f"process(uid={self.uid!r})")
        return faults

    def _refused_timers(
        self, extension: Extension, event_time: int | None, mode: timing.TimeMode | None
    ) -> RefusedTimers:
        """Return, by time domain, a function that makes the error for setting a timer.

        The result has only the time domains in which Spark would fire timers late or never.

        Args:
            extension: the columns that the plan appends to the rows' own columns.
            event_time: the position of the event-time column.
            mode: the time domain in which Spark calls subtasks for due timers.

        Raises:
            NoWatermarkError: the operator has windows, patterns or joins of event time, but its
                input has no watermark.
            EventTimeChainError: the operator has windows, patterns or timers of event time, and
                another operator is between it and a join of two streams.
        """
        if not self.df.isStreaming:
            return {}
        if self._is_watermarked:
            refused: dict[TimeDomain, Callable[[], MillpondError]] = {}
            connected = "" if self.connected is None else self.connected.texts.behind_join
            if before := connected or timing.operator_behind_join(self.df):
                built_in = isinstance(self.function, BuiltInFunction)
                if self._needs_event_time or (mode == "event-time" and not built_in):
                    raise EventTimeChainError(before, self.uid, "")
                refused[TimeDomain.EVENT_TIME] = partial(EventTimeChainError, before, self.uid, "")
            if self.time_mode is None and mode != "processing-time":
                refused[TimeDomain.PROCESSING_TIME] = partial(TimeModeError, self.uid)
            return refused
        fields = [*self.df.schema.fields, *extension.fields]
        column = "" if event_time is None else fields[event_time].name
        if self._needs_event_time:
            raise NoWatermarkError(self.uid, self._kind, column)
        never = partial(NoWatermarkError, self.uid, "timers and TTL of event time", column)
        return {TimeDomain.EVENT_TIME: never}

    def _checked_time_mode(self) -> timing.TimeMode | None:
        """Return the time domain in which Spark calls subtasks for due timers.

        Return None if the function has no ``on_timer``.
        """
        if self.time_mode not in (None, *timing.TIMEOUTS):
            reason = f"expected one of event-time, processing-time, got {brief(self.time_mode)}"
            raise ConfigError("time_mode", reason, "process(...)")
        function = self.function
        if not isinstance(function, KeyedFunction):
            return None
        if type(function).on_timer is KeyedFunction.on_timer:
            return None
        if self.time_mode is None:
            by_event = self._is_watermarked and not fires_by_clock(self.function)
            by_event = by_event and self.idle_timeout is None
            return "event-time" if by_event else "processing-time"
        if self.time_mode == "event-time" and self.df.isStreaming and not self._is_watermarked:
            reason = "event-time needs a watermark: call withWatermark before key_by"
            raise ConfigError("time_mode", reason, "process(...)")
        return self.time_mode

    def _checked_idleness(self, mode: timing.TimeMode | None) -> Idleness | None:
        """Return the idleness for the argument ``idle_timeout``; None without a timeout.

        Args:
            mode: the time domain in which Spark calls subtasks for due timers.

        Raises:
            ConfigError: the timeout is not positive, or would have no effect.
        """
        place = f"process(uid={self.uid!r})"
        idleness = Idleness.from_argument(self.idle_timeout, place)
        reason = ""
        if idleness is None or not self.df.isStreaming:
            return None
        if mode is None:
            reason = "the function has no on_timer, so an idle stream has nothing to fire"
        elif mode == "event-time":
            reason = "it needs time_mode='processing-time', the default with it: on an idle stream "
            reason += "Spark runs no batch otherwise"
        elif not self._is_watermarked:
            reason = "it needs a watermark: call withWatermark before key_by"
        if reason:
            raise ConfigError("idle_timeout", reason, place)
        return idleness


def fires_by_clock(function: OperatorFunction) -> bool:
    """Return whether `function` runs windows or patterns of processing time."""
    return isinstance(function, BuiltInFunction) and function.fires_by_clock
