"""Operator plans, which the driver makes and sends to the workers, and codecs of keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import attrs
from millpond.config import Config
from millpond.errors import ConfigError
from millpond.functions.dead_letters import DEFAULT_FAULTS, RowFaults
from millpond.functions.functions import OperatorFunction, SubtaskInfo
from millpond.functions.joins import IntervalJoin
from millpond.functions.side_outputs import is_side_row
from millpond.functions.timer_service import RefusedTimers, TimeDomain
from millpond.functions.user_code import Place
from millpond.keygroups import KeyGroupRange, default_max_parallelism, key_group_range
from millpond.plugins import PluginRegistry, Resolution, get_registry
from millpond.snapshots.handles import SavepointHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.types import KeyCodec, key_codec_for
from millpond.types.key_codecs import VoidKeyCodec
from millpond.types.scalar_tables import SCALAR_KEYS
from millpond.types.serializer_lookup import row_key_codec
from pyspark.sql import types as T

from millpond_spark.plan.pointer import RetainedCheckpoint
from millpond_spark.plan.second_input import BroadcastCodec, SecondInput
from millpond_spark.plan.timing import NextTimers, TimeMode
from millpond_spark.session.group_labels import group_labels
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec
from millpond_spark.values.side_outputs import SideRows

_LONG_DIGITS = 18
_PLAIN_KEYS: dict[type[T.DataType], type] = {
    T.LongType: int,
    T.IntegerType: int,
    T.ShortType: int,
    T.ByteType: int,
    T.StringType: str,
    T.BooleanType: bool,
    T.BinaryType: bytes,
    T.DateType: date,
}


@attrs.frozen
class OperatorPlan:
    """Everything a worker needs to run a subtask.

    Attributes:
        uid: the operator's stable name.
        function: the user's function, pickled with the plan.
        rows: the codec of the input rows.
        output: the codec of the output rows.
        sides: the codec of the output rows and of side outputs, if the user takes any.
        key_positions: the positions of the key columns; empty for rows without keys.
        event_time: the position of the event-time column, or None.
        order_by: the positions of the columns that order each key's rows.
        resolution: the backend that the driver has found by its configured name.
        watermarked: whether the input has a watermark.
        chained: whether rows of the input may come only when the watermark has passed them.
        watermark_delay: the time in ms by which the operator's watermark is behind Spark's: the
            delay of the rows of an interval join before the operator.
        idle_timeout: the time without rows in ms after which a subtask's watermark follows the
            clock; None if it never does.
        time_mode: the time domain in which Spark calls subtasks for due timers; None without
            timers.
        refused_timers: the errors for timers that Spark would not fire in time, by time domain.
        broadcast: the codec of broadcast rows, or None.
        second: the codec of a second keyed input, or None.
        restores: whether an operator over bounded rows starts from the configured savepoint.
        batch: whether the rows are sorted by key, and the backend has the state of one key only.
        settles: whether the first task of a run writes the layout, the division of key groups among
            subtasks. This is so over Spark Connect, because the driver cannot write it there.
        faults: the treatment of rows that the function cannot process.
        wakes: whether Spark calls subtasks without rows too in each batch that has rows.
        max_parallelism: the number of key groups.
        made_at: the line of the user's code that has created the operator.
        cells: the names of a notebook's cells, by the names of their files.
    """

    uid: str
    function: OperatorFunction
    rows: RowCodec
    output: OutputCodec
    key_positions: tuple[int, ...]
    key_fields: tuple[T.DataType, ...]
    event_time: int | None
    order_by: tuple[int, ...]
    parallelism: int
    config: Config
    resolution: Resolution
    watermarked: bool = False
    chained: bool = False
    watermark_delay: int = 0
    time_mode: TimeMode | None = None
    idle_timeout: int | None = None
    refused_timers: RefusedTimers = attrs.field(factory=dict)
    broadcast: BroadcastCodec | None = None
    second: SecondInput | None = None
    sides: SideRows | None = None
    faults: RowFaults = DEFAULT_FAULTS
    restores: bool = False
    batch: bool = False
    wakes: bool = False
    settles: bool = False
    max_parallelism: int = default_max_parallelism(1)
    made_at: Place | None = None
    cells: dict[str, str] = attrs.field(factory=dict)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(self.rows.names[position] for position in self.key_positions)

    @property
    def is_keyless(self) -> bool:
        """Whether the rows have no keys."""
        return not self.key_positions

    @property
    def by_event_time(self) -> bool:
        """Whether the operator may hold rows back until the watermark has passed them."""
        return self.watermarked and self.time_mode is not None

    @property
    def output_delay(self) -> int:
        """The time in ms by which rows of the output may be older than Spark's watermark."""
        own = self.function.output_delay if isinstance(self.function, IntervalJoin) else 0
        return self.watermark_delay + own

    @property
    def restore(self) -> str:
        """The value of ``checkpoint.restore``; empty if it is not set."""
        return self.config.checkpoint.restore or ""

    @property
    def returned(self) -> OutputCodec:
        """The codec of all columns that the operator returns, with those of side outputs."""
        return self.output if self.sides is None else self.sides.joint

    def check(self, row: Any) -> None:
        """Raise OutputTypeError if `row` does not fit the columns of its output."""
        if not is_side_row(row):
            self.output.check(row, self.uid)
        elif self.sides is not None:
            self.sides.check(*row, self.uid)

    def require_firing(self, next_timers: NextTimers) -> None:
        """Raise an error if the operator has timers that Spark would not fire.

        These timers may have been set when the query was started with other arguments.

        Args:
            next_timers: the times of the operator's next timers.

        Raises:
            NoWatermarkError, TimeModeError: there is a timer that the function may not set now.
        """
        for domain, time in zip(TimeDomain, next_timers, strict=True):
            refusal = self.refused_timers.get(domain)
            if time is not None and refusal is not None and self.time_mode is not None:
                raise refusal()

    @property
    def registry(self) -> PluginRegistry:
        """The plugins of this process that the configuration allows."""
        return get_registry(self.config.plugins)

    def storage(self) -> CheckpointStorage:
        """Return the storage of snapshots, ``checkpoint.dir``."""
        return self.registry.storage(self.config.checkpoint.dir or "", self.config)

    @property
    def retained_checkpoint(self) -> RetainedCheckpoint | None:
        """The other query's checkpoint, if ``checkpoint.restore`` names one; else None."""
        return RetainedCheckpoint.from_config(self.restore)

    def savepoint(self) -> SavepointHandle | None:
        """Return the savepoint, if ``checkpoint.restore`` names one; else None."""
        if not self.restore or self.retained_checkpoint is not None:
            return None
        with self.config.locating_errors("checkpoint.restore"):
            return self.located(self.restore)

    def located(self, savepoint: str) -> SavepointHandle:
        """Return the handle of `savepoint`, a path or URI."""
        return self.registry.savepoint(savepoint, self.config)

    def key_codec(self) -> KeyCodec:
        """Return the codec of the keys."""
        return key_codec_of(self.key_names, self.key_fields)

    def subtask(self, index: int, attempt: int) -> SubtaskInfo:
        """Return the description of the subtask `index`; `attempt` counts from 0."""
        return SubtaskInfo(self.uid, index, self.parallelism, self.max_parallelism, attempt)

    def subtask_of(self, label: int) -> int:
        """Return the index of the subtask whose rows Spark groups by `label`."""
        return group_labels(self.parallelism).index(label)

    def key_groups(self, index: int) -> KeyGroupRange:
        """Return the key groups of the subtask `index`."""
        return key_group_range(self.max_parallelism, self.parallelism, index)


