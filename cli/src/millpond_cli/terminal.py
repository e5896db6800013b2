"""The output and the exit status of every command.

Names of states, operators and files come from snapshots, from other people's directories and
from the shell. Therefore characters that are not printable, or that the encoding of the stream
lacks, are escaped.

The exit status is 0 if the command has succeeded, 1 if it was refused or has found a problem, and 2
if it was called with wrong arguments. It is 141 if the reader of standard output has closed it, for
example `head`; a shell reports SIGPIPE with the same number. An unexpected exception is a defect of
Millpond, and its traceback is printed.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from millpond.errors import MillpondError, PlaceError, printable
from rich.cells import cell_len
from rich.console import Console, RenderableType
from typing_extensions import override


class ReaderGoneError(Exception):
    """The reader of standard output has closed it.

    This is not a subclass of OSError, because Click exits with 1 for BrokenPipeError.
    """


def safe(text: str) -> str:
    """Return `text` as one line, with control characters and unencodable characters escaped."""
    shown = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if shown.isascii():
        return shown
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


@contextmanager
def prepared_streams() -> Iterator[None]:
    """Prepare the standard streams for the block.

    Characters that a stream cannot encode are escaped. Millpond's warnings are printed.
    """
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
    """A handler of log records that prints them like error messages; see `complain`."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        complain(record.getMessage() + (f": {error}" if error else ""))


def say(text: str) -> None:
    """Print `text` as one line, escaped by `safe`."""
    _write(f"{safe(text)}\n")


def emit(json_text: str) -> None:
    """Print `json_text`, which must be ASCII; escape the DEL characters in it."""
    _write(json_text.replace("\x7f", "\\u007f") + "\n")


def draw(*parts: RenderableType) -> None:
    """Print tables and texts on a terminal. The caller must have escaped the texts by `safe`."""
    console = Console()
    with console.capture() as drawn:
        console.print(*parts, sep="\n")
    _write(drawn.get())


def complain(message: str) -> None:
    """Print `message` after ``millpond:`` as one paragraph on standard error."""
    tell(f"millpond: {' '.join(message.split())}", err=True)


def tell(text: str, *, err: bool = False) -> None:
    """Print a paragraph, on standard error if `err` is set.

    On a terminal, lines are broken between words.
    """
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
    """Write the buffered standard output.

    Raises:
        PlaceError: the output cannot be written.
        ReaderGoneError: the reader has closed standard output.
    """
    _write("")


def _write(text: str, *, err: bool = False) -> None:
    """Write to standard output, or to standard error if `err` is set, and flush the stream.

    Errors of standard error are ignored.

    Raises:
        PlaceError: the output cannot be written.
        ReaderGoneError: the reader has closed standard output.
    """
    # click.echo is not used, because it writes UTF-8 to a stream whose encoding is ASCII.
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
        sys.stdout = None  # so that its buffer does not fail again at exit
        raise PlaceError("standard output", error.strerror or str(error)) from error


_READER_GONE = 141


class CommandGroup(click.Group):
    """A group of commands with the exit statuses that the docstring of this module describes."""

    @override
    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command that the arguments name, and exit with its status."""
        options["standalone_mode"] = False
        with prepared_streams():
            code = _status(lambda: click.Group.main(self, *arguments, **options))
        sys.exit(code)


def _status(run: Callable[[], Any]) -> int:
    """Run a command and return its exit status. Print a message for each expected error."""
    try:
        flush_output()  # fail before the command starts if nothing can be printed
        try:
            result = run()
        except SystemExit as done:
            result = done.code
            if isinstance(result, str):
                complain(result)
                result = 1
        flush_output()
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)  # quotes the arguments, so the text must be escaped
        for line in text.getvalue().splitlines():
            tell(line, err=True)
        if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdecimal():
            tell("A key or value that begins with a dash goes after -- on the line.", err=True)
        return error.exit_code
    except ReaderGoneError:
        sys.stdout = None  # so that its buffer does not fail again at exit
        return _READER_GONE
    except (MillpondError, OSError, MemoryError, click.Abort) as error:
        complain(_sentence_for(error))
        return 1
    return result if isinstance(result, int) else 0


def _sentence_for(error: Exception) -> str:
    """Return the message to print for an error."""
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    if not isinstance(error, OSError):
        return "interrupted" if isinstance(error, click.Abort) else str(error)
    if error.filename is None:
        return str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror or error}"
