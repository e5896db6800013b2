"""``millpond checkpoint`` and ``millpond rescale``: inspect, clean up and rescale checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import click
from millpond.arguments import CHECKPOINT_IDS
from millpond.errors import MillpondError, PlaceError
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.snapshots.catalog import Catalog, operator_named
from millpond.snapshots.paths import owner_of, snapshot_folder
from millpond.snapshots.spark_checkpoint import METADATA, query_id

from millpond_cli.inspection.orphans import RETAINED, delete_file, narrowed, orphans
from millpond_cli.inspection.stored_operator import StoredOperator, pick_operator
from millpond_cli.inspection.verify import (
    Checked,
    files_of,
    finding,
    show_findings,
    verified,
    verify_file,
)
from millpond_cli.output import as_json_option, show, working
from millpond_cli.spark import local_session
from millpond_cli.targets import (
    catalog_of,
    check_id,
    directory_handle,
    naming_directory,
    place_text,
    query_checkpoint,
    snapshots_option,
    source,
    spark_path,
    stored_operators,
    tool_limits,
)
from millpond_cli.terminal import complain, say

_operator_option = click.option(
    "--operator", help="Uid of an operator, or query/uid; by default all."
)
_CHECKPOINT_ID = click.IntRange(*CHECKPOINT_IDS)
_id_option = click.option(
    "--id", "checkpoint_id", type=_CHECKPOINT_ID, help="Checkpoint id; by default the newest."
)


@click.group()
def checkpoint() -> None:
    """Inspect and clean up a checkpoint directory.

    DIRECTORY is the path or URI that spark.millpond.checkpoint.dir names.
    """


def _report_broken(catalog: Catalog, directory: str) -> None:
    """Report metadata files that cannot be read, and exit with status 1 if there are any."""
    for path, why in catalog.broken.items():
        complain(f"{directory}: {path} cannot be read, so its snapshots are left out: {why}")
    if catalog.broken:
        sys.exit(1)


@checkpoint.command("list")
@click.argument("directory", type=place_text)
@as_json_option
def list_snapshots(directory: str, *, as_json: bool) -> None:
    """List the snapshots of all subtasks; status 1 if one cannot be read."""
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
    _report_broken(catalog, directory)


def _selected(directory: str, operator: str | None, checkpoint_id: int | None) -> Catalog:
    """Return the catalog of a directory, limited to one operator if `operator` names one.

    Raises:
        PlaceError: there are no snapshots of the operator, or `checkpoint_id` is not among the
            directory's ids.
    """
    catalog, wanted = catalog_of(directory), operator_named(operator)
    if not catalog.subtasks:
        raise PlaceError(directory, "it holds no snapshots")
    chosen = narrowed(catalog, wanted, checkpoint_id)
    if not chosen.subtasks:
        known = {each.operator for each in catalog.subtasks}
        raise PlaceError(directory, wanted.none_of(known))
    check_id(chosen.subtasks, directory, checkpoint_id)
    return chosen


@checkpoint.command("show")
@click.argument("directory", type=place_text)
@_operator_option
@_id_option
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
    _report_broken(catalog, directory)


@checkpoint.command()
@click.argument("directory", type=place_text)
@_operator_option
@_id_option
@as_json_option
def verify(
    directory: str, operator: str | None, checkpoint_id: int | None, *, as_json: bool
) -> None:
    """Read all files of the newest snapshots and check them.

    Status 1 if a file is damaged or missing, or if there is nothing to check.
    """
    catalog = _selected(directory, operator, checkpoint_id)
    rows = [finding(str(owner_of(path)), path, 0, why) for path, why in catalog.broken.items()]
    limits = tool_limits()
    files = {  # several snapshots may share a file
        (file.path, file.digest): Checked(
            str(subtask.operator), file.path, file.size, partial(verify_file, handle, file, limits)
        )
        for subtask in catalog.subtasks
        for handle in subtask.at(checkpoint_id)
        for file in files_of(handle)
    }
    rows += verified(list(files.values()))
    rows += _missing(catalog, checkpoint_id)
    rows.sort(key=lambda row: str(row["operator"]))
    show_findings(directory, rows, as_json=as_json)


def _missing(catalog: Catalog, checkpoint_id: int | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each subtask that has taken snapshots but whose folder is missing.

    Only subtasks with a snapshot up to `checkpoint_id` count. An operator is skipped if Spark's
    pointers may contain its snapshots, because then a subtask may have no folder. If the operator
    has no snapshots, those of its query's other operators show this.
    """
    present = {subtask.folder for subtask in catalog.subtasks}
    for operator, history in sorted(catalog.histories.items()):
        query = [each for each in catalog.subtasks if each.operator.query == operator.query]
        mine = [each for each in query if each.operator == operator] or query
        carries = [handle.carries for each in mine for handle in each.handles]
        if history.is_dropped or any(carries) or not carries:
            continue
        folders = {snapshot_folder(operator, groups) for groups in history.begun(checkpoint_id)}
        for folder in sorted(folders - present):
            yield finding(str(operator), folder, 0, "it is missing")


