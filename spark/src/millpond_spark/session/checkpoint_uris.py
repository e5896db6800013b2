"""Directories as a session means them: plain paths lie where Spark's own do, s3a: is Hadoop's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from pyspark.sql import SparkSession

_S3A = "fs.s3a."
_LOCAL = "file:/"


def hadoop_settings(spark: SparkSession, places: Iterable[str | None]) -> dict[str, str]:
    """Hadoop's settings of S3, as Spark's configuration writes them, if some place needs them."""
    hadoop = _hadoop(spark) if any((place or "").startswith("s3a:") for place in places) else None
    found = {} if hadoop is None else dict(hadoop.getPropsWithPrefix(_S3A))
    return {f"spark.hadoop.{_S3A}{name}": value for name, value in found.items()}


def qualified(spark: SparkSession, key: str, path: str) -> str:
    """A path of the configuration in full: relative to the working directory, as Spark takes it.

    URIs, and paths that begin with ``~``, are returned as they are; so are all paths where Spark
    runs in another process, whose working directory is not known here.

    Raises:
        ConfigError: it is relative, and Spark's default file system is not local.
    """
    hadoop = None if is_uri(path) or path.startswith("~") or not path.strip() else _hadoop(spark)
    if hadoop is None:
        return path
    default = str(hadoop.get("fs.defaultFS", "file:///"))
    if default.startswith(_LOCAL):
        return str(Path(path).absolute())
    root = default.rstrip("/")
    if not path.startswith("/"):
        reason = f"{path[:300]!r} is relative, and Spark's default file system is {root}"
        reason = f"{reason}; write {f'{root}/{path}'[:300]!r}, or file:/ and a path"
        raise ConfigError(f"{SPARK_PREFIX}{key}", reason, SPARK_SOURCE)
    return root + quote(path, safe="/@")


def is_uri(path: str) -> bool:
    """Whether a place is named with its scheme."""
    return ":" in path.partition("/")[0]


def _hadoop(spark: SparkSession) -> Any:
    """Hadoop's configuration in this session; None where Spark's JVM is elsewhere."""
    session = getattr(spark, "_jsparkSession", None)
    return None if session is None else session.sessionState().newHadoopConf()
