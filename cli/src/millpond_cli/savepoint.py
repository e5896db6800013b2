"""``millpond savepoint``: creating, verifying, sealing, re-keying and rewriting savepoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
from millpond.arguments import CHECKPOINT_IDS
from millpond.errors import PlaceError
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.local.savepoint_writer import SavepointWriter
from millpond.savepoints.collect import collect_savepoint
from millpond.savepoints.rewriting import rekey_savepoint, seal_savepoint
from millpond.savepoints.savepoint_file import (
    METADATA_FILE,
    TableFile,
    is_savepoint,
    read_savepoint,
)
from millpond.snapshots.handles import KeyedStateHandle
from millpond.state.names import Scope

from millpond_cli.inspection.orphans import spark_queries
from millpond_cli.inspection.verify import (
    Checked,
    finding,
    show_findings,
    verified,
    verify_table,
)
from millpond_cli.output import as_json_option, show, working
from millpond_cli.targets import (
    catalog_of,
    committed_handles,
    naming_directory,
    new_place,
    place_text,
    savepoint_place,
    scope_option,
    snapshots_option,
    source,
    stored_operators,
    tool_config,
    tool_registry,
)


@click.group()
def savepoint() -> None:
    """Write, show, verify, seal, re-key and rewrite savepoints."""


@savepoint.command()
@click.argument("checkpoint", type=place_text)
@click.argument("target", type=place_text)
@snapshots_option
@click.option(
    "--batch",
    type=click.IntRange(*CHECKPOINT_IDS),
    help="A batch that Spark still has; by default the last one.",
)
@as_json_option
def create(
    checkpoint: str, target: str, snapshots: str, batch: int | None, *, as_json: bool
) -> None:
    """Write a savepoint of a query to TARGET, a new directory.

    CHECKPOINT is the checkpointLocation of a Spark query, running or stopped. This needs Spark,
    which knows the snapshots that are committed. It does not need Spark if CHECKPOINT and
    --snapshots are the same directory, written without Spark.
    """
    place = new_place(target, checkpoint, snapshots)
    for path in (checkpoint, snapshots):
        if is_savepoint(source(path)):
            reason = "it is a savepoint already: copy it, or use millpond savepoint rekey"
            raise PlaceError(path, reason)
    if source(checkpoint) != source(snapshots):
        handles = committed_handles(checkpoint, snapshots, batch)
    elif batch is not None:
        raise click.BadParameter("it is for Spark queries", param_hint="--batch")
    else:
        handles = _newest_handles(checkpoint)
    shown: dict[str, float] = {}
    with naming_directory(snapshots), working("writing the savepoint", len(handles)) as advance:

        def report(uid: str, done: int, total: int) -> None:
            advance(done / total - shown.get(uid, 0))
            shown[uid] = done / total

        collect_savepoint(handles, place, tool_registry(), report)
    _show(target, as_json=as_json)


def _newest_handles(directory: str) -> dict[str, list[KeyedStateHandle]]:
    """Return the newest snapshots in a checkpoint directory that was written without Spark, by uid.

    Raises:
        PlaceError: Spark has written the directory, or two queries have operators with the same
            uid.
    """
    if queries := spark_queries(catalog_of(directory)):
        which = f"the query {queries[0]}" if len(queries) == 1 else "one of its queries"
        reason = "Spark wrote it, and only a query's checkpointLocation names the committed ones"
        raise PlaceError(directory, f"{reason}; give that of {which} as CHECKPOINT")
    handles: dict[str, list[KeyedStateHandle]] = {}
    for each in stored_operators(directory):
        if each.uid in handles:
            reason = f"several queries have an operator {each.uid!r} in it; give a Spark checkpoint"
            raise PlaceError(directory, reason)
        with naming_directory(directory):
            each.require_divided()
        handles[each.uid] = [part for part in each.parts if isinstance(part, KeyedStateHandle)]
    return handles


@savepoint.command("show")
@click.argument("path", type=place_text)
@as_json_option
def show_savepoint(path: str, *, as_json: bool) -> None:
    """Show the states in a savepoint."""
    _show(path, as_json=as_json)


@savepoint.command()
@click.argument("path", type=place_text)
@as_json_option
def verify(path: str, *, as_json: bool) -> None:
    """Read all tables of a savepoint and check them.

    Status 1 if one is damaged or missing, or was edited and not sealed.
    """
    place = savepoint_place(path)
    with naming_directory(path):
        operators = read_savepoint(place).operators
    files = [
        Checked(o.uid, file.path, file.size, partial(verify_table, place, o, file))
        for o in operators
        for file in o.files
    ]
    metadata = finding("", METADATA_FILE, place.storage.size(place.path(METADATA_FILE)), "ok")
    show_findings(path, [metadata, *verified(files)], as_json=as_json)


@savepoint.command()
@click.argument("path", type=place_text)
@click.option("--added", is_flag=True, help="Include Parquet files that were added.")
@as_json_option
def seal(path: str, *, added: bool, as_json: bool) -> None:
    """Accept the tables of an edited savepoint as they are now."""
    place = savepoint_place(path)
    with naming_directory(path), working("sealing"):
        seal_savepoint(place, added=added)
    _show(path, as_json=as_json)


@savepoint.command()
@click.argument("path", type=place_text)
@click.argument("target", type=place_text)
@click.option(
    "--max-parallelism",
    type=click.IntRange(1, MAX_KEY_GROUPS),
    required=True,
    help="The new number of key groups.",
)
@as_json_option
def rekey(path: str, target: str, max_parallelism: int, *, as_json: bool) -> None:
    """Write a savepoint to TARGET, a new directory, with another number of key groups."""
    old, new = source(path), new_place(target, path)
    with naming_directory(path), working("re-keying"):
        rekey_savepoint(old, new, max_parallelism)
    _show(target, as_json=as_json)


def _rewriting(*names: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that turns a function into a command that rewrites a savepoint.

    The arguments of the command are PATH, the arguments in `names`, and TARGET, a new directory.
    The function gets a ``SavepointWriter`` with the savepoint at PATH, and changes it. The command
    then writes the result to TARGET.
    """

    def command_of(edit: Callable[..., None]) -> click.Command:
        @functools.wraps(edit)
        def run(path: str, target: str, *, as_json: bool, **given: Any) -> None:
            old, new = source(path), new_place(target, path)
            with naming_directory(path), working("rewriting"):
                writer = SavepointWriter.from_existing(old, config=tool_config())
                if "operator" in given and given["operator"] is None:
                    known = writer.operators
                    if len(known) != 1:
                        reason = f"it has {len(known)} operators; name one with --operator: "
                        raise PlaceError(path, f"{reason}{', '.join(known) or 'none'}")
                    (given["operator"],) = known
                edit(writer, **given)
                writer.write(new)
            _show(target, as_json=as_json)

        command: Any = as_json_option(run)
        command = click.argument("target", type=place_text)(command)
        for name in reversed(names):
            command = click.argument(name)(command)
        return savepoint.command()(click.argument("path", type=place_text)(command))

    return command_of


