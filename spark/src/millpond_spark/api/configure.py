"""``configure``: the recommended settings of a Spark session."""

from __future__ import annotations

import os
import sys
import tempfile
from os import PathLike
from typing import TypeVar

from millpond.arguments import INT64, check_text, check_type, check_within, nearest
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS, spreading
from pyspark.sql import SparkSession

from millpond_spark.driver.query_checks import watch_writer
from millpond_spark.session import internals
from millpond_spark.session.session import is_connect, require_pyspark

B = TypeVar("B")


_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_SHORT = 60
"""The largest length in bytes of the directory's path. A socket's path has at most 107 bytes."""

FILES = "spark.hadoop.fs.file.impl"
"""The setting that names Hadoop's class for local files."""


def recommended_settings(parallelism: int) -> dict[str, str]:
    """Return the recommended Spark settings for operators of `parallelism` subtasks.

    The settings are:

    * The number of shuffle partitions. It is `parallelism`, or slightly more if the subtasks would
      not spread evenly. Each partition costs about 0.1 s of a core per batch, even with few rows.
    * Arrow batches of 50,000 rows instead of 10,000. A micro-batch with 50,000 rows per subtask
      then took a fifth less time. Spark also limits the bytes of an Arrow batch.
    * Millpond's own setting ``parallelism``.
    """
    check_type("parallelism", parallelism, int)
    if not 1 <= parallelism <= MAX_KEY_GROUPS:
        raise ConfigError("parallelism", f"must be within 1..{MAX_KEY_GROUPS}", "configure(...)")
    return {
        "spark.sql.shuffle.partitions": str(spreading(parallelism)),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        f"{SPARK_PREFIX}parallelism": str(parallelism),
    }


def _settings_of_new_jvm(builder: SparkSession.Builder) -> dict[str, str]:
    """Return settings that make the sessions of `builder` faster.

    The result is empty if the process has a JVM already, or if the session is of Spark Connect. The
    settings do not replace settings of the user. There are two of them:

    * Unix sockets between the JVM and the Python workers. Over TCP each call of a worker takes
      40 ms longer, and Millpond needs two calls per micro-batch. The JVM sends a call in small
      parts, and over TCP a part waits until Linux has confirmed the previous part.
    * For a local session: the checkpoint file manager that renames files by a system call. Spark's
      default manager renames through Hadoop's ``FileContext``. On a local disk ``FileContext``
      starts the program ``readlink`` eight times per file, a quarter of the time of a micro-batch.
      Both managers write equal files.

    If Spark runs a micro-batch again, the second attempt must replace files of the first attempt.
    With the faster manager this works only on Hadoop's own local file system, so that file system
    is set too. A query whose checkpoint is elsewhere gets the default manager when it starts.
    """
    known = internals.builder_settings(builder)
    is_remote = "SPARK_REMOTE" in os.environ or "spark.remote" in known
    if is_remote or internals.has_jvm() or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    settings = {}
    place = known.get(_SOCKET_DIRECTORY, tempfile.gettempdir())
    if len(os.fsencode(place)) <= _SHORT:
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
        settings[_SOCKET_DIRECTORY] = place
    is_local = known.get("spark.master", "").startswith("local")
    if is_local and not known.keys() & {internals.FILE_MANAGER, FILES}:
        settings[internals.FILE_MANAGER] = internals.quick_file_manager()
        settings[FILES] = internals.HADOOPS_FILES[0]
    return settings


def configure(target: B, *, parallelism: int, **settings: object) -> B:
    """Set the recommended settings on `target`, and return `target`.

    The environment variable PYSPARK_PYTHON, if unset, is set to this Python, so that workers run
    it.

    On a builder that will start a JVM, two more settings make the session faster. Unix sockets
    connect the JVM with the workers: PYSPARK_UDS_MODE is set, if unset, and has an effect from
    Spark 4.1 on. A local session renames the files of Spark's checkpoints without starting a
    process for each file, unless the user has set a checkpoint file manager or a local file system.

    Args:
        target: a ``SparkSession`` or ``SparkSession.builder``.
        parallelism: the number of subtasks.
        settings: Millpond's settings, with ``_`` for ``.`` and ``-``. For example,
            ``state_backend="rocksdb"`` sets ``spark.millpond.state.backend``, and
            ``checkpoint_dir="…"`` sets ``spark.millpond.checkpoint.dir``.

    Raises:
        ConfigError: a setting is unknown, or `parallelism` is out of bounds.
        ArgumentTypeError: the value of a setting is not a string, a number, a bool or a path.
        ArgumentValueError: a number is beyond 64 bits, or a string has a lone surrogate.
    """
    require_pyspark()
    if not is_connect(target):
        check_type("target", target, SparkSession | SparkSession.Builder)
    chosen = recommended_settings(parallelism)
    known = {key.replace(".", "_").replace("-", "_"): key for key in Config.known_keys()}
    for name, value in settings.items():
        if name not in known:
            hint = nearest(name, known)
            raise ConfigError(name, "is not a known setting", "configure(...)", suggestion=hint)
        check_type(name, value, str | int | float | bool | PathLike)
        if isinstance(value, int):
            check_within(name, int(value), *INT64)
        check_text(name, str(value))
        chosen[SPARK_PREFIX + known[name]] = str(value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if isinstance(target, SparkSession.Builder):
        chosen |= _settings_of_new_jvm(target)
    setter = getattr(target, "config", None) or target.conf.set  # type: ignore[attr-defined]
    for key, value in chosen.items():
        setter(key, value)
    watch_writer(remote=is_connect(target))
    return target
