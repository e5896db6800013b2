"""The output of every command to the terminal.

Names of states, operators and files come from snapshots, from other people's directories and
from the shell. Characters that are not printable, or that the stream's encoding lacks, are escaped.
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
    """The reader of standard output has closed it; not an OSError, for which Click exits with 1."""


def safe(text: str) -> str:
    """Escape a text so that it takes one line, controls no terminal and can be encoded."""
    shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if shown.isascii():
        return shown
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Escape characters that an encoding lacks, and print Millpond's log as complaints."""
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
    """A handler that prints logged warnings like errors, escaped."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        complain(record.getMessage() + (f": {error}" if error else ""))


def say(text: str) -> None:
    """Print a line."""
    _write(f"{safe(text)}\n")


def emit(json_text: str) -> None:
    """Print JSON in ASCII, and escape the control character that its encoder does not."""
    _write(json_text.replace("\x7f", "\\u007f") + "\n")


def draw(*parts: RenderableType) -> None:
    """Print tables and texts on a terminal; the texts are already escaped."""
    console = Console()
    with console.capture() as drawn:
        console.print(*parts, sep="\n")
    _write(drawn.get())


def complain(message: str) -> None:
    """Print a message on standard error, in one paragraph that fits a terminal's width."""
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
    """Write the buffered output.

    Raises:
        PlaceError: it cannot be written.
        ReaderGoneError: the reader has closed it.
    """
    _write("")


def drop_output() -> None:
    """Give up standard output, so that its buffer does not fail again at exit."""
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
