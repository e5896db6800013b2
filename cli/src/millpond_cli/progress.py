"""The progress of a command that takes long: on a terminal only, removed when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from millpond_cli.terminal import safe

__all__ = ["working"]

_TEXT_WIDTH = 40


@contextmanager
def working(text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show on standard error that a command is at work; gives what takes the steps done.

    Args:
        text: what it is doing.
        total: how many steps there are; without it there is no bar.
    """
    console = Console(stderr=True)
    shown = safe(text)
    if len(shown) > _TEXT_WIDTH:
        shown = f"{shown[: _TEXT_WIDTH - 3]}..."
    columns = [SpinnerColumn("line"), TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns += [BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%")]
    progress = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(shown, total=total)
        yield lambda steps: progress.advance(task, steps)
