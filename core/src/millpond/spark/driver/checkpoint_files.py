"""Spark's small files of a checkpoint on a local disk, written without starting processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millpond.origins import SPARK_PREFIX
from millpond.spark.driver.places import is_uri

__all__ = ["MANAGER", "launch_settings", "leave_unless_local", "local_files", "quick_manager"]

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_ROOT = "spark.hadoop.fs.defaultFS"
_PLACES = (_ROOT, f"{SPARK_PREFIX}checkpoint.dir")


def local_files(
    target: SparkSession | SparkSession.Builder, chosen: dict[str, str]
) -> dict[str, str]:
    """The setting under which Spark writes a local checkpoint's files quickly; {} elsewhere.

    By default Spark renames each file through Hadoop's ``FileContext``, which on a local disk
    starts ``readlink`` eight times a file; Spark's other manager renames by a system call. Both
    write the same files, with checksums, so a checkpoint goes on under either. On HDFS and object
    stores the other one would not replace a file that is there: Spark's default stays there.

    Args:
        target: a session or its builder.
        chosen: what else is set on it.
    """
    known = {**_known(target), **chosen}
    launched = launch_settings()
    set_already = MANAGER in known or MANAGER in launched or _ROOT in launched
    elsewhere = any(_is_remote(known.get(place, "")) for place in _PLACES)
    here = known.get("spark.master", "").startswith("local") and not elsewhere
    if set_already or not here or "HADOOP_CONF_DIR" in os.environ:
        return {}
    return {MANAGER: quick_manager()}


def quick_manager() -> str:
    """The class of that manager in this version of PySpark."""
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def _known(target: SparkSession | SparkSession.Builder) -> dict[str, str]:
    """What a session is set to, or will be; a running context's settings stand over a builder's."""
    running = SparkContext._active_spark_context  # noqa: SLF001 - told nowhere else
    master = {} if running is None else {"spark.master": running.master or ""}
    if isinstance(target, SparkSession):
        return {**target.conf.getAll, **master}
    there = SparkSession._instantiatedSession  # noqa: SLF001 - the same
    set_there = {} if running is None or there is None else there.conf.getAll
    return {**getattr(target, "_options", {}), **set_there, **master}


def launch_settings() -> str:
    """The text of what spark-submit reads besides the builder's settings."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")
    file = folder / "spark-defaults.conf"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return text + os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def _is_remote(place: str) -> bool:
    return is_uri(place) and not place.startswith("file:")


def leave_unless_local(stream: Any) -> None:
    """Have a starting query whose checkpoint is not on a local disk write it as Spark prefers."""
    conf = stream.sparkSessionForStream().conf()
    is_local = str(stream.resolvedCheckpointRoot()).startswith("file:")
    if not is_local and conf.get(MANAGER, "") == quick_manager():
        conf.unset(MANAGER)