@checkpoint.command()
@click.argument("directory", type=place_text)
@click.option(
    "--query",
    type=place_text,
    metavar="CHECKPOINT",
    help="The checkpointLocation of a query, to delete only its files.",
)
@click.option(
    "--retained",
    type=click.IntRange(1),
    help="How many of the newest checkpoints remain readable. By default as many as each query "
    f"retains (checkpoint.retained), and {RETAINED} if that is not known.",
)
@click.option("--dry-run", is_flag=True, help="Report the files, and delete nothing.")
@as_json_option
def gc(
    directory: str, query: str | None, retained: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Delete files that no retained checkpoint needs.

    These are files of lost attempts, of old checkpoints, and from before the last rescale.
    List the queries whose checkpointLocation no longer exists, and leave their files alone.

    Before a query's first snapshot there is nothing to delete. Status 1 if DIRECTORY is not
    known to any query.
    """
    catalog = catalog_of(directory)
    if not catalog.subtasks and not catalog.layouts:
        raise PlaceError(directory, "it holds no snapshots")
    wanted = None if query is None else query_id(query_checkpoint(query).storage)
    if wanted is not None and wanted not in {operator.query for operator in catalog.operators}:
        reason = f"it holds no file of the query {wanted}; name the directory that "
        reason += f"spark.millpond.checkpoint.dir names for {query}"
        raise PlaceError(directory, reason)
    with naming_directory(directory):
        unneeded = orphans(catalog, retained, wanted)
    rows: list[dict[str, Any]] = []
    with naming_directory(directory), working("deleting", len(unneeded)) as done:
        for path in unneeded:
            size = delete_file(catalog.storage, path, dry_run=dry_run)
            if size is not None:
                rows.append({"file": path, "bytes": size, "verdict": "not needed"})
            done(1)
    gone = list(_gone_queries(catalog)) if wanted is None else []
    show([*rows, *gone], as_json=as_json, empty="Nothing to delete.")
    if rows and not as_json:
        what = "would be" if dry_run else "were"
        say(f"{len(rows)} files, {sum(row['bytes'] for row in rows):,} bytes {what} deleted.")
    if gone and not as_json:
        say(f"If those queries were not moved, delete their folders in {directory} yourself.")


def _gone_queries(catalog: Catalog) -> Iterator[dict[str, Any]]:
    """Yield a row for the folder of each query whose checkpointLocation no longer exists."""
    places = {operator.query: each.checkpoint for operator, each in catalog.settings.items()}
    for query, checkpoint in sorted(places.items()):
        try:
            storage = directory_handle(checkpoint).storage if checkpoint else None
            is_gone = storage is not None and (
                METADATA not in storage.list("") or query_id(storage) != query
            )
        except MillpondError:  # the checkpointLocation may exist, but cannot be read
            is_gone = False
        if is_gone:
            sizes = (
                delete_file(catalog.storage, path, dry_run=True)
                for path in catalog.storage.list(query)
            )
            verdict = f"its query's checkpointLocation {checkpoint} no longer exists"
            yield {"file": f"{query}/", "bytes": sum(filter(None, sizes)), "verdict": verdict}


@checkpoint.command()
@click.argument("directory", type=place_text)
@click.argument("first", type=_CHECKPOINT_ID)
@click.argument("second", type=_CHECKPOINT_ID)
@click.option("--operator", help="Uid of the operator, or query/uid; needed if there are several.")
@as_json_option
def diff(directory: str, first: int, second: int, operator: str | None, *, as_json: bool) -> None:
    """Count the rows that differ between two checkpoints of an operator, by state.

    FIRST and SECOND are checkpoint ids, as `millpond checkpoint list` shows them.
    """
    before, after = (
        pick_operator(stored_operators(directory, at, operator=operator), operator, directory)
        for at in (first, second)
    )
    with naming_directory(directory):
        rows = _differences(before, after)
    show(rows, as_json=as_json, empty="There are no states.")


def _differences(before: StoredOperator, after: StoredOperator) -> list[dict[str, Any]]:
    """Return a row for each state of two checkpoints, with the numbers of differing and equal rows.

    Args:
        before: the operator in the first checkpoint.
        after: the operator in the second checkpoint.
    """
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
        from millpond_spark.driver.offline_rescaling import rescale_operators  # noqa: PLC0415 - an extra

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
