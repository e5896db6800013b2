"""``millpond state``: reading and editing the state in snapshots and savepoints."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import pyarrow as pa
from millpond.arguments import CHECKPOINT_IDS
from millpond.clock import SystemClock
from millpond.errors import JobError, MillpondError, shown
from millpond.keygroups import KeyGroupRange
from millpond.spi.portable_rows import live_rows
from millpond.state.names import Scope

from millpond_cli.inspection.dry_run_check import check_function
from millpond_cli.inspection.editing import Edit, edit_value, key_value, stored_as
from millpond_cli.inspection.stored_operator import StoredOperator, pick_operator, state_table
from millpond_cli.jobfile import error_with_line, load_function
from millpond_cli.output import ENDINGS, as_json_option, dumps, show, working, write_file
from millpond_cli.targets import (
    file_path,
    naming_directory,
    new_file,
    new_place,
    place_text,
    query_snapshots_option,
    scope_option,
    stored_operators,
    tool_config,
)
from millpond_cli.terminal import complain, emit, tell

_checkpoint_id = click.option(
    "--id",
    "checkpoint_id",
    type=click.IntRange(*CHECKPOINT_IDS),
    help="A checkpoint's id, which is a batch's number plus one; the newest by default.",
)


@attrs.frozen
class _Selection:
    """The command line arguments that select one stored operator.

    Attributes:
        path: a checkpoint directory, a savepoint, or a ``checkpointLocation``.
        operator: the uid, or ``query/uid``; None if there is only one operator.
        checkpoint_id: the checkpoint; None for the newest checkpoint.
        snapshots: the checkpoint directory if `path` is a ``checkpointLocation``, else None.
    """

    path: str
    operator: str | None
    checkpoint_id: int | None
    snapshots: str | None

    def read(self) -> StoredOperator:
        """Read and return the selected operator."""
        found = stored_operators(self.path, self.checkpoint_id, self.snapshots, self.operator)
        return pick_operator(found, self.operator, self.path)


def _selects_operator(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument PATH and the options that select an operator to a command.

    `command` gets them as a `_Selection` in its first argument.
    """

    @functools.wraps(command)
    def run(
        path: str,
        operator: str | None,
        checkpoint_id: int | None,
        snapshots: str | None,
        **others: Any,
    ) -> None:
        command(_Selection(path, operator, checkpoint_id, snapshots), **others)

    for option in (
        query_snapshots_option,
        _checkpoint_id,
        click.option(
            "--operator", help="Uid of the operator, or query/uid; needed if there are several."
        ),
        click.argument("path", type=place_text),
    ):
        run = option(run)
    return run


@click.group()
def state() -> None:
    """Read and edit state, from a checkpoint directory or a savepoint.

    PATH is the directory that spark.millpond.checkpoint.dir names, or a savepoint. With --snapshots
    it is a query's checkpointLocation, and Spark reports the committed snapshots.
    """


@state.command("list")
@click.argument("path", type=place_text)
@_checkpoint_id
@query_snapshots_option
@click.option("--count", is_flag=True, help="Count rows, and those that have expired by now.")
@as_json_option
def list_states(
    path: str, checkpoint_id: int | None, snapshots: str | None, *, count: bool, as_json: bool
) -> None:
    """List the states of all operators; status 1 if one cannot be read."""
    refused: list[MillpondError] = []
    operators = stored_operators(path, checkpoint_id, snapshots, refused=refused)
    with naming_directory(path), working("counting" if count else "reading"):
        rows = [row for operator in operators for row in _described(operator, count=count)]
    show(rows, as_json=as_json, empty="There are no states.", by=("operator", "checkpoint"))
    for error in refused:
        complain(f"{path}: {error}")
    if refused:
        sys.exit(1)


def _described(operator: StoredOperator, *, count: bool) -> Iterator[dict[str, Any]]:
    """Yield an output row for each state of an operator.

    If `count` is set, the row has the numbers of all rows, live rows and expired rows of the state.
    """
    common = {"operator": str(operator.operator), "checkpoint": operator.checkpoint_id}
    for meta in operator.states:
        counts = {}
        if count:
            rows = [row for group in operator.contents().state_rows(meta.name) for row in group]
            # A list counts as expired if all of its elements are expired.
            live = len(live_rows(meta, rows, SystemClock().now_ms))
            counts = {"rows": len(rows), "live": live, "expired": len(rows) - live}
        yield {
            **common,
            "state": meta.name,
            "kind": meta.kind.value,
            **counts,
            "key": str(operator.key),
            "namespace": "" if meta.namespace.id == "void" else str(meta.namespace),
            "map_key": "" if meta.map_key is None else str(meta.map_key),
            "value": str(meta.value),
            "ttl_ms": "" if meta.ttl_ms is None else meta.ttl_ms,
        }
    for own in operator.operator_metas():
        number = state_table(operator, own.name, scope=own.scope).num_rows if count else 0
        yield {
            **common,
            "state": own.name,
            "kind": f"operator: {own.mode.value}",
            **({"rows": number, "live": number, "expired": 0} if count else {}),
            "key": "",
            "namespace": "",
            "map_key": "" if own.map_key is None else str(own.map_key),
            "value": str(own.value),
            "ttl_ms": "",
        }


