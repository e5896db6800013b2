"""``millpond rescale``: another number of subtasks for a stopped query."""

from __future__ import annotations

import click
from millpond.keygroups import MAX_KEY_GROUPS

from millpond_cli.loading import tool_limits
from millpond_cli.output import as_json_option, show
from millpond_cli.spark import local_session
from millpond_cli.targets import (
    naming_directory,
    place_text,
    query_checkpoint,
    snapshots_option,
    source,
    spark_path,
)


@click.command()
@click.argument("checkpoint", type=place_text)
@snapshots_option
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_KEY_GROUPS),
    required=True,
    help="The new number of subtasks.",
)
@as_json_option
def rescale(checkpoint: str, snapshots: str, parallelism: int, *, as_json: bool) -> None:
    """Divide the state of a stopped query among another number of subtasks.

    CHECKPOINT is the checkpointLocation of a Spark query. A query of a classic session needs no
    such step: it does this itself when it starts. Over Spark Connect it is needed before the
    query starts with another parallelism, or with operators in other places.
    """
    query_checkpoint(checkpoint)
    storage = source(snapshots).storage
    with local_session(checkpoint) as spark, naming_directory(checkpoint):
        from millpond_spark.driver.rescaling import rescale_operators  # noqa: PLC0415 - an extra

        place = spark_path(checkpoint)
        layouts = rescale_operators(spark, place, parallelism, storage, tool_limits())
    rows = [
        {
            "operator": uid,
            "subtasks": layout.parallelism,
            "after_batch": layout.settled_after,
            "sources": len(layout.sources),
        }
        for uid, layout in layouts.items()
    ]
    show(rows, as_json=as_json, empty="The query has no operators.")
