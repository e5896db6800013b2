"""``configure``: the recommended settings of a Spark session."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from os import PathLike
from typing import TypeVar

from millpond.arguments import INT64, check_text, check_type, check_within, nearest
from millpond.config import Config
from millpond.config.option_sources import SPARK_PREFIX
from millpond.errors import ConfigError
from pyspark.sql import SparkSession

from millpond_spark.driver.watched_writer import watch_writer
from millpond_spark.session.internals import builder_settings, has_jvm
from millpond_spark.session.session import (
    is_connect,
    launch_settings,
    quick_files,
    recommended_settings,
    require_pyspark,
)

B = TypeVar("B")


def _dotted(name: str) -> str:
    known = {key.replace(".", "_").replace("-", "_"): key for key in Config.known_keys()}
    if name not in known:
        hint = nearest(name, known)
        raise ConfigError(name, "is not a known setting", "configure(...)", suggestion=hint)
    return known[name]


_SOCKET_DIRECTORY = "spark.python.unix.domain.socket.dir"
_SHORT = 60
"""The most bytes of the directory's path; a socket's path with its name has at most 107."""


def _unix_sockets(builder: SparkSession.Builder) -> str | None:
    """Return the directory for Unix sockets if this process will start the JVM and can use them.

    Over TCP each call of a Python worker waits 40 ms, and one of our batches has two calls: the JVM
    sends the call in small parts, and one part waits until Linux has confirmed the previous one.
    """
    chosen = builder_settings(builder)
    remote = "SPARK_REMOTE" in os.environ or "spark.remote" in chosen
    # A JVM that this process started without sockets cannot send accumulators through them.
    asked_for = os.environ.get("PYSPARK_UDS_MODE", "").lower() == "true"
    speaks_tcp = has_jvm() and not asked_for
    starts = "PYSPARK_GATEWAY_PORT" not in os.environ and not (remote or speaks_tcp)
    place = chosen.get(_SOCKET_DIRECTORY, tempfile.gettempdir())
    usable = hasattr(socket, "AF_UNIX") and starts and len(os.fsencode(place)) <= _SHORT
    return place if usable and _SOCKET_DIRECTORY not in launch_settings() else None


def configure(target: B, *, parallelism: int, **settings: object) -> B:
    """Set the recommended settings on a session or its builder, and return it.

    On a builder it also sets PYSPARK_PYTHON, if unset, so that workers run this Python; and, from
    Spark 4.1 on, PYSPARK_UDS_MODE, if unset, so that the JVM talks to them through Unix sockets in
    the directory for temporary files. Spark reads these variables when the context starts. A local
    session also writes the small files of Spark's checkpoints without a process for each rename,
    unless a manager of such files is set.

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
    for name, value in settings.items():
        check_type(name, value, str | int | float | bool | PathLike)
        if isinstance(value, int):
            check_within(name, int(value), *INT64)
        check_text(name, str(value))
        chosen[SPARK_PREFIX + _dotted(name)] = str(value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if isinstance(target, SparkSession.Builder):
        chosen.update(quick_files(target, chosen))
        if sockets := _unix_sockets(target):
            os.environ.setdefault("PYSPARK_UDS_MODE", "true")
            chosen[_SOCKET_DIRECTORY] = sockets
    setter = getattr(target, "config", None) or target.conf.set  # type: ignore[attr-defined]
    for key, value in chosen.items():
        setter(key, value)
    watch_writer(remote=is_connect(target))
    return target
