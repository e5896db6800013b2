"""``millpond savepoint``: creating, sealing and re-keying savepoints."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from millpond.checkpoint import rekey_savepoint, seal_savepoint
from millpond.checkpoint.inspect import open_stored
from millpond.checkpoint.savepoint import SavepointHandle, read_savepoint
from millpond.checkpoint.savepoint.collect import collect_savepoint
from millpond.cli.output import as_json_option, show
from millpond.cli.plugins import tool_registry
from millpond.errors import ConfigError
from millpond.plugins import PluginRegistry

__all__ = ["savepoint"]

_ERR = Console(stderr=True)


@click.group()
def savepoint() -> None:
    """Write, seal and re-key savepoints."""


@savepoint.command()
@click.argument("checkpoint")
@click.argument("target")
@click.option("--snapshots", help="What spark.millpond.checkpoint.dir names.", required=True)
@click.option("--batch", type=int, help="A batch that Spark still has; the last by default.")
@as_json_option
def create(
    checkpoint: str, target: str, snapshots: str, batch: int | None, *, as_json: bool
) -> None:
    """Write a savepoint of a Spark query, running or stopped, from its CHECKPOINT location.

    Needs Spark, which holds the pointers to the committed snapshots. Where CHECKPOINT and the
    snapshots are the same directory, written without Spark, it needs none.
    """
    registry = tool_registry()
    place, where = registry.savepoint(target), registry.savepoint(checkpoint)
    if where == registry.savepoint(snapshots):
        if batch is not None:
            reason = "is for Spark queries; this directory has no batches"
            raise ConfigError("--batch", reason, "millpond savepoint create")
        handles: Any = {each.uid: each.parts for each in open_stored(where, registry)}
    else:
        handles = _from_spark(checkpoint, snapshots, batch, registry)
    with Progress(console=_ERR) as progress:
        tasks = {uid: progress.add_task(uid, total=len(parts)) for uid, parts in handles.items()}
        collect_savepoint(
            handles,
            place,
            registry,
            lambda uid, done, _: progress.update(tasks[uid], completed=done),
        )
    _show(place, as_json=as_json)


def _from_spark(
    checkpoint: str, snapshots: str, batch: int | None, registry: PluginRegistry
) -> Any:
    from millpond.cli.run import local_session  # noqa: PLC0415 - needs pyspark
    from millpond.spark.savepoints import query_handles  # noqa: PLC0415 - needs pyspark

    spark = local_session()
    try:
        return query_handles(spark, checkpoint, registry.storage(snapshots), batch)
    finally:
        spark.stop()


@savepoint.command("show")
@click.argument("path")
@as_json_option
def show_savepoint(path: str, *, as_json: bool) -> None:
    """Show what a savepoint holds."""
    _show(tool_registry().savepoint(path), as_json=as_json)


@savepoint.command()
@click.argument("path")
@as_json_option
def seal(path: str, *, as_json: bool) -> None:
    """Accept the tables of an edited savepoint as they are now."""
    _show(seal_savepoint(tool_registry().savepoint(path)), as_json=as_json)


@savepoint.command()
@click.argument("path")
@click.argument("target")
@click.option("--max-parallelism", type=int, required=True, help="The new number of key groups.")
@as_json_option
def rekey(path: str, target: str, max_parallelism: int, *, as_json: bool) -> None:
    """Write a savepoint anew with another number of key groups."""
    registry = tool_registry()
    old, new = registry.savepoint(path), registry.savepoint(target)
    _show(rekey_savepoint(old, new, max_parallelism), as_json=as_json)


def _show(handle: SavepointHandle, *, as_json: bool) -> None:
    rows = [
        {
            "operator": operator.uid,
            "state": state.meta.name,
            "kind": state.meta.kind.value,
            "value": str(state.meta.value),
            "max_parallelism": operator.max_parallelism,
            "rows": sum(file.rows for file in state.files),
            "bytes": sum(file.size for file in state.files),
            "files": len(state.files),
        }
        for operator in read_savepoint(handle).operators
        for state in operator.states
    ]
    show(rows, as_json=as_json, empty="The savepoint holds no state.")
