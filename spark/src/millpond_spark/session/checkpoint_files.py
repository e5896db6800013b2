"""Spark's small files of a checkpoint on a local disk, written without a process a rename."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyspark
from millpond.config.option_sources import SPARK_PREFIX
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millpond_spark.session.checkpoint_uris import is_uri
from millpond_spark.session.spark_conf import all_settings

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FILES = "spark.hadoop.fs.file.impl"
_REPLACING = tuple(
    f"org.apache.hadoop.fs.{name}" for name in ("LocalFileSystem", "RawLocalFileSystem")
)
_ROOT = "spark.hadoop.fs.defaultFS"
_PLACES = (_ROOT, f"{SPARK_PREFIX}checkpoint.dir")


def local_files(
    target: SparkSession | SparkSession.Builder, chosen: dict[str, str]
) -> dict[str, str]:
    """The settings under which Spark writes a local checkpoint's files quickly; {} elsewhere.

    By default Spark renames each file through Hadoop's ``FileContext``, which on a local disk
    starts ``readlink`` eight times a file; Spark's other manager renames by a system call. Both
    write the same files, with checksums, so a checkpoint goes on under either. Either starts
    ``chmod`` twice a file, where Hadoop has no native library: once for the checksum. Hadoop's
    file system without checksums does not, but Spark's RocksDB provider fails on it.

    A batch that is run again must replace the pointers that its first attempt has committed. On
    HDFS and object stores the other manager leaves what is there and only logs it; so it does on a
    local disk by the file system that Spark takes there, which is Hive's. So it is chosen for
    Hadoop's own alone, and that is chosen with it where no context runs yet.

    Args:
        target: a session or its builder.
        chosen: what else is set on it.
    """
    known = {**_known(target), **chosen}
    launched = launch_settings()
    set_already = any(key in launched for key in (MANAGER, FILES, _ROOT)) or MANAGER in known
    elsewhere = any(_is_remote(known.get(place, "")) for place in _PLACES)
    here = known.get("spark.master", "").startswith("local") and not elsewhere
    if set_already or not here or "HADOOP_CONF_DIR" in os.environ:
        return {}
    running = SparkContext._active_spark_context  # noqa: SLF001 - told nowhere else
    if running is None:
        files = known.get(FILES, _REPLACING[0])
        usable = files in _REPLACING and _can_have(files)
        return {MANAGER: quick_manager(), FILES: files} if usable else {}
    jvm_context: Any = running._jsc  # noqa: SLF001 - the only way
    return {MANAGER: quick_manager()} if _replaces(jvm_context.hadoopConfiguration()) else {}


def _can_have(files: str) -> bool:
    """Whether a new context gets a file system: a JVM keeps what a former context has opened."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - the only way
    if jvm is None:
        return True
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set(FILES.removeprefix("spark.hadoop."), files)
    return _replaces(configuration)


def _replaces(hadoop_configuration: Any) -> bool:
    """Whether a rename on the local disk replaces what is there, by the file system in use."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - the only way
    files = jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(hadoop_configuration)
    return files.getClass().getName() in _REPLACING


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
        return {**all_settings(target), **master}
    there = SparkSession._instantiatedSession  # noqa: SLF001 - the same
    set_there = {} if running is None or there is None else all_settings(there)
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
    """Have a starting query write its state as Spark prefers, unless the quick way is right.

    It is where its checkpoint lies on a local disk, and a rename replaces what is there.
    """
    session = stream.sparkSessionForStream()
    conf = session.conf()
    if conf.get(MANAGER, "") != quick_manager():
        return
    is_local = str(stream.resolvedCheckpointRoot()).startswith("file:")
    if not is_local or not _replaces(session.sparkContext().hadoopConfiguration()):
        conf.unset(MANAGER)
