"""Spark sessions: reading Millpond's configuration, and the settings we recommend."""

from __future__ import annotations

import difflib
import os
import sys
from os import PathLike
from typing import TypeVar

from pyspark.sql import SparkSession

from millpond.arguments import INT64, check_text, check_type, check_within
from millpond.config import Config
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.origins import SPARK_PREFIX
from millpond.spark.driver.group_labels import SPREAD

__all__ = ["configure", "spark_configuration"]

B = TypeVar("B")


def spark_configuration(spark: SparkSession) -> Config:
    """Millpond's configuration out of a session: its own settings over the context's.

    Raises:
        ConfigError: a key is unknown or a value wrong.
    """
    items = dict(spark.sparkContext.getConf().getAll())
    items.update(spark.conf.getAll)
    return Config.from_spark_conf(items.items())


def recommended_settings(parallelism: int) -> dict[str, str]:
    """What we set for a parallelism, with the reasons.

    * As many state partitions as subtasks, or a few more where that spreads evenly: each costs
      about 0.1 s of a core per batch, however little is in it.
    * Spark's check of unsupported operations is switched off: it refuses every query with two
      applyInPandasWithState, whatever they do; ours keep their states apart.
    * Arrow batches of 50,000 rows instead of 10,000: a fifth less time a batch was measured
      with 50,000 rows a subtask. Spark bounds them in bytes as well.
    """
    return {
        "spark.sql.shuffle.partitions": str(_spreading(parallelism)),
        "spark.sql.streaming.unsupportedOperationCheck": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        f"{SPARK_PREFIX}parallelism": str(parallelism),
    }


def _spreading(parallelism: int) -> int:
    """The smallest number of partitions, not below the parallelism, that labels spread over."""
    check_type("parallelism", parallelism, int)
    if not 1 <= parallelism <= MAX_KEY_GROUPS:
        raise ConfigError("parallelism", f"must be within 1..{MAX_KEY_GROUPS}", "configure(...)")
    return next(n for n in range(parallelism, SPREAD + 1) if SPREAD % n == 0)


def _dotted(name: str) -> str:
    known = {key.replace(".", "_").replace("-", "_"): key for key in Config.known_keys()}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = close[0] if close else None
        raise ConfigError(name, "is not a known setting", "configure(...)", suggestion=hint)
    return known[name]


def configure(target: B, *, parallelism: int, **settings: object) -> B:
    """Set what Millpond recommends on a session or its builder; returns the same object.

    Also makes the workers run this Python, unless PYSPARK_PYTHON says otherwise.

    Args:
        target: a ``SparkSession`` or ``SparkSession.builder``.
        parallelism: the number of subtasks.
        settings: Millpond's own, with ``_`` for ``.`` and ``-``: ``state_backend="rocksdb"``
            sets ``spark.millpond.state.backend``, ``checkpoint_dir=…`` where snapshots go.

    Raises:
        ConfigError: a setting is unknown, or the parallelism out of bounds.
        ArgumentTypeError: a setting is neither text, a number, True, False nor a path.
        ArgumentValueError: a number is beyond 64 bits, or text is not of whole characters.
    """
    check_type("target", target, SparkSession | SparkSession.Builder)
    chosen = recommended_settings(parallelism)
    for name, value in settings.items():
        check_type(name, value, str | int | float | bool | PathLike)
        if isinstance(value, int):
            check_within(name, int(value), *INT64)
        check_text(name, str(value))
        chosen[SPARK_PREFIX + _dotted(name)] = str(value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    setter = getattr(target, "config", None) or target.conf.set  # type: ignore[attr-defined]
    for key, value in chosen.items():
        setter(key, value)
    return target
