"""The exit status of commands, with a sentence instead of a traceback.

0: done. 1: refused, or something was found. 2: the call itself is wrong.
141: the reader of standard output has closed it, as `head` does; a shell reports SIGPIPE so.
An unexpected exception is a defect of Millpond and keeps its traceback.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from millpond.errors import MillpondError, PlaceError
from typing_extensions import override

from millpond_cli.terminal import (
    ReaderGoneError,
    complain,
    drop_output,
    flush_output,
    prepared_streams,
    tell,
)

_READER_GONE = 141


class CommandGroup(click.Group):
    """A group of commands that exit with these statuses."""

    @override
    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command and exit with its status."""
        options["standalone_mode"] = False
        with prepared_streams():
            code = _status(lambda: click.Group.main(self, *arguments, **options))
        sys.exit(code)


def _status(run: Callable[[], Any]) -> int:
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
        _explain(error)
        return error.exit_code
    except ReaderGoneError:
        drop_output()
        return _READER_GONE
    except (MillpondError, OSError, MemoryError, click.Abort) as error:
        complain(_sentence_for(error))
        return 1
    return result if isinstance(result, int) else 0


def _explain(error: click.ClickException) -> None:
    """Print Click's message about a wrong call, which quotes the call."""
    text = io.StringIO()
    error.show(text)
    for line in text.getvalue().splitlines():
        tell(line, err=True)
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdecimal():
        tell("A key or value that begins with a dash goes after -- on the line.", err=True)


def _sentence_for(error: Exception) -> str:
    if isinstance(error, OSError):
        return _sentence_for_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    if isinstance(error, click.Abort):
        return "interrupted"
    return str(error)


def _sentence_for_system(error: OSError) -> str:
    """Return the message of a system error; one without a file is about the output or directory."""
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror or error}"
    try:
        flush_output()
        Path.cwd()
    except PlaceError as lost:
        return str(lost)
    except ReaderGoneError:
        return str(error)
    except FileNotFoundError:
        return "the working directory has been deleted; change to another one"
    return str(error)
