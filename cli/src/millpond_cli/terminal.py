"""The one way to the terminal: every text that a command prints goes through here.

Names of states, operators and files come from snapshots, from other people's directories and
from the shell. They never reach the terminal as they are: what is not printable is escaped, and
what the stream's encoding lacks is written with backslashes.
"""

from __future__ import annotations

import io
import logging
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import PlaceError, printable
from rich.cells import cell_len
from rich.console import Console, RenderableType
from typing_extensions import override


class ReaderGoneError(Exception):
    """Whoever read standard output has gone; not of the system, for Click would end with 1 then."""


def safe(text: str) -> str:
    """A text that does nothing to a terminal, stays on its line, and can be written as it is."""
    shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if shown.isascii():
        return shown
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Write what an encoding lacks as backslash escapes, and Millpond's log as complaints."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    log, handler = logging.getLogger("millpond"), _Complaints()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Complaints(logging.Handler):
    """Logged warnings name what stands in files, as errors do."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        complain(record.getMessage() + (f": {error}" if error else ""))


def say(text: str) -> None:
    """Print a line."""
    _write(f"{safe(text)}\n")


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
    tell(f"millpond: {' '.join(message.split())}", err=True)


def tell(text: str, *, err: bool = False) -> None:
    """Print a paragraph; on a terminal it is broken at words, not within."""
    shown, console = safe(text), Console(stderr=err)
    if console.is_terminal and cell_len(shown) > console.width:
        indent = " " * (len(shown) - len(shown.lstrip()))
        shown = textwrap.fill(
            shown,
            console.width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    _write(f"{shown}\n", err=err)


def flush_output() -> None:
    """Write what is still buffered.

    Raises:
        PlaceError: that cannot be written.
        ReaderGoneError: nobody reads it any more.
    """
    _write("")


def drop_output() -> None:
    """Give up standard output: what is still buffered must not fail once more at exit."""
    sys.stdout = None


def _write(text: str, *, err: bool = False) -> None:
    # Not by click.echo, which writes UTF-8 to a stream that says it is ASCII.
    stream = sys.stderr if err else sys.stdout
    if stream is None:
        if err:
            return
        raise PlaceError("standard output", "it is closed; give it a file, or /dev/null")
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if err:
            return
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        drop_output()
        raise PlaceError("standard output", error.strerror or str(error)) from error
