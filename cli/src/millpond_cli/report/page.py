"""The page of a report: one HTML file without scripts and without links to other files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import attrs
from millpond import __version__
from millpond.errors import PlaceError

from millpond_cli.output import size_text
from millpond_cli.report import plots
from millpond_cli.report.advice import Advice
from millpond_cli.report.history import BatchFigures, CheckpointSize, StatesAt
from millpond_cli.report.state_figures import (
    HOUR_MS,
    GroupFigures,
    OperatorFigures,
    SizeFigures,
)

if TYPE_CHECKING:
    from jinja2 import Environment


HEAVIEST = 5
"""The number of key groups that the report lists."""


@attrs.frozen
class OperatorReport:
    """The part of a report about one operator.

    Attributes:
        figures: the figures of the state.
        sizes: the sizes of the retained checkpoints.
        growth: the sizes of the states at some of these checkpoints, the newest one last; empty
            for a savepoint.
        batches: the metrics of the last batches; empty if they are unknown.
        advice: the warnings.
    """

    figures: OperatorFigures
    sizes: list[CheckpointSize]
    growth: list[StatesAt]
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
        {
            **attrs.asdict(each, recurse=False),
            "plots": list(_plots(each, number, report.now)),
            "heaviest": _heaviest_groups(each.figures),
            "grown": _grown(each),
        }
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
    made.filters |= {
        "size": _or_dash(size_text),
        "duration": _or_dash(duration_text),
        "number": _or_dash("{:,}".format),
    }
    return made


def _or_dash(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that returns a dash for None, and `text(value)` for another value."""
    return lambda value: "–" if value is None else text(value)


def _heaviest_groups(figures: OperatorFigures) -> list[tuple[int, GroupFigures]]:
    """Return the key groups with the most bytes, the heaviest one first."""
    return nlargest(HEAVIEST, figures.groups.items(), key=lambda each: each[1].bytes)


def _grown(report: OperatorReport) -> list[tuple[str, SizeFigures, SizeFigures]]:
    """Return the name and the first and last size of each state; empty for one checkpoint."""
    if len(report.growth) <= 1:
        return []
    first, last, none = report.growth[0].states, report.growth[-1].states, SizeFigures()
    return [(name, first.get(name, none), now) for name, now in last.items()]


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
        none = GroupFigures()
        heights = [figures.groups.get(each, none).bytes for each in groups]
        yield "Bytes by key group", plots.bars(f"{name}-b", groups, heights, "key group", "bytes")
    if len(report.growth) > 1:
        ids = [each.checkpoint_id for each in report.growth]
        plot = plots.lines(f"{name}-f", ids, _bytes_of_states(report), "checkpoint", "bytes")
        yield "Bytes by state at retained checkpoints", plot
    if len(report.sizes) > 1:
        ids = [each.checkpoint_id for each in report.sizes]
        sizes = {"": [each.bytes for each in report.sizes]}
        caption = "Bytes that a restore of each retained checkpoint reads"
        yield caption, plots.lines(f"{name}-c", ids, sizes, "checkpoint", "bytes")
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


def _bytes_of_states(report: OperatorReport) -> dict[str, list[int]]:
    """Return the sizes of the largest states at the checkpoints of `growth`, by name."""
    newest = report.growth[-1].states
    names = nlargest(len(plots.COLORS), newest, key=lambda name: newest[name].bytes)
    none = SizeFigures()
    return {name: [each.states.get(name, none).bytes for each in report.growth] for name in names}


def duration_text(milliseconds: int) -> str:
    """Return a length of time with its largest unit."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{milliseconds / length:g} {unit}"
    return f"{milliseconds} ms"