_operator_option = click.option(
    "--operator", help="Uid of the operator; needed if there are several."
)


@_rewriting("uid")
def remove_operator(writer: SavepointWriter, uid: str) -> None:
    """Write a savepoint to TARGET, a new directory, without the state of operator UID."""
    writer.remove_operator(uid)


@_rewriting("uid", "new_uid")
def rename_operator(writer: SavepointWriter, uid: str, new_uid: str) -> None:
    """Write a savepoint to TARGET, a new directory, in which operator UID has the uid NEW_UID."""
    writer.rename_operator(uid, new_uid)


@_rewriting("name")
@_operator_option
@scope_option
def remove_state(writer: SavepointWriter, name: str, operator: str, scope: Scope | None) -> None:
    """Write a savepoint to TARGET, a new directory, without the state NAME of an operator."""
    writer.remove_state(operator, name, scope)


@_rewriting("name", "new_name")
@_operator_option
@scope_option
def rename_state(
    writer: SavepointWriter, name: str, new_name: str, operator: str, scope: Scope | None
) -> None:
    """Write a savepoint to TARGET, a new directory, in which the state NAME is called NEW_NAME."""
    writer.rename_state(operator, name, new_name, scope)


def _show(path: str, *, as_json: bool) -> None:
    """Print a row for each state of a savepoint."""
    with naming_directory(path):
        operators = read_savepoint(savepoint_place(path)).operators
    rows = []
    for operator in operators:
        states: list[tuple[Any, str, Sequence[TableFile]]] = [
            (state.meta, state.meta.kind.value, state.files) for state in operator.states
        ]
        states += [
            (own.meta, f"operator: {own.meta.mode.value}", (own.file,) if own.file else ())
            for own in operator.operator_states
        ]
        rows += [
            {
                "operator": operator.uid,
                "state": meta.name,
                "kind": kind,
                "value": str(meta.value),
                "max_parallelism": operator.max_parallelism,
                "rows": sum(file.rows for file in files),
                "bytes": sum(file.size for file in files),
                "files": len(files),
            }
            for meta, kind, files in states
        ]
    show(rows, as_json=as_json, empty="The savepoint holds no state.", by=("operator",))
