"""The plan of an operator: made on the driver, shipped to the workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from millpond.checkpoint import CheckpointStorage, SavepointHandle
from millpond.config import Config
from millpond.errors import ConfigError, brief
from millpond.keygroups import KeyGroupRange, default_max_parallelism, key_group_range
from millpond.plugins import PluginRegistry, Resolution, get_registry
from millpond.runtime import KeyedProcessFunction, SubtaskInfo
from millpond.spark.broadcast import BroadcastCodec
from millpond.spark.carriers.frames import RowCodec
from millpond.spark.carriers.named_rows import row_type
from millpond.spark.driver.group_labels import group_labels
from millpond.spark.driver.timing import TimeMode
from millpond.types import KeyCodec, key_codec_for
from millpond.types.keys import TupleKeyCodec

__all__ = ["OperatorPlan", "check_uid", "key_codec_of", "key_group_column"]

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LONG_DIGITS = 18


@attrs.frozen
class OperatorPlan:
    """Everything a worker needs to run a subtask.

    Attributes:
        uid: the operator's stable name.
        function: the user's function, pickled with the plan.
        rows: the codec of the input rows.
        output: the codec of the output rows.
        key_positions: which columns are the key.
        event_time: the position of the event-time column, or None.
        order_by: the positions of the columns that order each key's rows.
        resolution: the backend as the driver resolved it.
        watermarked: whether the input has a watermark.
        time_mode: by which time Spark calls subtasks without rows; None without timers.
        broadcast: the codec of broadcast rows; None where no stream is connected.
        batch: whether rows come sorted by key, and state is kept for one key at a time.
        timed: whether Spark keeps a timeout beside each pointer.
        wakes: whether a batch with rows calls all subtasks, those without rows too.
        max_parallelism: the number of key groups.
    """

    uid: str
    function: KeyedProcessFunction
    rows: RowCodec
    output: RowCodec
    key_positions: tuple[int, ...]
    key_fields: tuple[DataType, ...]
    event_time: int | None
    order_by: tuple[int, ...]
    parallelism: int
    config: Config
    resolution: Resolution
    watermarked: bool = False
    time_mode: TimeMode | None = None
    broadcast: BroadcastCodec | None = None
    batch: bool = False
    timed: bool = True
    wakes: bool = False
    max_parallelism: int = default_max_parallelism(1)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(self.rows.names[position] for position in self.key_positions)

    @property
    def registry(self) -> PluginRegistry:
        """The plugins of this process under the job's rules."""
        return get_registry(self.config.plugins)

    def storage(self) -> CheckpointStorage:
        """Where the job's snapshots go."""
        return self.registry.storage(self.config.checkpoint.dir or "")

    def savepoint(self) -> SavepointHandle | None:
        """The savepoint that operators without state start from; None where none is named."""
        if self.config.checkpoint.restore is None:
            return None
        with self.config.placed("checkpoint.restore"):
            return self.registry.savepoint(self.config.checkpoint.restore)

    def key_codec(self) -> KeyCodec:
        """The codec of the keys."""
        return key_codec_of(self.key_names, self.key_fields)

    def owns(self, label: int) -> bool:
        """Whether a group label belongs to one of the subtasks."""
        return label in group_labels(self.parallelism)

    def subtask(self, label: int) -> SubtaskInfo:
        """The subtask of a group label."""
        index = group_labels(self.parallelism).index(label)
        return SubtaskInfo(self.uid, index, self.parallelism, self.max_parallelism)

    def key_groups(self, index: int) -> KeyGroupRange:
        """The key groups of a subtask."""
        return key_group_range(self.max_parallelism, self.parallelism, index)


def check_uid(uid: Any) -> str:
    """Return a usable operator uid; ConfigError where it cannot be a folder's name."""
    if not isinstance(uid, str) or not _UID.fullmatch(uid):
        reason = f"expected 1 to 100 letters, digits, '.', '_' or '-', got {brief(uid)}"
        raise ConfigError("uid", reason, "process(...)")
    return uid


def _python_key_type(name: str, declared: DataType) -> Any:
    for spark_types, python_type in _KEY_TABLE:
        if isinstance(declared, spark_types) and not _is_collated(declared):
            return python_type
    raise ConfigError(name, f"a {declared.simpleString()} column cannot be a key", "key_by(...)")


def _is_collated(declared: DataType) -> bool:
    """Whether Spark takes texts for equal that Python tells apart."""
    return isinstance(declared, StringType) and declared.collation != StringType().collation


def _key_table() -> list[tuple[tuple[type[DataType], ...], type]]:
    from datetime import date, datetime  # noqa: PLC0415 - their names collide with Spark's habits
    from decimal import Decimal  # noqa: PLC0415

    return [
        ((LongType, IntegerType, ShortType, ByteType), int),
        ((StringType,), str),
        ((DoubleType, FloatType), float),
        ((BooleanType,), bool),
        ((BinaryType,), bytes),
        ((DecimalType,), Decimal),
        ((DateType,), date),
        ((TimestampType, TimestampNTZType), datetime),
    ]


_KEY_TABLE = _key_table()


def key_codec_of(names: Sequence[str], types: Sequence[DataType]) -> KeyCodec:
    """The codec of key columns: of one column its type's, of several a named tuple's.

    Raises:
        ConfigError: a column cannot be a key.
    """
    parts = [
        key_codec_for(_python_key_type(name, declared))
        for name, declared in zip(names, types, strict=True)
    ]
    if len(parts) == 1:
        return parts[0]
    return TupleKeyCodec(parts, row_type(list(names)), tuple, names)


def _widened(column: Column, declared: DataType) -> Column:
    """The key column in the type whose hash Python computes too."""
    if isinstance(declared, (ByteType, ShortType, IntegerType)):
        return column.cast("bigint")
    if isinstance(declared, FloatType):
        return column.cast("double")
    return column


def key_group_column(
    columns: Sequence[Column], types: Sequence[DataType], max_parallelism: int
) -> Column:
    """The key group, computed in the JVM: ``pmod(xxhash64(key), max_parallelism)``.

    Spark hashes a decimal by its declared precision: up to 18 digits as a long, beyond as
    bytes. A value of a wide column that fits 18 digits is hashed as a long here, so that
    Python can tell the layout from the value.
    """
    for column, declared in zip(columns, types, strict=True):
        if isinstance(declared, DecimalType) and declared.precision > _LONG_DIGITS:
            narrow = DecimalType(_LONG_DIGITS, min(declared.scale, _LONG_DIGITS))
            if declared.scale > _LONG_DIGITS or len(columns) > 1:
                reason = f"a {declared.simpleString()} column can only be a key by itself"
                raise ConfigError("key", reason + ", with a scale up to 18", "key_by(...)")
            slim = column.try_cast(narrow)
            digest = F.when(slim.isNotNull(), F.xxhash64(slim)).otherwise(F.xxhash64(column))
            return F.pmod(digest, F.lit(max_parallelism)).cast("int")
    wide = [_widened(column, kind) for column, kind in zip(columns, types, strict=True)]
    return F.pmod(F.xxhash64(*wide), F.lit(max_parallelism)).cast("int")
