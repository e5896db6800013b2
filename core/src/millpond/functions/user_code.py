"""The user's code: checks of the results of its methods, and its frames in tracebacks."""

from __future__ import annotations

import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, GeneratorType
from typing import Any

import attrs
from typing_extensions import override

from millpond.arguments import unstarted_kind
from millpond.errors import FunctionResultError, OutputTypeError, brief

Check = Callable[[Any], None]
"""A function that raises OutputTypeError for a row that does not fit the declared output."""

_ONE_ROW = (str, bytes, bytearray, tuple, Mapping)
"""The iterable types whose instances are one value or one row, not a collection of rows."""

# ---------------------------------------------------------------- results


def check_ran(result: object, what: str = "it") -> None:
    """Raise TypeError if a method returned a generator or coroutine, so its body has not run.

    Args:
        result: the result of a method that returns no rows, such as ``open``.
        what: the method's name for the error.
    """
    word = unstarted_kind(result)
    if word:
        reason = (
            f"{what} gives no rows, and with {word} nothing of it has run: leave the "
            f"{word.split()[-1]} out"
        )
        raise TypeError(reason)


def call_without_rows(method: Callable[..., Any], *arguments: Any) -> None:
    """Call a method that returns no rows; raise TypeError if its body has not run."""
    result = method(*arguments)
    if result is not None:
        name: str = getattr(method, "__qualname__", repr(method))  # a partial has none
        check_ran(result, name.rpartition("<locals>.")[2])


def rows_of(method: Callable[..., Any], result: Any) -> Iterable[Any]:
    """Return ``result``, the collection of rows that ``method`` has returned.

    Raises:
        FunctionResultError: ``result`` is one row or value, not a collection of rows.
    """
    # Nearly all results are of these two types; isinstance with an abstract class takes 0.2 µs.
    if type(result) is GeneratorType or type(result) is list:
        return result
    if isinstance(result, Iterable) and not isinstance(result, _ONE_ROW):
        return result
    raise result_error(method, result, "rows")


def result_error(method: Callable[..., Any], result: Any, expected: str) -> FunctionResultError:
    """Return the error to raise if ``method`` returned ``result`` instead of ``expected``."""
    name = getattr(method, "__qualname__", repr(method))
    place = place_of_method(method) or Place("", 0, name)
    return FunctionResultError(name, place.file, place.line, brief(result), expected)


def checked_rows(
    method: Callable[..., Any], users: Callable[..., Any] | None, result: Any, check: Check
) -> Iterator[Any]:
    """Check and yield a method's rows one by one; an error names the ``yield`` of the wrong row.

    Args:
        method: the method that returned the rows.
        users: the user's function that yields the rows. Usually this is ``method``; in windows it
            is the window function, or None if the user gave none.
        result: the method's result.
        check: called with each row.

    Raises:
        FunctionResultError: the result is not a collection of rows.
        OutputTypeError: a row does not fit.
    """
    rows = rows_of(method, result)
    for row in rows:
        check_row(row, users, rows, check)
        yield row


def check_row(row: Any, users: Callable[..., Any] | None, rows: Any, check: Check) -> None:
    """Check one row; see ``checked_rows``. ``rows`` is the iterator that has yielded the row."""
    try:
        check(row)
    except OutputTypeError as error:
        place = None if users is None else _place_of_yield(users, rows)
        if place is not None:
            error.method, error.file, error.line = place.name, place.file, place.line
        raise


# ---------------------------------------------------------------- places


@attrs.frozen
class Place:
    """A line of code.

    Attributes:
        name: the function that the line is in.
    """

    file: str
    line: int
    name: str

    @override
    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def shown(self) -> str:
        """The line as a traceback shows it."""
        frame = traceback.FrameSummary(self.file, self.line, self.name)
        return "".join(traceback.format_list([frame])).rstrip()


