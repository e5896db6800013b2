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
from millpond.keygroups import MAX_KEY_GROUPS
from pyspark.sql import SparkSession

from millpond_spark.driver.query_checks import watch_writer
from millpond_spark.session import internals
from millpond_spark.session.group_labels import spreading
from millpond_spark.session.session import is_connect, require_pyspark

B = TypeVar("B")


_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_SHORT = 60
"""The largest length of the directory's path in bytes; a socket's whole path has at most 107."""

FILES = "spark.hadoop.fs.file.impl"
"""The setting that names Hadoop's class for local files."""


def recommended_settings(parallelism: int) -> dict[str, str]:
    """Return the settings for a parallelism.

    * As many state partitions as subtasks, or a few more if that spreads evenly: a partition costs
      about 0.1 s of a core per batch, even if it has few rows.
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


def _settings_of_new_jvm(builder: SparkSession.Builder) -> dict[str, str]:
    """Return settings that make a session faster, if its builder will start a JVM.

    They do not replace the user's settings.

    * Unix sockets between the JVM and its Python workers. Over TCP each call of a worker waits
      40 ms, and a batch of ours has two calls: the JVM sends the call in small parts, and one part
      waits until Linux has confirmed the previous one.
    * For a local session, Spark's manager of checkpoint files that renames by a system call. The
      default one renames through Hadoop's ``FileContext``, which starts ``readlink`` eight times a
      file on a local disk: a quarter of the time of a batch. Both write the same files.

    A batch that is run again must replace the pointers of its first attempt. The other manager does
    so only with Hadoop's own local file system, which is therefore set too. At its start a query
    with a checkpoint elsewhere goes back to the default manager.
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
    """Set the recommended settings on a session or its builder, and return it.

    On a builder it also sets PYSPARK_PYTHON, if unset, so that workers run this Python; and, from
    Spark 4.1 on, PYSPARK_UDS_MODE, if unset, so that the JVM talks to them through Unix sockets in
    the directory for temporary files. Spark reads these variables when the context starts. A local
    session also writes the small files of Spark's checkpoints without starting a process for each
    rename, unless the user has set a manager of such files or a local file system.

    Args:
        target: a ``SparkSession`` or ``SparkSession.builder``.
        parallelism: the number of subtasks.
        settings: Millpond's own, with ``_`` for ``.`` and ``-``: ``state_backend="rocksdb"``
            sets ``spark.millpond.state.backend``, ``checkpoint_dir=…`` the directory of snapshots.

    Raises:
        ConfigError: a setting is unknown, or the parallelism out of bounds.
        ArgumentTypeError: a setting is neither a string, a number, True, False nor a path.
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