def key_codec_of(names: Sequence[str], types: Sequence[T.DataType]) -> KeyCodec:
    """Return the codec of the keys: single values for one key column, rows for several.

    Args:
        names: the names of the key columns.
        types: the types of the key columns.

    Raises:
        ConfigError: a column cannot be a key.
    """
    if not names:
        return VoidKeyCodec()
    for name, declared in zip(names, types, strict=True):
        _check_digits(name, declared, sole=len(names) == 1)
    parts = [_key_codec(name, declared) for name, declared in zip(names, types, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return row_key_codec(parts, names)


def _key_codec(name: str, declared: T.DataType) -> KeyCodec:
    """Return the codec of the key column `name`.

    The codec of a decimal records the scale of `declared`, and the codec of a timestamp or float
    the type. If the scale or the type changed, equal input would have other keys, so a restore must
    notice. A change of the width of whole numbers changes no key.

    Raises:
        ConfigError: the column cannot be a key.
    """
    if isinstance(declared, T.DecimalType):
        return attrs.evolve(SCALAR_KEYS[Decimal], column={"scale": declared.scale})
    if isinstance(declared, (T.TimestampType, T.TimestampNTZType)):
        return attrs.evolve(SCALAR_KEYS[datetime], column=declared.typeName())
    if isinstance(declared, (T.FloatType, T.DoubleType)):
        return attrs.evolve(SCALAR_KEYS[float], column=declared.typeName())
    # With a collation, Spark treats some strings as equal that differ in Python.
    collated = isinstance(declared, T.StringType) and declared.collation != T.StringType().collation
    if collated or type(declared) not in _PLAIN_KEYS:
        reason = f"a {declared.simpleString()} column cannot be a key"
        raise ConfigError(name, reason, "key_by(...)")
    return key_codec_for(_PLAIN_KEYS[type(declared)])


def _check_digits(name: str, declared: T.DataType, *, sole: bool) -> None:
    """Raise ConfigError if equal decimals in key columns could have different hashes in Spark.

    Args:
        name: the key column.
        declared: the column's type.
        sole: whether the column is the only key column.
    """
    if not isinstance(declared, T.DecimalType) or declared.precision <= _LONG_DIGITS:
        return
    what = f"a {declared.simpleString()} column cannot be a key"
    if not sole:
        reason = (
            f"{what} next to others: there a decimal has at most {_LONG_DIGITS} digits; cast it"
        )
        raise ConfigError(name, reason, "key_by(...)")
    if declared.scale > _LONG_DIGITS:
        limit = f"one of more than {_LONG_DIGITS} digits has a scale of at most {_LONG_DIGITS}"
        raise ConfigError(name, f"{what}: {limit}; cast it", "key_by(...)")


def key_group_column(
    columns: Sequence[str], types: Sequence[T.DataType], max_parallelism: int
) -> str:
    """Return the SQL of a row's key group: ``pmod(xxhash64(key), max_parallelism)``.

    Narrow numbers are cast to wide types first, because Python has one type for all widths. Spark
    hashes a decimal by the precision of its column: as a long up to 18 digits, as bytes beyond.
    Here a value of a wide decimal column is hashed as a long if it has at most 18 digits. Therefore
    equal values have equal hashes in columns of any precision. ``key_codec_of`` allows a wide
    decimal column only as the sole key column.

    Args:
        columns: the SQL names of the key columns.
        types: the types of the key columns.
        max_parallelism: the number of key groups.
    """
    wide = []
    for column, declared in zip(columns, types, strict=True):
        if isinstance(declared, T.DecimalType) and declared.precision > _LONG_DIGITS:
            narrow = T.DecimalType(_LONG_DIGITS, declared.scale)
            slim = f"try_cast({column} AS {narrow.simpleString()})"
            digest = f"if({slim} IS NOT NULL, xxhash64({slim}), xxhash64({column}))"
            return f"CAST(pmod({digest}, {max_parallelism}) AS INT)"
        if isinstance(declared, (T.ByteType, T.ShortType, T.IntegerType)):
            wide.append(f"CAST({column} AS BIGINT)")
        else:
            wide.append(
                f"CAST({column} AS DOUBLE)" if isinstance(declared, T.FloatType) else column
            )
    return f"CAST(pmod(xxhash64({', '.join(wide)}), {max_parallelism}) AS INT)"
