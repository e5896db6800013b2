"""From a ``process`` call to the operator's plan; errors in the call are raised here."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond.config import Config
from millpond.errors import ConfigError, brief
from millpond.keygroups import check_parallelism
from millpond.runtime import KeyedBroadcastProcessFunction, KeyedProcessFunction
from millpond.runtime.opening import configured_backend
from millpond.spark.broadcast import BroadcastCodec
from millpond.spark.carriers.frames import RowCodec
from millpond.spark.driver.past import Past
from millpond.spark.driver.plan import OperatorPlan, check_uid
from millpond.spark.driver.timing import TIMEOUTS, TimeMode, watermark_column
from millpond.spark.schemas import column_names, output_schema, position_of, time_position

__all__ = ["ProcessCall"]


@attrs.frozen
class ProcessCall:
    """What ``key_by(df, *keys).process(...)`` was given; see ``KeyedStream.process``.

    Attributes:
        broadcast: the codec of the rows that were connected, or None.
    """

    df: DataFrame
    keys: tuple[str, ...]
    broadcast: BroadcastCodec | None
    function: KeyedProcessFunction
    output: str | StructType
    uid: str
    event_time: str | None
    order_by: str | Sequence[str]
    time_mode: TimeMode | None

    def plan(self, config: Config) -> OperatorPlan:
        """The plan under a configuration.

        Raises:
            ConfigError: an argument or the configuration is wrong.
            UnsupportedColumnError: a column's type cannot be carried without loss.
            PluginError: the configured backend cannot be used.
        """
        self._check(config)
        schema, streaming = self.df.schema, self.df.isStreaming
        past = Past.of(config, self.uid) if streaming else Past()
        parallelism, max_parallelism = self._division(config, past)
        mode = self._checked_time_mode()
        return OperatorPlan(
            uid=self.uid,
            function=self.function,
            rows=RowCodec.of(schema),
            output=RowCodec.of(output_schema(self.output)),
            key_positions=tuple(position_of(schema, key, "key_by") for key in self.keys),
            key_fields=tuple(schema[key].dataType for key in self.keys),
            event_time=self._event_time(),
            order_by=self._order_by(),
            watermarked=streaming and watermark_column(schema) is not None,
            time_mode=mode,
            timed=mode is not None or past.timed(),
            wakes=streaming and (mode is not None or config.checkpoint.restore is not None),
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            config=config,
            broadcast=self.broadcast,
            resolution=configured_backend(config),
        )

    def _check(self, config: Config) -> None:
        check_uid(self.uid)
        if config.checkpoint.claim:
            reason = (
                "cannot be on Spark: a query owns the snapshots it has taken, and a savepoint that "
                "it starts from stays yours, to delete when you like"
            )
            raise ConfigError("checkpoint.claim", reason)
        if not isinstance(self.function, KeyedProcessFunction):
            given = type(self.function).__name__
            reason = f"expected a KeyedProcessFunction, got {given}"
            raise ConfigError("function", reason, f"process(uid={self.uid!r})")
        takes_broadcast = isinstance(self.function, KeyedBroadcastProcessFunction)
        if takes_broadcast != (self.broadcast is not None):
            reason = "connect(...) and a KeyedBroadcastProcessFunction belong together"
            raise ConfigError("function", reason, f"process(uid={self.uid!r})")

    def _division(self, config: Config, past: Past) -> tuple[int, int]:
        """The number of subtasks, and of key groups."""
        default = self.df.sparkSession.sparkContext.defaultParallelism
        parallelism = config.parallelism or default
        max_parallelism = config.max_parallelism or past.max_parallelism(parallelism)
        check_parallelism(max_parallelism, parallelism)
        return parallelism, max_parallelism

    def _event_time(self) -> int | None:
        """The position of the column of event time, by default the one with the watermark."""
        schema = self.df.schema
        column = self.event_time or watermark_column(schema)
        return None if column is None else time_position(schema, column)

    def _order_by(self) -> tuple[int, ...]:
        names = column_names("order_by", self.order_by)
        return tuple(position_of(self.df.schema, name, "order_by") for name in names)

    def _checked_time_mode(self) -> TimeMode | None:
        """The time mode that was asked for or follows from the watermark; None without timers."""
        if self.time_mode not in (None, *TIMEOUTS):
            reason = f"expected one of event-time, processing-time, got {brief(self.time_mode)}"
            raise ConfigError("time_mode", reason, "process(...)")
        if type(self.function).on_timer is KeyedProcessFunction.on_timer:
            return None
        watermarked = watermark_column(self.df.schema) is not None
        if self.time_mode is None:
            return "event-time" if watermarked else "processing-time"
        if self.time_mode == "event-time" and not watermarked:
            reason = "event-time needs a watermark: call withWatermark before key_by"
            raise ConfigError("time_mode", reason, "process(...)")
        return self.time_mode
