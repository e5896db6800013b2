"""The user's code: frames of tracebacks, and the lines where a method yields."""

from __future__ import annotations

import dis
import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, GeneratorType, TracebackType
from typing import Any

import attrs
from typing_extensions import override


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
        """As a traceback shows it."""
        frame = traceback.FrameSummary(self.file, self.line, self.name)
        return "".join(traceback.format_list([frame])).rstrip()


def place_of_method(method: Callable[..., Any]) -> Place | None:
    """Where a method yields, if at one line only, else where it begins; None without code."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None:
        return None
    yields = {
        each.positions.lineno
        for each in dis.get_instructions(code)
        if each.opname == "YIELD_VALUE" and each.positions is not None
    }
    line = yields.pop() if len(yields) == 1 else None
    return Place(code.co_filename, code.co_firstlineno if line is None else line, code.co_name)


def gives_rows(method: Callable[..., Any]) -> bool:
    """Whether a method's code yields, or returns anything but None."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None or inspect.isgeneratorfunction(method):
        return True
    before: Any = None
    for each in dis.get_instructions(code):
        value = before if each.opname == "RETURN_VALUE" else each
        if each.opname in ("RETURN_VALUE", "RETURN_CONST") and not _is_none(value):
            return True
        before = each
    return False


def _is_none(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("LOAD_CONST", "RETURN_CONST") and instruction.argval is None


def notebook_cells() -> dict[str, str]:
    """What a notebook calls the files that its cells' code seems to be in; else nothing."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if named is None:
        return {}
    found = ((file, named(file)) for file in list(linecache.cache))
    return {file: " ".join(name) for file, name in found if name is not None}


_COMMAND = "millpond_command"
_BACKENDS = ("millpond_heap", "millpond_lmdb", "millpond_rocksdb")
_OURS = ("millpond", "millpond_spark", "millpond_cli", _COMMAND, *_BACKENDS, "pyspark", "py4j")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_FROZEN = "<frozen "
_LONGEST = 10_000


def place_of(error: BaseException) -> tuple[str, int]:
    """File and line of the innermost frame of the user's own; empty and 0 where there is none.

    Where an exception has none, its cause may have: a StopIteration in a generator becomes a
    RuntimeError outside of it.
    """
    frames = _users_own(error)
    if frames:
        frame, line = frames[-1]
        return frame.f_code.co_filename, line
    return ("", 0) if error.__cause__ is None else place_of(error.__cause__)


def users_method(error: BaseException) -> str:
    """The user's method or function that our code called and an exception came out of."""
    frames = _users_own(error)
    if frames:
        return str(frames[0][0].f_code.co_qualname).rpartition("<locals>.")[2]
    return "" if error.__cause__ is None else users_method(error.__cause__)


def names_read(error: BaseException) -> frozenset[str]:
    """The names of attributes that the user's own line reads at which an exception was raised."""
    frames = _users_own(error)
    if not frames:
        return frozenset()
    frame, line = frames[-1]
    return frozenset(
        str(each.argval)
        for each in dis.get_instructions(frame.f_code)
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD")
        and each.positions is not None
        and each.positions.lineno == line
    )


def _users_own(error: BaseException) -> list[tuple[FrameType, int]]:
    """The user's frames of an exception, outermost first; installed code only if no other is."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for installed in (False, True):
        found = [each for each in frames if _is_users(each[0], installed=installed)]
        if found:
            return found
    return []


def raised_by_us(error: BaseException) -> bool:
    """Whether an exception comes out of our code, which the user's has called."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and _is_ours(frames[-1])


def calling_place() -> Place | None:
    """The user's innermost line that has led here; None where the command has.

    What leads to the command is the script that starts it, which is not the user's.
    """
    for frame, line in traceback.walk_stack(sys._getframe()):  # noqa: SLF001 - as traceback does
        if _package(frame) == _COMMAND:
            return None
        if _is_users(frame, installed=False):
            return Place(frame.f_code.co_filename, line, frame.f_code.co_name)
    return None


def place_of_yield(method: Callable[..., Any], rows: Any) -> Place | None:
    """Where what a method has returned waits at a ``yield``; else what ``place_of_method`` says."""
    while isinstance(getattr(rows, "gi_yieldfrom", None), GeneratorType):
        rows = rows.gi_yieldfrom
    frame = getattr(rows, "gi_frame", None)
    if frame is None or _is_ours(frame):
        return place_of_method(method)
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def describe(error: BaseException) -> str:
    """A user's exception as Python shows it, causes first, with the user's frames alone."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    _trim(told, error)
    text = "".join(told.format()).rstrip()
    return (
        text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"
    )


def _trim(told: traceback.TracebackException, error: BaseException) -> None:
    users = list(_users(error.__traceback__))
    told.stack = traceback.StackSummary.from_list(
        [summary for summary, keep in zip(told.stack, users, strict=False) if keep]
    )
    if told.__cause__ is not None and error.__cause__ is not None:
        _trim(told.__cause__, error.__cause__)
    elif told.__context__ is not None and error.__context__ is not None:
        _trim(told.__context__, error.__context__)


def _users(tb: TracebackType | None) -> Iterator[bool]:
    """For each frame, whether it is the user's or one that the user's code has led to."""
    frames = [frame for frame, _ in traceback.walk_tb(tb)]
    installed = not any(_is_users(frame, installed=False) for frame in frames)
    users = False
    for frame in frames:
        if _is_ours(frame):
            users = False
        elif _is_users(frame, installed=installed):
            users = True
        yield users


def _is_ours(frame: FrameType) -> bool:
    return _package(frame) in _OURS


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_users(frame: FrameType, *, installed: bool) -> bool:
    file = frame.f_code.co_filename
    if _is_ours(frame) or file.startswith(_FROZEN):
        return False
    return installed or not file.startswith(_LIBRARIES)
