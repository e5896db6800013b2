"""The page of a report: one HTML file without scripts and without links to other files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs
from millpond import __version__
from millpond.errors import PlaceError

from millpond_cli.output import size_text
from millpond_cli.report import plots
from millpond_cli.report.advice import Advice
from millpond_cli.report.history import BatchFigures, CheckpointSize
from millpond_cli.report.state_figures import HOUR_MS, OperatorFigures

if TYPE_CHECKING:
    from jinja2 import Environment


@attrs.frozen
class OperatorReport:
    """The part of a report about one operator.

    Attributes:
        figures: the figures of the state.
        sizes: the sizes of the retained checkpoints.
        batches: the metrics of the last batches; empty if they are unknown.
        advice: the warnings.
    """

    figures: OperatorFigures
    sizes: list[CheckpointSize]
    batches: list[BatchFigures]
    advice: list[Advice]


@attrs.frozen
class Report:
    """Everything that the page shows.

    Attributes:
        path: the directory.
        kind: ``checkpoint directory``, ``savepoint`` or ``checkpoint of a query``.
        now: the time of the report in ms.
        operators: a part for each operator.
        advice: the warnings about the whole directory.
    """

    path: str
    kind: str
    now: int
    operators: list[OperatorReport]
    advice: list[Advice]


def page(report: Report) -> str:
    """Return the page.

    Raises:
        PlaceError: Jinja or matplotlib is not installed.
    """
    template = _environment().get_template("report.html.jinja")
    operators = [
        {**attrs.asdict(each, recurse=False), "plots": list(_plots(each, number, report.now))}
        for number, each in enumerate(report.operators)
    ]
    time = datetime.fromtimestamp(report.now / 1000, UTC)
    return template.render(
        path=report.path,
        kind=report.kind,
        version=__version__,
        time=f"{time:%Y-%m-%d %H:%M} UTC",
        operators=operators,
        advice=report.advice,
    )


def _environment() -> Environment:
    try:
        import jinja2  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PlaceError("jinja2", f"{error}; pip install 'millpond-cli[report]'") from error
    loader = jinja2.PackageLoader("millpond_cli.report", "")
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    made.filters |= {"size": size_text, "duration": duration_text}
    return made


def _plots(report: OperatorReport, number: int, now: int) -> Iterator[tuple[str, str]]:
    """Yield the captions and plots of an operator.

    Args:
        report: the part of the report.
        number: its number, which makes the names of the plots unique.
        now: the time of the report in ms.
    """
    figures, name = report.figures, f"plot-{number}"
    if len(figures.subtasks) > 1:
        first = [each.first_group for each in figures.subtasks]
        heights = [each.bytes for each in figures.subtasks]
        order = range(len(first))
        yield "Bytes by subtask", plots.bars(f"{name}-a", order, heights, "subtask", "bytes")
    if figures.groups:
        groups = range(figures.max_parallelism)
        counts = [figures.groups[each] for each in groups]
        yield "Rows by key group", plots.bars(f"{name}-b", groups, counts, "key group", "rows")
    if len(report.sizes) > 1:
        ids = [each.checkpoint_id for each in report.sizes]
        sizes = [each.bytes for each in report.sizes]
        caption = "Bytes that a restore of each retained checkpoint reads"
        yield caption, plots.line(f"{name}-c", ids, sizes, "checkpoint", "bytes")
    for at, (state, timers) in enumerate(figures.timers.items()):
        start, span = (timers.first - now) / HOUR_MS, timers.span / HOUR_MS
        axes = "hours from the time of the report", "timers"
        plot = plots.histogram(f"{name}-d{at}", start, span, timers.counts, *axes)
        yield f"Due times of {state}", plot
    if report.batches:
        layers = {
            phase: [getattr(each, f"{phase}_ms") for each in report.batches]
            for phase in ("open", "process", "snapshot")
        }
        ids = [each.batch for each in report.batches]
        yield "Time of the slowest subtask", plots.stacks(f"{name}-e", ids, layers, "batch", "ms")


def duration_text(milliseconds: int) -> str:
    """Return a length of time with its largest unit."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{milliseconds / length:g} {unit}"
    return f"{milliseconds} ms"