@state.command()
@_selects_operator
@click.argument("name")
@click.argument("key")
@as_json_option
def get(selection: _Selection, name: str, key: str, *, as_json: bool) -> None:
    """Show the values of a KEY in the state NAME; status 1 if there are none.

    Write a text key as it is, and any other key as JSON, as `millpond state dump` shows it. A key
    that begins with a dash goes after --, as in: millpond state get -- PATH NAME -7
    """
    path = selection.path
    with naming_directory(path), working("reading"):
        stored = selection.read()
        codec, place = stored.codec(name), f"state {name!r}: key"
        parsed = key_value(key, codec.schema.field("key").type, place)
        group = stored_as(place, str(stored.key), repr(key), lambda: codec.group_of(parsed))
        table = state_table(stored, name, KeyGroupRange(group, group), scope="keyed")
        rows = [row for row in table.to_pylist() if row["key"] == parsed]
    if not rows:
        complain(f"{path}: the key {shown(key)} holds nothing in {name!r}.")
    if rows or as_json:
        show(rows, as_json=as_json, empty="")
    if not rows:
        sys.exit(1)


@state.command()
@_selects_operator
@click.argument("name")
@scope_option
@click.option(
    "--limit", type=click.IntRange(1, (1 << 63) - 1), help="Print at most this number of rows."
)
def dump(selection: _Selection, name: str, scope: Scope | None, limit: int | None) -> None:
    """Print all rows of the state NAME, one JSON object per line."""
    with naming_directory(selection.path), working("reading"):
        table = state_table(selection.read(), name, scope=scope).slice(0, limit)
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            emit(dumps(row))


@state.command()
@_selects_operator
@click.argument("name")
@click.argument("target", type=file_path)
@scope_option
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="In .csv, put ' before texts that begin with = + - @, which spreadsheets run.",
)
def export(
    selection: _Selection, name: str, target: Path, scope: Scope | None, *, escape_formulas: bool
) -> None:
    """Write the state NAME to TARGET, a new .parquet, .csv or .arrow file."""
    if target.suffix not in ENDINGS:
        reason = f"expected one of the endings {', '.join(ENDINGS)}"
        raise click.BadParameter(f"{str(target)!r}: {reason}", param_hint="TARGET")
    if escape_formulas and target.suffix != ".csv":
        raise click.BadParameter("it is for .csv files", param_hint="--escape-formulas")
    new_file(target, selection.path, selection.snapshots)
    with naming_directory(selection.path), working("exporting"):
        table: pa.Table = state_table(selection.read(), name, scope=scope)
        write_file(table, target, escape_formulas=escape_formulas)
    tell(f"{table.num_rows:,} rows written to {target}")


@state.command()
@_selects_operator
@click.argument("name")
@click.argument("key")
@click.argument("target", type=place_text)
@click.option("--set", "value", metavar="JSON", help="The new value as JSON.")
@click.option("--map-key", metavar="KEY", help="The key of the entry, in a map state.")
@click.option("--remove", is_flag=True, help="Remove the key's state, or the entry.")
def edit(
    selection: _Selection,
    name: str,
    key: str,
    target: str,
    value: str | None,
    map_key: str | None,
    *,
    remove: bool,
) -> None:
    """Write a savepoint to TARGET in which a KEY of the state NAME has another value.

    TARGET is a new directory; PATH does not change. Write a text key as it is, and any other key
    as JSON, as `millpond state dump` shows it. A key that begins with a dash goes after --, as
    in: millpond state edit --set 1 -- PATH NAME -7 TARGET
    """
    if (value is None) == (not remove):
        raise click.UsageError("give either --set or --remove")
    try:
        plain = None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}", param_hint="--set") from error
    wanted = Edit(name, key, plain, map_key, remove, SystemClock().now_ms)
    path, snapshots, operator = selection.path, selection.snapshots, selection.operator
    place = new_place(target, path, snapshots)
    operators = stored_operators(path, selection.checkpoint_id, snapshots, operator, query=True)
    stored = pick_operator(operators, operator, path)
    # Several queries may share a checkpoint directory.
    of_query = [each for each in operators if each.operator.query == stored.operator.query]
    with naming_directory(path), working("writing the savepoint"):
        done = edit_value(of_query, stored, wanted, place)
    tell(
        f"{done.changed} rows changed, {done.added} added, {done.removed} removed; "
        f"the savepoint is in {target}"
    )


@state.command()
@_selects_operator
@click.option(
    "--against",
    type=place_text,
    required=True,
    metavar="FUNCTION",
    help="The job's function, as module:Class or file.py:Class.",
)
@as_json_option
def check(selection: _Selection, against: str, *, as_json: bool) -> None:
    """Check whether the stored state fits the descriptors of a job; status 1 if it does not.

    The descriptors are those of the states that the function's open and initialize_state ask for.
    States that the function asks for elsewhere are reported as unused.
    """
    stored = selection.read()
    function = load_function(against, Path.cwd())
    try:
        findings = check_function(function, stored.states, tool_config(), stored.operator_metas())
    except MillpondError:
        raise
    except Exception as error:  # the function's own code may raise anything
        raise JobError(f"{against}: it cannot be opened", error_with_line(error)) from error
    show(
        [attrs.asdict(finding) for finding in findings],
        as_json=as_json,
        empty="There are no states.",
    )
    misfits = ", ".join(finding.state for finding in findings if not finding.fits)
    if misfits:
        complain(f"{against} cannot restore these states of {selection.path}: {misfits}")
        sys.exit(1)
