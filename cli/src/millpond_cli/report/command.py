"""``millpond report``: a page about the state in a directory."""

from __future__ import annotations

from pathlib import Path

import attrs
import click
from millpond.clock import SystemClock
from millpond.errors import MillpondError, PlaceError
from millpond.savepoints.savepoint_file import is_savepoint
from millpond.snapshots.catalog import Catalog
from millpond.snapshots.spark_checkpoint import last_batch_or_none, query_id

from millpond_cli.inspection.stored_operator import StoredOperator
from millpond_cli.output import dumps, plain, show, working, write_text
from millpond_cli.report.advice import batch_advice, directory_advice, state_advice
from millpond_cli.report.history import (
    BatchFigures,
    CheckpointSize,
    StatesAt,
    batch_figures,
    checkpoint_sizes,
    earlier_states,
    stale_files,
)
from millpond_cli.report.page import OperatorReport, Report, page
from millpond_cli.report.state_figures import operator_figures
from millpond_cli.spark import local_session
from millpond_cli.targets import (
    catalog_of,
    file_path,
    naming_directory,
    new_file,
    place_text,
    query_checkpoint,
    query_snapshots_option,
    source,
    spark_path,
    stored_operators,
)
from millpond_cli.terminal import complain, emit, tell


@click.command()
@click.argument("path", type=place_text)
@query_snapshots_option
@click.option("--operator", help="Uid of an operator, or query/uid; by default all.")
@click.option(
    "--batches",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="With --snapshots: the number of last batches whose metrics are shown.",
)
@click.option(
    "--earlier",
    type=click.IntRange(0, 100),
    default=4,
    show_default=True,
    help="The number of earlier checkpoints whose states are read, to show which state grows.",
)
@click.option("-o", "--output", type=file_path, metavar="FILE", help="The page, an HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def report(
    path: str,
    snapshots: str | None,
    operator: str | None,
    batches: int,
    earlier: int,
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Report the size, skew, growth and timers of the state in PATH.

    With -o, write a page with plots; otherwise print a table of the states and the warnings.

    PATH is the directory that spark.millpond.checkpoint.dir names, or a savepoint. With --snapshots
    it is a query's checkpointLocation; the page then also shows the times of the last batches.

    The state of one subtask after the other is read into memory, once for each checkpoint.
    """
    if output is not None:
        new_file(output, path, snapshots)
    found = _report(path, snapshots, operator, batches, earlier)
    if output is not None:
        _write_page(found, output)
    if as_json:
        emit(dumps(plain(attrs.asdict(found)), indent=2))
    elif output is None:
        _print_table(found)


def _print_table(found: Report) -> None:
    """Print the states of all operators, and the warnings."""
    columns = ("name", "kind", "keys", "rows", "bytes", "expired")
    rows = [
        {"operator": each.figures.operator, **{name: getattr(state, name) for name in columns}}
        for each in found.operators
        for state in each.figures.states
    ]
    show(rows, as_json=False, empty="There are no states.", by=("operator",))
    for each in (*found.advice, *(one for part in found.operators for one in part.advice)):
        tell(f"Warning: {each.what} {each.cure}")


def _write_page(found: Report, output: Path) -> None:
    """Write the page to a file."""
    with working("drawing"):
        text = page(found)
    try:
        write_text(output, text)
    except OSError as error:
        raise PlaceError(str(output), f"it cannot be written: {error.strerror}") from error
    warnings = len(found.advice) + sum(len(each.advice) for each in found.operators)
    tell(f"operators: {len(found.operators)}, warnings: {warnings}; the page is in {output}")


def _report(
    path: str, snapshots: str | None, operator: str | None, batches: int, earlier: int
) -> Report:
    """Read the figures of all operators, or of one; see `report` for the arguments."""
    now = SystemClock().now_ms
    refused: list[MillpondError] = []
    stored = stored_operators(path, None, snapshots, operator, refused=refused)
    for error in refused:
        complain(f"{path}: {error}")
    directory = path if snapshots is None else snapshots
    catalog = None if is_savepoint(source(directory)) else catalog_of(directory)
    metrics = {} if snapshots is None else _metrics(path, batches)
    operators = []
    with naming_directory(path), working("reading the state", len(stored)) as done:
        for each in stored:
            batches_of_it = metrics.get(each.uid, [])
            operators.append(_operator_report(each, catalog, batches_of_it, earlier, now))
            done(1)
    general = []
    if catalog is not None:
        general = [*directory_advice(stale_files(catalog), [*catalog.broken])]
    return Report(path, _kind(catalog, snapshots), now, operators, general)


def _operator_report(
    stored: StoredOperator,
    catalog: Catalog | None,
    batches: list[BatchFigures],
    earlier: int,
    now: int,
) -> OperatorReport:
    """Read the figures of an operator, and find what looks wrong.

    Args:
        stored: the operator.
        catalog: the checkpoint directory; None for a savepoint.
        batches: the metrics of the last batches.
        earlier: the number of earlier checkpoints whose states are read.
        now: the time of the report in ms.
    """
    figures, sizes, growth = operator_figures(stored, now), list[CheckpointSize](), []
    if catalog is not None:
        sizes = checkpoint_sizes(catalog, stored.operator)
        growth = [*earlier_states(catalog, stored, sizes, earlier), StatesAt.from_figures(figures)]
    advice = [*state_advice(figures, growth), *batch_advice(batches)]
    return OperatorReport(figures, sizes, growth, batches, advice)


def _kind(catalog: Catalog | None, snapshots: str | None) -> str:
    if snapshots is not None:
        return "checkpoint of a query"
    return "savepoint" if catalog is None else "checkpoint directory"


def _metrics(checkpoint: str, count: int) -> dict[str, list[BatchFigures]]:
    """Return the metrics of a query's last batches, by the uid of the operator."""
    storage = query_checkpoint(checkpoint).storage
    last = last_batch_or_none(storage)
    if last is None or not count:
        return {}
    batches = range(last, max(-1, last - count), -1)
    with local_session(checkpoint) as spark, naming_directory(checkpoint):
        return batch_figures(spark, spark_path(checkpoint), query_id(storage), batches)
