"""State partitions: Spark fixes their number at a query's first start, and each has its cost."""

from __future__ import annotations

import logging
from typing import Any

_LOG = logging.getLogger("millpond.spark")
_FACTOR = 2
"""So many partitions a subtask are a matter of taste, or leave room to grow."""


def warn_of_partitions(stream: Any, query: str, parallelism: int) -> None:
    """Say at a query's first start if it is about to get many partitions for its subtasks.

    Args:
        stream: Spark's query, on the JVM's side.
        query: its id.
        parallelism: the most subtasks that one of its operators has.
    """
    partitions = int(stream.sparkSessionForStream().conf().get("spark.sql.shuffle.partitions"))
    begun = not stream.commitLog().getLatestBatchId().isEmpty()
    if begun or partitions <= _FACTOR * parallelism:
        return
    _LOG.warning(
        "query %s begins with %d state partitions for %d subtasks. Each costs about 0.1 s of a "
        "core in every batch, here together %.0f s, however little is in it; the result is the "
        "same. Spark fixes their number at the first start: call "
        "millpond.spark.configure(spark, parallelism=%d) before it, or set "
        "spark.sql.shuffle.partitions, and begin with a new checkpointLocation",
        query,
        partitions,
        parallelism,
        partitions * 0.1,
        parallelism,
    )
