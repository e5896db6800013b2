"""``millpond checkpoint``: what lies in a checkpoint directory, and whether it is sound."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.progress import track

from millpond.checkpoint.catalog import Catalog, read_catalog
from millpond.checkpoint.handles import KeyedStateHandle
from millpond.checkpoint.inspect import open_stored, pick_operator
from millpond.checkpoint.verify import files_of, verify_file
from millpond.cli.output import as_json_option, show
from millpond.cli.plugins import tool_registry
from millpond.errors import MillpondError, printable

__all__ = ["checkpoint"]

_ERR = Console(stderr=True)


@click.group()
def checkpoint() -> None:
    """Look into a checkpoint directory (what spark.millpond.checkpoint.dir names)."""


def _catalog(directory: str) -> Catalog:
    return read_catalog(tool_registry().savepoint(directory).storage)


def _refuse_broken(catalog: Catalog) -> None:
    """Name the metadata that cannot be read, and end with status 1 if there is any."""
    for path, reason in catalog.broken.items():
        click.echo(printable(f"{path}: {reason}"), err=True)
    if catalog.broken:
        sys.exit(1)


@checkpoint.command("list")
@click.argument("directory")
@as_json_option
def list_snapshots(directory: str, *, as_json: bool) -> None:
    """List the snapshots of all subtasks."""
    catalog = _catalog(directory)
    rows = [
        {
            "operator": subtask.place,
            "key_groups": str(handle.key_group_range),
            "checkpoint": handle.checkpoint_id,
            "format": handle.format,
            "files": len(handle.files),
            "bytes": handle.size,
            "states": len(handle.states),
        }
        for subtask in catalog.subtasks
        for handle in subtask.handles
    ]
    show(rows, as_json=as_json, empty=f"{directory} holds no snapshots.")
    _refuse_broken(catalog)


@checkpoint.command("show")
@click.argument("directory")
@click.option("--operator", help="Its uid.")
@click.option("--id", "checkpoint_id", type=int, help="A checkpoint id; the newest by default.")
@as_json_option
def show_snapshot(
    directory: str, operator: str | None, checkpoint_id: int | None, *, as_json: bool
) -> None:
    """Show the files of each subtask's snapshot."""
    catalog = _catalog(directory)
    rows = [
        {
            "operator": subtask.place,
            "key_groups": str(handle.key_group_range),
            "checkpoint": handle.checkpoint_id,
            "kind": file.kind,
            "bytes": file.size,
            "rows": file.rows,
            "file": "(inline)" if file.inline else file.path,
        }
        for subtask in catalog.select(operator)
        for handle in subtask.at(checkpoint_id)
        for file in handle.files
    ]
    show(rows, as_json=as_json, empty="There is no such snapshot.")
    _refuse_broken(catalog)


@checkpoint.command()
@click.argument("directory")
@click.option("--operator", help="Its uid.")
@click.option("--id", "checkpoint_id", type=int, help="A checkpoint id; the newest by default.")
@as_json_option
def verify(
    directory: str, operator: str | None, checkpoint_id: int | None, *, as_json: bool
) -> None:
    """Read all files of the snapshots and check them; status 1 where one is damaged."""
    catalog = _catalog(directory)
    subtasks = catalog.select(operator)
    broken = [_finding(path, 0, why) for path, why in catalog.broken.items()]
    handles = [handle for each in subtasks for handle in each.at(checkpoint_id)]
    files = dict.fromkeys((file, handle) for handle in handles for file in files_of(handle))
    rows = broken + [
        _checked(file, handle) for file, handle in track(files, "verifying", console=_ERR)
    ]
    show(rows, as_json=as_json, empty=f"{directory} holds no snapshots.")
    if any(row["verdict"] != "ok" for row in rows):
        sys.exit(1)


def _finding(path: str, size: int, verdict: str) -> dict[str, Any]:
    return {"file": path, "bytes": size, "verdict": verdict}


def _checked(file: Any, handle: KeyedStateHandle) -> dict[str, Any]:
    try:
        verify_file(handle, file)
    except MillpondError as error:
        return _finding(file.path, file.size, str(error))
    return _finding(file.path, file.size, "ok")


@checkpoint.command()
@click.argument("directory")
@click.option("--retained", type=click.IntRange(1), default=100, show_default=True)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@as_json_option
def gc(directory: str, retained: int, *, dry_run: bool, as_json: bool) -> None:
    """Delete files that none of the newest snapshots needs: of lost attempts, and old ones."""
    catalog = _catalog(directory)
    rows: list[dict[str, Any]] = []
    for path in catalog.orphans(retained):
        rows.append({"file": path, "bytes": catalog.storage.size(path)})
        if not dry_run:
            catalog.storage.delete(path)
    show(rows, as_json=as_json, empty="Nothing to delete.")
    if rows and not as_json:
        done = "would be" if dry_run else "were"
        click.echo(
            f"{len(rows)} files, {sum(row['bytes'] for row in rows):,} bytes {done} deleted."
        )


@checkpoint.command()
@click.argument("directory")
@click.argument("first", type=int)
@click.argument("second", type=int)
@click.option("--operator", help="Its uid, where there are several.")
@as_json_option
def diff(directory: str, first: int, second: int, operator: str | None, *, as_json: bool) -> None:
    """Count what differs between two checkpoints of an operator, by state."""
    registry = tool_registry()
    where = registry.savepoint(directory)
    before = pick_operator(open_stored(where, registry, first), operator, directory)
    after = pick_operator(open_stored(where, registry, second), operator, directory)
    rows: list[dict[str, Any]] = []
    with before.contents() as old, after.contents() as new:
        for name in sorted({meta.name for meta in (*before.states, *after.states)}):
            left = dict(row for group in old.state_rows(name) for row in group)
            right = dict(row for group in new.state_rows(name) for row in group)
            common = left.keys() & right.keys()
            rows.append(
                {
                    "state": name,
                    "added": len(right.keys() - left.keys()),
                    "removed": len(left.keys() - right.keys()),
                    "changed": sum(left[key] != right[key] for key in common),
                    "same": sum(left[key] == right[key] for key in common),
                }
            )
    show(rows, as_json=as_json, empty="There are no states.")
