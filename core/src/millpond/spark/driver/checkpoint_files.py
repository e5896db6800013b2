"""Spark's small files of a checkpoint on a local disk, written without starting processes."""

from __future__ import annotations

import os
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millpond.origins import SPARK_PREFIX

__all__ = ["leave_unless_local", "local_files"]

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_PLACES = ("spark.hadoop.fs.defaultFS", f"{SPARK_PREFIX}checkpoint.dir")


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
    elsewhere = any(_is_remote(known.get(place, "")) for place in _PLACES)
    here = known.get("spark.master", "").startswith("local") and not elsewhere
    if _MANAGER in known or not here or "HADOOP_CONF_DIR" in os.environ:
        return {}
    package = "org.apache.spark.sql.execution.streaming"
    if not pyspark.__version__.startswith("4.0."):
        package += ".checkpointing"
    return {_MANAGER: f"{package}.FileSystemBasedCheckpointFileManager"}


def _known(target: SparkSession | SparkSession.Builder) -> dict[str, str]:
    """What a session is set to, or will be, as far as this process can tell."""
    if isinstance(target, SparkSession):
        return {"spark.master": target.sparkContext.master or "", **target.conf.getAll}
    running = SparkContext._active_spark_context  # noqa: SLF001 - told nowhere else
    before = {} if running is None else {"spark.master": running.master or ""}
    return {**before, **getattr(target, "_options", {})}


def _is_remote(place: str) -> bool:
    return ":" in place.partition("/")[0] and not place.startswith("file:")


def leave_unless_local(stream: Any) -> None:
    """Have a starting query whose checkpoint is not on a local disk write it as Spark prefers."""
    if not str(stream.resolvedCheckpointRoot()).startswith("file:"):
        stream.sparkSessionForStream().conf().unset(_MANAGER)
