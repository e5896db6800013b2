"""Spark sessions: reading Millpond's configuration, and the settings we recommend."""

from __future__ import annotations

import sys

import pyspark
from millpond.arguments import check_type
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS
from pyspark.sql import SparkSession

from millpond_spark.session.checkpoint_uris import hadoop_settings, qualified
from millpond_spark.session.group_labels import spreading
from millpond_spark.session.spark_conf import all_settings

LOWEST_PYSPARK = (4, 0)


def require_pyspark() -> None:
    """Raise ConfigError where PySpark is older than what we declare, as on a cluster it may be."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < LOWEST_PYSPARK:
        lowest = ".".join(map(str, LOWEST_PYSPARK))
        reason = f"version {pyspark.__version__} is installed, and Millpond needs {lowest} or later"
        raise ConfigError("pyspark", reason, "the Python environment")


def is_connect(session: object) -> bool:
    """Whether it is a session of Spark Connect, which has no JVM and is no ``SparkSession``."""
    loaded = sys.modules.get("pyspark.sql.connect.session")
    return loaded is not None and isinstance(session, loaded.SparkSession)


def check_session(name: str, session: object) -> None:
    """Raise ArgumentTypeError unless an argument is a session, classic or of Spark Connect."""
    if not is_connect(session):
        check_type(name, session, SparkSession)


_PLACES = ("checkpoint.dir", "checkpoint.restore")


def spark_configuration(spark: SparkSession, *places: str) -> Config:
    """Millpond's configuration out of a session, whose settings stand over the context's.

    Args:
        spark: the session.
        places: what is read or written besides the directories that are configured.

    Raises:
        ConfigError: a key is unknown or a value wrong, or PySpark is too old.
    """
    require_pyspark()
    items = all_settings(spark)
    for key in _PLACES:
        path = items.get(SPARK_PREFIX + key)
        if path is not None:
            items[SPARK_PREFIX + key] = qualified(spark, key, path)
    chosen = (items.get(SPARK_PREFIX + key) for key in _PLACES)
    items.update(hadoop_settings(spark, (*chosen, *places)))
    return Config.from_spark_conf(items.items())


def recommended_settings(parallelism: int) -> dict[str, str]:
    """What we set for a parallelism, with the reasons.

    * As many state partitions as subtasks, or a few more where that spreads evenly: each costs
      about 0.1 s of a core per batch, however little is in it.
    * Arrow batches of 50,000 rows instead of 10,000: a fifth less time a batch was measured
      with 50,000 rows a subtask. Spark bounds them in bytes as well.
    """
    return {
        "spark.sql.shuffle.partitions": str(_spreading(parallelism)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        f"{SPARK_PREFIX}parallelism": str(parallelism),
    }


def _spreading(parallelism: int) -> int:
    """The smallest number of partitions, not below the parallelism, that labels spread over."""
    check_type("parallelism", parallelism, int)
    if not 1 <= parallelism <= MAX_KEY_GROUPS:
        raise ConfigError("parallelism", f"must be within 1..{MAX_KEY_GROUPS}", "configure(...)")
    return spreading(parallelism)