def place_of_method(method: Callable[..., Any]) -> Place | None:
    """Return the first line of a method; None if it has no Python code."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return code and Place(code.co_filename, code.co_firstlineno, code.co_name)


def _place_of_yield(method: Callable[..., Any], rows: Any) -> Place | None:
    """Return the place of the ``yield`` at which the generator ``rows`` waits.

    If ``rows`` is not a generator in the user's code, return the first line of ``method``.
    """
    while isinstance(getattr(rows, "gi_yieldfrom", None), GeneratorType):
        rows = rows.gi_yieldfrom
    frame = getattr(rows, "gi_frame", None)
    if frame is None or _is_ours(frame):
        return place_of_method(method)
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def calling_place() -> Place | None:
    """Return the line of the innermost frame of the user's code; None if there is none.

    Frames outside of Millpond's command line are not searched, because the script that starts the
    command is not the user's code.
    """
    for frame, line in traceback.walk_stack(sys._getframe()):  # noqa: SLF001 - as traceback does
        if _package(frame) == _COMMAND:
            return None
        if _is_users(frame, installed=False):
            return Place(frame.f_code.co_filename, line, frame.f_code.co_name)
    return None


def notebook_cells() -> dict[str, str]:
    """Return the names of a notebook's cells by file name; empty outside of notebooks."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if named is None:
        return {}
    found = ((file, named(file)) for file in list(linecache.cache))
    return {file: " ".join(name) for file, name in found if name is not None}


# ---------------------------------------------------------------- tracebacks

_COMMAND = "millpond_command"
_BACKENDS = ("millpond_heap", "millpond_lmdb", "millpond_rocksdb")
_OURS = ("millpond", "millpond_spark", "millpond_cli", _COMMAND, *_BACKENDS, "pyspark", "py4j")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_FROZEN = "<frozen "
_LONGEST = 10_000


def users_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the user's frames of an exception with their lines, outermost first.

    Frames of installed packages count as the user's only if there are no other user's frames. If
    the exception has no user's frame at all, return the user's frames of its cause. For example,
    Python turns a StopIteration in a generator into a RuntimeError outside of the generator.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    for installed in (False, True):
        found = [each for each in frames if _is_users(each[0], installed=installed)]
        if found:
            return found
    return [] if error.__cause__ is None else users_frames(error.__cause__)


def raised_by_us(error: BaseException) -> bool:
    """Return whether Millpond or Spark raised an exception, not the user's code or a library."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and _is_ours(frames[-1])


def format_users_frames(error: BaseException) -> str:
    """Return an exception as Python shows it, but without frames of Millpond and Spark."""
    summary = traceback.TracebackException.from_exception(error, compact=True)
    _drop_our_frames(summary, error)
    text = "".join(summary.format()).rstrip()
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
    return text


def _drop_our_frames(summary: traceback.TracebackException, error: BaseException) -> None:
    """Remove the frames of Millpond and Spark from ``summary`` and from its causes.

    ``summary`` is the summary of the exception ``error``.
    """
    users = [frame for frame, _ in users_frames(error)]
    kept, begun = [], False
    for entry, (frame, _) in zip(
        summary.stack, traceback.walk_tb(error.__traceback__), strict=False
    ):
        # Libraries that the user's code calls are kept, too.
        begun = (begun or frame in users) and not _is_ours(frame)
        if begun:
            kept.append(entry)
    summary.stack = traceback.StackSummary.from_list(kept)
    if summary.__cause__ is not None and error.__cause__ is not None:
        _drop_our_frames(summary.__cause__, error.__cause__)
    elif summary.__context__ is not None and error.__context__ is not None:
        _drop_our_frames(summary.__context__, error.__context__)


def _is_ours(frame: FrameType) -> bool:
    return _package(frame) in _OURS


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_users(frame: FrameType, *, installed: bool) -> bool:
    """Return whether a frame is the user's; with ``installed``, frames of libraries count too."""
    file = frame.f_code.co_filename
    if _is_ours(frame) or file.startswith(_FROZEN):
        return False
    return installed or not file.startswith(_LIBRARIES)
