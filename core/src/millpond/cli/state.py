"""``millpond state``: reading and editing what snapshots and savepoints hold."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from millpond.checkpoint.editing import edit_value
from millpond.checkpoint.inspect import StoredOperator, open_stored, pick_operator
from millpond.cli.jobfile import load_function
from millpond.cli.output import as_json_option, plain, show
from millpond.cli.plugins import tool_registry
from millpond.clock import SystemClock
from millpond.errors import ConfigError
from millpond.keygroups import KeyGroupRange
from millpond.runtime.checking import check_function

__all__ = ["state"]


def _source(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that reads one operator."""
    for option in (
        click.option("--id", "checkpoint_id", type=int, help="Of a checkpoint directory: this id."),
        click.option("--operator", help="Its uid, where there are several."),
        click.argument("path"),
    ):
        command = option(command)
    return command


def _stored(path: str, checkpoint_id: int | None) -> list[StoredOperator]:
    registry = tool_registry()
    return open_stored(registry.savepoint(path), registry, checkpoint_id)


@click.group()
def state() -> None:
    """Read and edit state, from a checkpoint directory or a savepoint."""


@state.command("list")
@click.argument("path")
@click.option("--id", "checkpoint_id", type=int, help="Of a checkpoint directory: this id.")
@click.option("--count", is_flag=True, help="Count rows, and those that have expired by now.")
@as_json_option
def list_states(path: str, checkpoint_id: int | None, *, count: bool, as_json: bool) -> None:
    """List the states of all operators."""
    operators = _stored(path, checkpoint_id)
    rows = [row for operator in operators for row in _described(operator, count=count)]
    show(rows, as_json=as_json, empty="There are no states.")


def _counted(operator: StoredOperator, name: str) -> dict[str, int]:
    rows, expired = operator.count(name, SystemClock().now_ms)
    return {"rows": rows, "live": rows - expired, "expired": expired}


def _described(operator: StoredOperator, *, count: bool) -> Iterator[dict[str, Any]]:
    common = {"operator": operator.place, "checkpoint": operator.checkpoint_id}
    for meta in operator.states:
        yield {
            **common,
            **(_counted(operator, meta.name) if count else {}),
            "state": meta.name,
            "kind": meta.kind.value,
            "key": str(operator.key),
            "namespace": str(meta.namespace),
            "map_key": "" if meta.map_key is None else str(meta.map_key),
            "value": str(meta.value),
            "ttl_ms": "" if meta.ttl_ms is None else meta.ttl_ms,
        }
    for own in operator.operator_metas():
        rows = operator.table(own.name).num_rows if count else 0
        yield {
            **common,
            **({"rows": rows, "live": rows, "expired": 0} if count else {}),
            "state": own.name,
            "kind": f"operator: {own.mode.value}",
            "key": "",
            "namespace": "",
            "map_key": "" if own.map_key is None else str(own.map_key),
            "value": str(own.value),
            "ttl_ms": "",
        }


@state.command()
@_source
@click.argument("name")
@click.argument("key")
@as_json_option
def get(
    path: str,
    name: str,
    key: str,
    operator: str | None,
    checkpoint_id: int | None,
    *,
    as_json: bool,
) -> None:
    """Show what a KEY holds in the state NAME; keys that are no texts are given as JSON.

    NAME is a state's name, or the query name of a queryable one.
    """
    stored = pick_operator(_stored(path, checkpoint_id), operator, path)
    rows = list(_rows_of_key(stored, stored.state(name).name, parse_key(stored, key)))
    show(rows, as_json=as_json, empty=f"The key {key} holds nothing in {name!r}.")
    if not rows:
        sys.exit(1)


def parse_key(stored: StoredOperator, text: str) -> Any:
    """A key as the columns hold it, from the command line."""
    if stored.key.id in ("str", "UUID", "Decimal"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rows_of_key(stored: StoredOperator, name: str, key: Any) -> Iterator[dict[str, Any]]:
    codec = stored.codec(name)
    column = pa.array([key], codec.schema.field("key").type)
    group = codec.group_of(column.to_pylist()[0])
    table = stored.table(name, KeyGroupRange(group, group))
    for row in table.to_pylist():
        if row["key"] == column.to_pylist()[0]:
            yield row


@state.command()
@_source
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), help="So many rows at most.")
def dump(
    path: str, name: str, operator: str | None, checkpoint_id: int | None, limit: int | None
) -> None:
    """Print all rows of the state NAME, a JSON object a line."""
    stored = pick_operator(_stored(path, checkpoint_id), operator, path)
    for row in stored.table(name).slice(0, limit).to_pylist():
        click.echo(json.dumps(plain(row)))


def _write_csv(table: pa.Table, target: Path) -> None:
    nested = [f.name for f in table.schema if pa.types.is_nested(f.type)]
    for column in nested:
        texts = [json.dumps(plain(value)) for value in table.column(column).to_pylist()]
        at = table.schema.get_field_index(column)
        table = table.set_column(at, column, pa.array(texts, pa.string()))
    pyarrow.csv.write_csv(table, target)


def _write_arrow(table: pa.Table, target: Path) -> None:
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    ".parquet": pq.write_table,
    ".csv": _write_csv,
    ".arrow": _write_arrow,
}


@state.command()
@_source
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path))
def export(
    path: str, name: str, target: Path, operator: str | None, checkpoint_id: int | None
) -> None:
    """Write the state NAME to TARGET, a .parquet, .csv or .arrow file."""
    if target.suffix not in _WRITERS:
        known = ", ".join(sorted(_WRITERS))
        raise ConfigError(str(target), f"its ending is none of: {known}", "millpond state export")
    stored = pick_operator(_stored(path, checkpoint_id), operator, path)
    table = stored.table(name)
    _WRITERS[target.suffix](table, target)
    click.echo(f"{table.num_rows:,} rows written to {target}")


@state.command()
@_source
@click.argument("name")
@click.argument("key")
@click.argument("target")
@click.option("--set", "value", help="The new value as JSON.")
@click.option("--map-key", help="Of a map state: the entry, as JSON or a text.")
@click.option("--remove", is_flag=True, help="Remove what the key holds.")
def edit(
    path: str,
    name: str,
    key: str,
    target: str,
    operator: str | None,
    checkpoint_id: int | None,
    value: str | None,
    map_key: str | None,
    *,
    remove: bool,
) -> None:
    """Write a savepoint to TARGET in which a KEY of the state NAME has another value."""
    if (value is None) == (not remove):
        raise ConfigError("--set", "give either --set or --remove", "millpond state edit")
    operators = _stored(path, checkpoint_id)
    stored = pick_operator(operators, operator, path)
    count = edit_value(
        operators,
        stored,
        name,
        parse_key(stored, key),
        tool_registry().savepoint(target),
        value=None if value is None else json.loads(value),
        map_key=map_key,
        remove=remove,
    )
    click.echo(f"{count} rows changed; the savepoint is in {target}")


@state.command()
@_source
@click.option("--against", required=True, help="The job's function, as module:function.")
@as_json_option
def check(
    path: str, operator: str | None, checkpoint_id: int | None, against: str, *, as_json: bool
) -> None:
    """Say whether a job's descriptors can restore what is stored; status 1 where they cannot."""
    stored = pick_operator(_stored(path, checkpoint_id), operator, path)
    findings = check_function(load_function(against, Path.cwd()), stored.states, tool_registry())
    show([finding.row() for finding in findings], as_json=as_json, empty="There are no states.")
    if any(not finding.fits for finding in findings):
        sys.exit(1)
