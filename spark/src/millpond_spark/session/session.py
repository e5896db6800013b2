"""Spark sessions: Millpond's configuration in them, and the settings that we recommend."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyspark
from millpond.arguments import check_type
from millpond.config import Config
from millpond.config.config import SPARK_SOURCE
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS
from pyspark.sql import SparkSession

from millpond_spark.session.group_labels import spreading
from millpond_spark.session.internals import (
    HADOOPS_FILES,
    builder_settings,
    hadoop_configuration,
    has_jvm,
    query_settings,
    quick_file_manager,
    replaces_files,
)

LOWEST_PYSPARK = (4, 0)
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FILES = "spark.hadoop.fs.file.impl"
_DEFAULT_FILES = "spark.hadoop.fs.defaultFS"
_S3A = "fs.s3a."
_PLACES = ("checkpoint.dir", "checkpoint.restore")


def require_pyspark() -> None:
    """Raise ConfigError if PySpark is older than the lowest version that we declare."""
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < LOWEST_PYSPARK:
        lowest = ".".join(map(str, LOWEST_PYSPARK))
        reason = f"version {pyspark.__version__} is installed, and Millpond needs {lowest} or later"
        raise ConfigError("pyspark", reason, "the Python environment")


def is_connect(session: object) -> bool:
    """Return whether it is a session of Spark Connect, which is no ``SparkSession``."""
    loaded = sys.modules.get("pyspark.sql.connect.session")
    return loaded is not None and isinstance(session, loaded.SparkSession)


def check_session(name: str, session: object) -> None:
    """Raise ArgumentTypeError unless an argument is a session, classic or of Spark Connect."""
    if not is_connect(session):
        check_type(name, session, SparkSession)


def spark_configuration(spark: SparkSession, *places: str) -> Config:
    """Return Millpond's configuration in a session, whose settings override the context's.

    Args:
        spark: the session.
        places: directories that are read or written next to the configured ones.

    Raises:
        ConfigError: a key is unknown or a value wrong, or PySpark is too old.
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
    """Return a configured path in full, relative to the working directory as Spark takes it.

    URIs, and paths that begin with ``~``, are returned as they are. So are all paths over Spark
    Connect, as the server's working directory is not known here.

    Raises:
        ConfigError: the path is relative, and Spark's default file system is not local.
    """
    if _is_uri(path) or path.startswith("~") or not path.strip():
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


def _is_uri(path: str) -> bool:
    return ":" in path.partition("/")[0]


def recommended_settings(parallelism: int) -> dict[str, str]:
    """Return the settings for a parallelism.

    * As many state partitions as subtasks, or a few more if that spreads evenly: each costs
      about 0.1 s of a core per batch, however little is in it.
    * Arrow batches of 50,000 rows instead of 10,000: a batch with 50,000 rows a subtask took a
      fifth less time. Spark bounds them in bytes as well.
    """
    check_type("parallelism", parallelism, int)
    if not 1 <= parallelism <= MAX_KEY_GROUPS:
        raise ConfigError("parallelism", f"must be within 1..{MAX_KEY_GROUPS}", "configure(...)")
    return {
        "spark.sql.shuffle.partitions": str(spreading(parallelism)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        f"{SPARK_PREFIX}parallelism": str(parallelism),
    }


def quick_files(builder: SparkSession.Builder, chosen: dict[str, str]) -> dict[str, str]:
    """Return the settings with which a local session writes checkpoint files quickly, or none.

    By default Spark renames each file through Hadoop's ``FileContext``, which starts ``readlink``
    eight times a file on a local disk: a quarter of the time of a batch. Spark's other manager
    renames by a system call. Both write the same files, so a checkpoint can change the manager.

    A batch that is run again must replace the pointers of its first attempt. The other manager
    does so only on a local disk with Hadoop's own file system, which is set with it. A JVM keeps
    the file system that it has opened, so nothing is set once one runs.

    Args:
        builder: the session's builder.
        chosen: the settings that are set with these.
    """
    known = {**builder_settings(builder), **chosen}
    launched = launch_settings()
    fixed = any(key in launched or key in known for key in (MANAGER, FILES, _DEFAULT_FILES))
    snapshots = known.get(f"{SPARK_PREFIX}checkpoint.dir", "")
    is_remote = _is_uri(snapshots) and not snapshots.startswith("file:")
    is_local = known.get("spark.master", "").startswith("local") and not is_remote
    if fixed or not is_local or has_jvm() or "HADOOP_CONF_DIR" in os.environ:
        return {}
    return {MANAGER: quick_file_manager(), FILES: HADOOPS_FILES[0]}


def leave_quick_files(stream: Any) -> None:
    """Make a starting query write its state as Spark prefers, unless the quick way is right."""
    settings = query_settings(stream)
    if settings.get(MANAGER, "") == quick_file_manager() and not replaces_files(stream):
        settings.unset(MANAGER)


def launch_settings() -> str:
    """Return the text of the settings that spark-submit reads in addition to the builder's."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    file = folder / "spark-defaults.conf"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return text + os.environ.get("PYSPARK_SUBMIT_ARGS", "")
