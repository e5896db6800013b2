"""Where Spark's reader of state finds a query's checkpoint, whatever characters its path has.

That reader encodes a path as a URI does, and takes the result for a path again: with a blank, a
``%`` or a ``#`` in it there is no such directory. A mount table of Hadoop's shows a directory of
any file system under another name, on the executors too.
"""

from __future__ import annotations

import hashlib
import re

from millpond.inspection.spark_checkpoint import METADATA
from pyspark.sql import DataFrame, SparkSession

__all__ = ["encoded_uri", "query_metadata", "state_place"]

_SCHEME = "millpond"
"""One of our own, for ``viewfs`` fails at such a directory where it is read by ``FileContext``."""

_WILD = re.compile(r"[*?\[\]{},\\]")


def query_metadata(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The lines of a checkpoint's file ``metadata``; Spark looks for it at once."""
    literally = _WILD.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    return spark.read.text(f"{literally}/{METADATA}")


def encoded_uri(spark: SparkSession, checkpoint: str) -> str:
    """A checkpoint's URI as our storages read it; in Spark's paths a ``%`` is itself."""
    (file,) = query_metadata(spark, checkpoint).inputFiles()
    return file.removesuffix(f"/{METADATA}")


def state_place(spark: SparkSession, checkpoint: str) -> str:
    """The path of a checkpoint that Spark's readers of state are to be given.

    It is the checkpoint's own where that has no such character, else one of a mount table that
    the session's configuration then has.
    """
    encoded = encoded_uri(spark, checkpoint)
    if "%" not in encoded:
        return checkpoint
    table = hashlib.sha256(encoded.encode()).hexdigest()[:16]
    views = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    spark.conf.set(f"fs.{_SCHEME}.impl", views)
    spark.conf.set(f"fs.viewfs.mounttable.{table}.link./checkpoint", encoded)
    return f"{_SCHEME}://{table}/checkpoint"
