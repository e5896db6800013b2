"""Spark sessions: reading Millpond's configuration, and the settings we recommend."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from os import PathLike
from typing import TypeVar

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millpond.arguments import INT64, check_text, check_type, check_within, nearest
from millpond.config import Config
from millpond.errors import ConfigError
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.origins import SPARK_PREFIX
from millpond.spark.driver.checkpoint_files import launch_settings, local_files
from millpond.spark.driver.group_labels import spreading
from millpond.spark.driver.places import hadoop_settings, qualified
from millpond.spark.driver.settings import all_settings

__all__ = ["check_session", "configure", "is_connect", "spark_configuration"]

B = TypeVar("B")
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


def _dotted(name: str) -> str:
    known = {key.replace(".", "_").replace("-", "_"): key for key in Config.known_keys()}
    if name not in known:
        hint = nearest(name, known)
        raise ConfigError(name, "is not a known setting", "configure(...)", suggestion=hint)
    return known[name]


_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_SHORT = 60
"""So many bytes may a directory's path have: with its name, a socket's has 107 at most."""


def _unix_sockets(builder: SparkSession.Builder) -> str | None:
    """The directory for Unix sockets, where this process would start the JVM and they can be used.

    Through TCP each call of a Python worker waits 40 ms, and a batch of ours has two: the JVM sends
    the call in small parts, of which one waits until Linux has confirmed the one before.
    """
    chosen = getattr(builder, "_options", {})
    remote = "SPARK_REMOTE" in os.environ or "spark.remote" in chosen
    # A JVM of this process that was started without sockets cannot tell accumulators through them.
    asked_for = os.environ.get("PYSPARK_UDS_MODE", "").lower() == "true"
    speaks_tcp = SparkContext._gateway is not None and not asked_for  # noqa: SLF001 - told nowhere else
    starts = "PYSPARK_GATEWAY_PORT" not in os.environ and not (remote or speaks_tcp)
    place = chosen.get(_SOCKET_DIRECTORY, tempfile.gettempdir())
    usable = hasattr(socket, "AF_UNIX") and starts and len(os.fsencode(place)) <= _SHORT
    return place if usable and _SOCKET_DIRECTORY not in launch_settings() else None


def configure(target: B, *, parallelism: int, **settings: object) -> B:
    """Set what Millpond recommends on a session or its builder; returns the same object.

    On a builder it also makes the workers run this Python, unless PYSPARK_PYTHON says otherwise,
    and a JVM that this process starts talk to them through Unix sockets in the directory for
    temporary files, unless PYSPARK_UDS_MODE says otherwise (Spark 4.1 and later); Spark reads these
    variables when the context is made. A session that is all local writes the small files of
    Spark's checkpoints without a process for each rename, unless a manager of such files is set.

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
    require_pyspark()
    if not is_connect(target):
        check_type("target", target, SparkSession | SparkSession.Builder)
    chosen = recommended_settings(parallelism)
    for name, value in settings.items():
        check_type(name, value, str | int | float | bool | PathLike)
        if isinstance(value, int):
            check_within(name, int(value), *INT64)
        check_text(name, str(value))
        chosen[SPARK_PREFIX + _dotted(name)] = str(value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if isinstance(target, SparkSession.Builder) and (sockets := _unix_sockets(target)):
        os.environ.setdefault("PYSPARK_UDS_MODE", "true")
        chosen[_SOCKET_DIRECTORY] = sockets
    if not is_connect(target):
        chosen.update(local_files(target, chosen))  # type: ignore[arg-type]  # checked above
    setter = getattr(target, "config", None) or target.conf.set  # type: ignore[attr-defined]
    for key, value in chosen.items():
        setter(key, value)
    _watch_writers(remote=is_connect(target))
    return target


def _watch_writers(*, remote: bool) -> None:
    from millpond.spark.driver.several_operators import watch_starts  # noqa: PLC0415 - a circle

    watch_starts(remote=remote)
