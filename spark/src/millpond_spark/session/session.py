"""Spark sessions, and Millpond's configuration in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyspark
from millpond.arguments import check_type
from millpond.config import Config
from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from pyspark.sql import SparkSession

from millpond_spark.session.internals import hadoop_configuration

LOWEST_PYSPARK = (4, 0)
HIGHEST_PANDAS = 2
FIXED_PYSPARK, STRICT_PYARROW = (4, 0, 5), 26
"""Earlier releases of PySpark pass floats to ``RecordBatch.slice``; this pyarrow refuses floats."""
_S3A = "fs.s3a."
_PLACES = ("checkpoint.dir", "checkpoint.restore")


def require_pyspark() -> None:
    """Raise ConfigError if PySpark is too old, or pandas or pyarrow too new for it."""
    environment = "the Python environment"
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < LOWEST_PYSPARK:
        lowest = ".".join(map(str, LOWEST_PYSPARK))
        reason = f"version {pyspark.__version__} is installed, and Millpond needs {lowest} or later"
        raise ConfigError("pyspark", reason, environment)
    if int(pd.__version__.partition(".")[0]) > HIGHEST_PANDAS:
        reason = (
            f"version {pd.__version__} is installed, in which missing strings are NaN instead of "
            "None; PySpark and Millpond do not support it yet. Install 'pandas<3'"
        )
        raise ConfigError("pandas", reason, environment)
    patch = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:3]))
    if patch < FIXED_PYSPARK and int(pa.__version__.partition(".")[0]) >= STRICT_PYARROW:
        reason = (
            f"version {pa.__version__} is installed, with which streams with state fail in PySpark "
            f"{pyspark.__version__}. Install 'pyarrow<26' or the newest patch release of PySpark"
        )
        raise ConfigError("pyarrow", reason, environment)


def is_connect(session: object) -> bool:
    """Return whether `session` is a session of Spark Connect, which has a class of its own."""
    loaded = sys.modules.get("pyspark.sql.connect.session")
    return loaded is not None and isinstance(session, loaded.SparkSession)


def check_session(name: str, session: object) -> None:
    """Raise ArgumentTypeError unless `session` is a session, classic or of Spark Connect.

    Args:
        name: the name of the user's argument, for the error.
        session: the value of the argument.
    """
    if not is_connect(session):
        check_type(name, session, SparkSession)


def spark_configuration(spark: SparkSession, *places: str) -> Config:
    """Return Millpond's configuration from the settings of a session.

    A relative ``checkpoint.dir`` or ``checkpoint.restore`` is made absolute. If one of them or of
    `places` is on S3, the configuration also has Hadoop's settings for S3.

    Args:
        spark: the session.
        places: other paths or URIs that the user's call reads or writes.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or PySpark is too old.
    """
    require_pyspark()
    items = dict(spark.conf.getAll)
    for key in _PLACES:
        path = items.get(SPARK_PREFIX + key)
        if path is not None:
            items[SPARK_PREFIX + key] = _qualified(spark, key, path)
    named = (*(items.get(SPARK_PREFIX + key, "") for key in _PLACES), *places)
    if any(place.startswith("s3a:") for place in named):
        hadoop = hadoop_configuration(spark)
        found = {} if hadoop is None else dict(hadoop.getPropsWithPrefix(_S3A))
        items.update({f"spark.hadoop.{_S3A}{name}": value for name, value in found.items()})
    return Config.from_spark_conf(items.items())


def _qualified(spark: SparkSession, key: str, path: str) -> str:
    """Return the absolute form of `path`, the value of the setting `key`, by Spark's rules.

    URIs and paths that begin with ``~`` are returned unchanged. Over Spark Connect all paths are
    returned unchanged, because the client does not know the server's working directory.

    Raises:
        ConfigError: `path` is relative, and Spark's default file system is not local.
    """
    if is_uri(path) or path.startswith("~") or not path.strip():
        return path
    hadoop: Any = hadoop_configuration(spark)
    if hadoop is None:
        return path
    default = str(hadoop.get("fs.defaultFS", "file:///"))
    if default.startswith("file:/"):
        return str(Path(path).absolute())
    root = default.rstrip("/")
    if not path.startswith("/"):
        reason = f"{path[:300]!r} is relative, and Spark's default file system is {root}"
        reason = f"{reason}; write {f'{root}/{path}'[:300]!r}, or file:/ and a path"
        raise ConfigError(f"{SPARK_PREFIX}{key}", reason, SPARK_SOURCE)
    return root + quote(path, safe="/@")


def is_uri(path: str) -> bool:
    """Return whether `path` begins with a scheme, such as ``s3a:``."""
    return ":" in path.partition("/")[0]
