"""``millpond checkpoint``: what lies in a checkpoint directory, and whether it is sound."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from millpond.arguments import CHECKPOINT_IDS
from millpond.checkpoint.inspection.catalog import Catalog
from millpond.checkpoint.inspection.choice import operator_named
from millpond.checkpoint.inspection.inspector import pick_operator
from millpond.checkpoint.inspection.stored_operator import StoredOperator
from millpond.checkpoint.inspection.subtask import Subtask
from millpond.checkpoint.inspection.verify import files_of, verify_file
from millpond.checkpoint.paths import owner_of
from millpond.cli.findings import finding, show_findings
from millpond.cli.output import as_json_option, show
from millpond.cli.paths import place_text
from millpond.cli.places import about, catalog_of, check_id, stored_operators
from millpond.cli.plugins import tool_limits
from millpond.cli.progress import working
from millpond.cli.terminal import complain, say
from millpond.errors import MillpondError, PlaceError

__all__ = ["checkpoint"]

_operator_option = click.option("--operator", help="Its uid, or query/uid; all by default.")
_CHECKPOINT_ID = click.IntRange(*CHECKPOINT_IDS)


@click.group()
def checkpoint() -> None:
    """Look into a checkpoint directory.

    DIRECTORY is what spark.millpond.checkpoint.dir names: a path or URI.
    """


def _end_with(catalog: Catalog, directory: str) -> None:
    """Name metadata that cannot be read, and end with status 1 where there is any."""
    for path, why in catalog.broken.items():
        complain(f"{directory}: {path} cannot be read, so what it describes is left out: {why}")
    if catalog.broken:
        sys.exit(1)


@checkpoint.command("list")
@click.argument("directory", type=place_text)
@as_json_option
def list_snapshots(directory: str, *, as_json: bool) -> None:
    """List the snapshots of all subtasks; status 1 where one cannot be read."""
    catalog = catalog_of(directory)
    rows = [
        {
            "operator": str(subtask.operator),
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
    show(rows, as_json=as_json, empty=f"{directory} holds no snapshots.", by=("operator",))
    _end_with(catalog, directory)


def _selected(directory: str, operator: str | None, checkpoint_id: int | None) -> Catalog:
    """What there is of an operator, or of all, at an id; PlaceError where nothing is found."""
    catalog, wanted = catalog_of(directory), operator_named(operator)
    if not catalog.subtasks:
        raise PlaceError(directory, "it holds no snapshots")
    chosen = catalog.of(wanted)
    if not chosen.subtasks:
        known = {each.operator for each in catalog.subtasks}
        raise PlaceError(directory, wanted.none_of(known))
    check_id(chosen.subtasks, directory, checkpoint_id)
    return chosen.at(checkpoint_id)


@checkpoint.command("show")
@click.argument("directory", type=place_text)
@_operator_option
@click.option("--id", "checkpoint_id", type=_CHECKPOINT_ID, help="The newest by default.")
@as_json_option
def show_snapshot(
    directory: str, operator: str | None, checkpoint_id: int | None, *, as_json: bool
) -> None:
    """Show the files of each subtask's newest snapshot, or of the newest up to --id."""
    catalog = _selected(directory, operator, checkpoint_id)
    rows = [
        {
            "operator": str(subtask.operator),
            "key_groups": str(handle.key_group_range),
            "checkpoint": handle.checkpoint_id,
            "kind": file.kind,
            "bytes": file.size,
            "rows": file.rows,
            "file": "(inline)" if file.inline else file.path,
        }
        for subtask in catalog.subtasks
        for handle in subtask.at(checkpoint_id)
        for file in handle.files
    ]
    show(rows, as_json=as_json, empty="The snapshots have no files.", by=("operator",))
    _end_with(catalog, directory)


@checkpoint.command()
@click.argument("directory", type=place_text)
@_operator_option
@click.option("--id", "checkpoint_id", type=_CHECKPOINT_ID, help="The newest by default.")
@as_json_option
def verify(
    directory: str, operator: str | None, checkpoint_id: int | None, *, as_json: bool
) -> None:
    """Read all files of the newest snapshots and check them.

    Status 1 where a file is damaged or missing, or where there is nothing to check.
    """
    catalog = _selected(directory, operator, checkpoint_id)
    rows = [finding(str(owner_of(path)), path, 0, why) for path, why in catalog.broken.items()]
    rows += _checked(catalog.subtasks, checkpoint_id)
    rows.sort(key=lambda row: str(row["operator"]))
    show_findings(directory, rows, as_json=as_json)


def _checked(subtasks: Sequence[Subtask], checkpoint_id: int | None) -> Iterator[dict[str, Any]]:
    """The verdict on each file, once where several snapshots share it."""
    files = {
        (file.path, file.digest): (subtask.operator, handle, file)
        for subtask in subtasks
        for handle in subtask.at(checkpoint_id)
        for file in files_of(handle)
    }
    limits = tool_limits()
    with working("verifying", sum(file.size for *_, file in files.values())) as done:
        for operator, handle, file in files.values():
            try:
                verify_file(handle, file, limits)
            except MillpondError as error:
                yield finding(str(operator), file.path, file.size, str(error))
            else:
                yield finding(str(operator), file.path, file.size, "ok")
            done(file.size)


@checkpoint.command()
@click.argument("directory", type=place_text)
@click.option(
    "--retained",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="So many of the newest checkpoints stay whole.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@as_json_option
def gc(directory: str, retained: int, *, dry_run: bool, as_json: bool) -> None:
    """Delete files that none of the newest checkpoints needs: of lost attempts, and old ones.

    Before a query's first snapshot there is nothing to delete; status 1 where DIRECTORY is not
    known to any query, or where a query is left alone because a layout of it is cut off.
    """
    catalog = catalog_of(directory)
    if not catalog.subtasks and not catalog.layouts:
        raise PlaceError(directory, "it holds no snapshots")
    with about(directory):
        orphans = catalog.orphans(retained)
    rows: list[dict[str, Any]] = []
    with about(directory), working("deleting", len(orphans)) as done:
        for path in orphans:
            size = catalog.delete(path, dry_run=dry_run)
            if size is not None:
                rows.append({"file": path, "bytes": size})
            done(1)
    show(rows, as_json=as_json, empty="Nothing to delete.")
    if rows and not as_json:
        what = "would be" if dry_run else "were"
        say(f"{len(rows)} files, {sum(row['bytes'] for row in rows):,} bytes {what} deleted.")
    for path in sorted(catalog.cut_off):
        why = catalog.broken[path]
        complain(f"{directory}: nothing of the query of {path} is deleted, for {why}")
    if catalog.cut_off:
        sys.exit(1)


@checkpoint.command()
@click.argument("directory", type=place_text)
@click.argument("first", type=_CHECKPOINT_ID)
@click.argument("second", type=_CHECKPOINT_ID)
@click.option("--operator", help="Its uid, or query/uid, where there are several.")
@as_json_option
def diff(directory: str, first: int, second: int, operator: str | None, *, as_json: bool) -> None:
    """Count the rows that differ between two checkpoints of an operator, by state.

    FIRST and SECOND are checkpoint ids, as `millpond checkpoint list` shows them.
    """
    before, after = (
        pick_operator(stored_operators(directory, at, operator=operator), operator, directory)
        for at in (first, second)
    )
    with about(directory):
        rows = _differences(before, after)
    show(rows, as_json=as_json, empty="There are no states.")


def _differences(before: StoredOperator, after: StoredOperator) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with working("comparing"):
        old, new = before.contents(), after.contents()
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
    return rows
