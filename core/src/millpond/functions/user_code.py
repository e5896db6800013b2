"""Lines of users' code, found in the code itself: where a method yields, and whether it does."""

from __future__ import annotations

import dis
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable
from typing import Any

import attrs
from typing_extensions import override

__all__ = ["Place", "gives_rows", "notebook_cells", "place_of_method"]


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
