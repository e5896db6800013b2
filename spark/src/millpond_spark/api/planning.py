"""From a ``process`` call to the operator's plan; errors in the call are raised here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, partial

import attrs
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import (
    ConfigError,
    EventTimeChainError,
    NoWatermarkError,
    TimeModeError,
    brief,
)
from millpond.functions.checkpointed import CheckpointListener
from millpond.functions.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedFunction,
    OperatorFunction,
    ProcessFunction,
)
from millpond.functions.timer_service import RefusedTimers, TimeDomain
from millpond.functions.user_code import calling_place, notebook_cells
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.keygroups import default_max_parallelism
from millpond.operator.opening import configured_backend
from millpond.operator_id import check_uid
from millpond.windows import WindowOperator
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond_spark.driver.query_layouts import known_max_parallelism
from millpond_spark.plan.column_arguments import (
    Choice,
    ColumnOrName,
    Extension,
    order_choices,
    time_choice,
)
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.plan.pointer import RetainedCheckpoint
from millpond_spark.plan.second_input import BroadcastCodec, SecondInput
from millpond_spark.plan.timing import TIMEOUTS, TimeMode
from millpond_spark.plan.watermarks import follows_outer_join, is_watermarked, watermark_column
from millpond_spark.session.session import is_connect
from millpond_spark.values.folds import folds_of
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.schemas import output_schema

_KINDS: dict[bool, tuple[type[OperatorFunction], str]] = {
    True: (KeyedFunction, "a KeyedProcessFunction or a VectorizedProcessFunction"),
    False: (ProcessFunction, "a ProcessFunction or a BroadcastProcessFunction"),
}
"""What functions run over, rows with keys or without, and what they are called."""

_WITH_BROADCAST = (KeyedBroadcastProcessFunction, BroadcastProcessFunction)


@attrs.frozen
class ProcessCall:
    """What ``process(...)`` was given; see ``KeyedStream.process`` and ``OperatorStream.process``.

    Attributes:
        keys: the columns of the key; none of rows without keys.
        broadcast: the codec of the broadcast rows that were connected, or None.
        second: the codec of the second keyed input that was connected, or None.
        side_columns: those of a side output whose tag names none; by default the rows'.
    """

    df: DataFrame
    keys: Sequence[Choice]
    broadcast: BroadcastCodec | None
    second: SecondInput | None
    function: OperatorFunction
    output: str | StructType
    uid: str
    event_time: ColumnOrName | None
    order_by: ColumnOrName | Sequence[ColumnOrName]
    time_mode: TimeMode | None
    side_columns: StructType | None = None

    def plan(self, config: Config) -> tuple[OperatorPlan, Extension]:
        """The plan under a configuration, and the columns that it needs behind the rows' own.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: a column's type cannot be carried without loss.
            PluginError: the configured backend cannot be used.
        """
        self._check(config)
        schema, streaming = self.df.schema, self.df.isStreaming
        remote = is_connect(self.df.sparkSession)
        parallelism, max_parallelism = self._division(config)
        extension = Extension(len(schema))
        event_time = self._event_time(extension)
        mode = self._checked_time_mode()
        refused = self._refused_timers(extension, event_time, mode)
        if event_time is None and self.second is not None and self.second.in_time_order:
            reason = "the first input has no event time: name its column as event_time="
            raise ConfigError("in_time_order", reason, f"process(uid={self.uid!r})")
        key_positions = tuple(map(extension.position, self.keys))
        ordered = order_choices(self.df, self.order_by, "process")
        order_by = tuple(map(extension.position, ordered))
        alone = {*key_positions, *order_by, *(() if event_time is None else (event_time,))}
        plan = OperatorPlan(
            uid=self.uid,
            function=self.function,
            output=OutputCodec.of(output_schema(self.output), in_lists=streaming),
            key_positions=key_positions,
            key_fields=tuple(key.field.dataType for key in self.keys),
            order_by=order_by,
            event_time=event_time,
            rows=self._rows(extension, alone),
            watermarked=self._is_watermarked,
            time_mode=mode,
            refused_timers=refused,
            wakes=streaming and (remote or self._wakes(mode, config)),
            settles=streaming and remote,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            config=config,
            broadcast=self.broadcast,
            second=self.second,
            resolution=configured_backend(config),
            made_at=calling_place(),
            cells=notebook_cells(),
        )
        return plan, extension

    def _rows(self, extension: Extension, alone: Collection[int]) -> RowCodec:
        """The codec of the rows, whose columns at some positions are to cross by themselves.

        So do all where another input's rows come among them, or a function takes whole columns.
        """
        schema = self.df.schema
        codec = RowCodec.of(schema, extension.fields)
        whole = isinstance(self.function, VectorizedProcessFunction)
        if whole or self.broadcast is not None or self.second is not None:
            return codec
        fields = [*schema.fields, *extension.fields]
        return attrs.evolve(codec, folds=folds_of(fields, codec.carriers, alone))

    def _check(self, config: Config) -> None:
        check_uid(self.uid, "process(...)")
        if config.checkpoint.claim:
            reason = (
                "cannot be on Spark: a query owns the snapshots it has taken, and a savepoint that "
                "it starts from stays yours, to delete when you like"
            )
            raise ConfigError("checkpoint.claim", reason)
        if RetainedCheckpoint.from_config(config.checkpoint.restore) and is_connect(
            self.df.sparkSession
        ):
            reason = (
                "over Spark Connect nothing reads another query's checkpoint at the start: take a "
                "savepoint of it, as with `millpond savepoint create`, and name that"
            )
            raise ConfigError("checkpoint.restore", reason)
        wanted, kinds = _KINDS[bool(self.keys)]
        if not isinstance(self.function, wanted):
            given = type(self.function).__name__
            if isinstance(self.function, type):
                given = f"the class {self.function.__name__}: pass an instance of it"
            raise ConfigError(
                "function", f"expected {kinds}, got {given}", f"process(uid={self.uid!r})"
            )
        takes_broadcast = isinstance(self.function, _WITH_BROADCAST)
        if takes_broadcast != (self.broadcast is not None):
            kind = _WITH_BROADCAST[not self.keys].__name__
            reason = f"connect(...) and a {kind} belong together"
            raise ConfigError("function", reason, f"process(uid={self.uid!r})")
        takes_two = isinstance(self.function, KeyedCoProcessFunction)
        if takes_two != (self.second is not None):
            reason = "connect(key_by(...)) and a KeyedCoProcessFunction belong together"
            raise ConfigError("function", reason, f"process(uid={self.uid!r})")

    def _wakes(self, mode: TimeMode | None, config: Config) -> bool:
        restores = config.checkpoint.restore is not None
        return mode is not None or restores or isinstance(self.function, CheckpointListener)

    @cached_property
    def _is_watermarked(self) -> bool:
        """Whether the stream, or the keyed one that is connected, has a watermark."""
        second = self.second is not None and self.second.texts.watermarked
        return second or is_watermarked(self.df)

    def _division(self, config: Config) -> tuple[int, int]:
        """Return the number of subtasks, and of key groups."""
        parallelism = config.parallelism or self._default_parallelism()
        if config.max_parallelism is not None:
            max_parallelism = config.max_parallelism
        elif is_connect(self.df.sparkSession):
            max_parallelism = default_max_parallelism(parallelism)
        else:
            streaming = self.df.isStreaming
            max_parallelism = known_max_parallelism(
                config, self.uid, parallelism, streaming=streaming
            )
        if parallelism > max_parallelism:
            whose = "the configured" if config.max_parallelism else "its state's"
            reason = f"{parallelism} subtasks are more than {whose} max-parallelism, "
            reason += f"{max_parallelism}: take at most as many"
            raise ConfigError("parallelism", reason)
        return parallelism, max_parallelism

    def _default_parallelism(self) -> int:
        session = self.df.sparkSession
        if is_connect(session):
            reason = "Spark Connect does not tell how many cores there are: name it, for example 8"
            raise ConfigError(f"{SPARK_PREFIX}parallelism", reason)
        return session.sparkContext.defaultParallelism

    def _event_time(self, extension: Extension) -> int | None:
        """The position of the column of event time, by default the one with the watermark."""
        if self.event_time is None:
            found = watermark_column(self.df.schema, "process")
            if found is not None:
                return found
            if self._has_event_time_windows and not self.df.isStreaming:
                reason = "windows of event time need it: name a column of timestamps"
                raise ConfigError("event_time", reason, f"process(uid={self.uid!r})")
            return None
        return extension.position(time_choice(self.df, self.event_time, "process"))

    @property
    def _fires_by_clock(self) -> bool:
        return isinstance(self.function, WindowOperator) and self.function.fires_by_clock

    @property
    def _has_event_time_windows(self) -> bool:
        return isinstance(self.function, WindowOperator) and self.function.is_event_time

    def _refused_timers(
        self, extension: Extension, event_time: int | None, mode: TimeMode | None
    ) -> RefusedTimers:
        """Return the errors of timers that Spark would not fire, or not in time.

        Raises:
            NoWatermarkError: windows of event time have no watermark.
            EventTimeChainError: windows or timers of event time are behind an outer join.
        """
        if not self.df.isStreaming:
            return {}
        if self._is_watermarked:
            chosen = self.time_mode is not None
            late = partial(TimeModeError, self.uid)
            refused = self._refused_behind_join(mode)
            if chosen or self._fires_by_clock:
                return refused
            return {**refused, TimeDomain.PROCESSING_TIME: late}
        fields = [*self.df.schema.fields, *extension.fields]
        column = "" if event_time is None else fields[event_time].name
        if self._has_event_time_windows:
            raise NoWatermarkError(self.uid, "windows of event time", column)
        never = partial(NoWatermarkError, self.uid, "timers of event time", column)
        return {TimeDomain.EVENT_TIME: never}

    def _refused_behind_join(self, mode: TimeMode | None) -> RefusedTimers:
        """Return the error of event-time timers over the rows of an outer join of two streams.

        Raises:
            EventTimeChainError: the operator works by event time, whatever its rows are.
        """
        second = self.second is not None and self.second.texts.from_outer_join
        if not (second or follows_outer_join(self.df)):
            return {}
        has_windows = isinstance(self.function, WindowOperator)
        if self._has_event_time_windows or (mode == "event-time" and not has_windows):
            raise EventTimeChainError("", self.uid, "")
        return {TimeDomain.EVENT_TIME: partial(EventTimeChainError, "", self.uid, "")}

    def _checked_time_mode(self) -> TimeMode | None:
        """The time mode that was asked for or follows from the watermark; None without timers."""
        if self.time_mode not in (None, *TIMEOUTS):
            reason = f"expected one of event-time, processing-time, got {brief(self.time_mode)}"
            raise ConfigError("time_mode", reason, "process(...)")
        function = self.function
        if not isinstance(function, KeyedFunction):
            return None
        if type(function).on_timer is KeyedFunction.on_timer:
            return None
        if self.time_mode is None:
            by_event = self._is_watermarked and not self._fires_by_clock
            return "event-time" if by_event else "processing-time"
        if self.time_mode == "event-time" and self.df.isStreaming and not self._is_watermarked:
            reason = "event-time needs a watermark: call withWatermark before key_by"
            raise ConfigError("time_mode", reason, "process(...)")
        return self.time_mode
