"""The one way to the terminal: every text that a command prints goes through here.

Names of states, operators and files come from snapshots, from other people's directories and
from the shell. They never reach the terminal as they are: what is not printable is escaped, and
what the stream's encoding lacks is written with backslashes.
"""

from __future__ import annotations

import io
import sys
import textwrap

import click
from rich.console import Console, RenderableType

from millpond.errors import PlaceError, printable

__all__ = [
    "complain",
    "draw",
    "drop_output",
    "emit",
    "flush_output",
    "prepare_streams",
    "safe",
    "say",
]


def safe(text: str) -> str:
    """A text that does nothing to a terminal and stays on its line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def prepare_streams() -> None:
    """Let standard output and error write what their encoding lacks as backslash escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str, *, err: bool = False) -> None:
    """Print a line."""
    _write(f"{safe(text)}\n", err=err)


def emit(json_text: str) -> None:
    """Print JSON, which escapes all but printable ASCII itself, save for one character."""
    _write(json_text.replace("\x7f", "\\u007f") + "\n")


def draw(*parts: RenderableType) -> None:
    """Print tables and texts, whose words are safe already, on a terminal."""
    console = Console()
    with console.capture() as drawn:
        console.print(*parts, sep="\n")
    _write(drawn.get())


def complain(message: str) -> None:
    """Say on standard error what is wrong, in one paragraph that fits a terminal's width."""
    text = f"millpond: {safe(' '.join(message.split()))}"
    console = Console(stderr=True)
    if console.is_terminal:
        text = textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False)
    _write(f"{text}\n", err=True)


def flush_output() -> None:
    """Write what is still buffered; PlaceError where that cannot be written."""
    _write("")


def drop_output() -> None:
    """Give up standard output: what is still buffered must not fail once more at exit."""
    if sys.stdout is not None:
        sys.stdout = None  # as Python has it where there is no descriptor


def _write(text: str, *, err: bool = False) -> None:
    try:
        click.echo(text, nl=False, err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        if err:
            return
        drop_output()
        raise PlaceError("standard output", error.strerror or str(error)) from error
