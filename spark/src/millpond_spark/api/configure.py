"""``configure``: the recommended settings of a Spark session."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from os import PathLike
from pathlib import Path
from typing import TypeVar

import pyspark
from millpond.arguments import INT64, check_text, check_type, check_within, nearest
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS
from pyspark.sql import SparkSession

from millpond_spark.driver.query_checks import watch_writer
from millpond_spark.session import internals
from millpond_spark.session.group_labels import spreading
from millpond_spark.session.session import is_connect, is_uri, require_pyspark

B = TypeVar("B")


_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_SHORT = 60
"""The largest length of the directory's path in bytes; a socket's whole path has at most 107."""

FILES = "spark.hadoop.fs.file.impl"
"""The setting that names Hadoop's class for local files."""


def _unix_sockets(builder: SparkSession.Builder) -> str | None:
    """Return the directory for Unix sockets, or None if the session cannot use them.

    Over TCP each call of a Python worker waits 40 ms, and a batch of ours has two calls: the JVM
    sends the call in small parts, and one part waits until Linux has confirmed the previous one.
    """
    chosen = internals.builder_settings(builder)
    remote = "SPARK_REMOTE" in os.environ or "spark.remote" in chosen
    # A JVM that this process started without sockets cannot send accumulators through them.
    asked_for = os.environ.get("PYSPARK_UDS_MODE", "").lower() == "true"
    speaks_tcp = internals.has_jvm() and not asked_for
    starts = "PYSPARK_GATEWAY_PORT" not in os.environ and not (remote or speaks_tcp)
    place = chosen.get(_SOCKET_DIRECTORY, tempfile.gettempdir())
    usable = hasattr(socket, "AF_UNIX") and starts and len(os.fsencode(place)) <= _SHORT
    return place if usable and _SOCKET_DIRECTORY not in _launch_settings() else None


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


def _quick_files(builder: SparkSession.Builder, chosen: dict[str, str]) -> dict[str, str]:
    """Return the settings with which a local session writes checkpoint files quickly.

    The result is empty if the session is not local, if it has other settings for files, or if this
    process already runs a JVM.

    By default Spark renames each file through Hadoop's ``FileContext``, which starts ``readlink``
    eight times a file on a local disk: a quarter of the time of a batch. Spark's other manager
    renames by a system call. Both write the same files, so a checkpoint works with either.

    A batch that is run again must replace the pointers of its first attempt. The other manager does
    so only on a local disk with Hadoop's own file system, so the result also sets that file system.
    A JVM keeps the file system that it has opened, so a running JVM would ignore the setting.

    Args:
        builder: the session's builder.
        chosen: the other settings that ``configure`` is going to set.
    """
    known = {**internals.builder_settings(builder), **chosen}
    launched = _launch_settings()
    fixed = any(
        key in launched or key in known
        for key in (internals.FILE_MANAGER, FILES, "spark.hadoop.fs.defaultFS")
    )
    snapshots = known.get(f"{SPARK_PREFIX}checkpoint.dir", "")
    is_remote = is_uri(snapshots) and not snapshots.startswith("file:")
    is_local = known.get("spark.master", "").startswith("local") and not is_remote
    if fixed or not is_local or internals.has_jvm() or "HADOOP_CONF_DIR" in os.environ:
        return {}
    return {
        internals.FILE_MANAGER: internals.quick_file_manager(),
        FILES: internals.HADOOPS_FILES[0],
    }


def _launch_settings() -> str:
    """Return the settings of spark-defaults.conf and the arguments of spark-submit as one text."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    file = folder / "spark-defaults.conf"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return text + os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def configure(target: B, *, parallelism: int, **settings: object) -> B:
    """Set the recommended settings on a session or its builder, and return it.

    On a builder it also sets PYSPARK_PYTHON, if unset, so that workers run this Python; and, from
    Spark 4.1 on, PYSPARK_UDS_MODE, if unset, so that the JVM talks to them through Unix sockets in
    the directory for temporary files. Spark reads these variables when the context starts. A local
    session also writes the small files of Spark's checkpoints without starting a process for each
    rename, unless the user has set a manager of such files or a file system.

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
        chosen.update(_quick_files(target, chosen))
        if sockets := _unix_sockets(target):
            os.environ.setdefault("PYSPARK_UDS_MODE", "true")
            chosen[_SOCKET_DIRECTORY] = sockets
    setter = getattr(target, "config", None) or target.conf.set  # type: ignore[attr-defined]
    for key, value in chosen.items():
        setter(key, value)
    watch_writer(remote=is_connect(target))
    return target
