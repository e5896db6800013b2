"""Errors of users' functions and of the rows they get and give."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError

__all__ = [
    "FunctionResultError",
    "HarnessNotOpenError",
    "OutputTypeError",
    "UnsupportedColumnError",
    "UserFunctionError",
    "WindowStateError",
]


@attrs.define(eq=False, slots=False)
class UserFunctionError(MillpondError):
    """A user's function failed.

    Attributes:
        key: empty where no key is current, as in ``open``.
    """

    operator_uid: str
    subtask: int
    key: str
    method: str
    reason: str

    @override
    def sentence(self) -> str:
        key = f", key {self.key}" if self.key else ""
        return (
            f"Operator {self.operator_uid!r}, subtask {self.subtask}{key}: "
            f"{self.method} failed: {self.reason}"
        )


@attrs.define(eq=False, slots=False)
class FunctionResultError(MillpondError, TypeError):
    """A function returned something else than rows."""

    method: str
    file: str
    line: int
    value: str

    @override
    def sentence(self) -> str:
        where = f" ({self.file}, line {self.line})" if self.file else ""
        return (
            f"it returned {self.value} where rows are expected: yield each row, or return a list "
            f"of rows, from {self.method}{where}."
        )


@attrs.define(eq=False, slots=False)
class HarnessNotOpenError(MillpondError):
    """A harness was used outside of its ``with`` block."""

    method: str

    @override
    def sentence(self) -> str:
        return (
            f"{self.method}() needs the function to be open: use the harness as a context manager, "
            "with KeyedOperatorHarness(...) as harness, and inside of that block."
        )


@attrs.define(eq=False, slots=False)
class OutputTypeError(MillpondError, TypeError):
    """A function yielded a row that does not fit the declared output.

    Attributes:
        row: the beginning of the row that the value stands in; empty where the row is the value.
    """

    operator_uid: str
    column: str
    expected: str
    value: str
    reason: str = ""
    row: str = ""

    @override
    def sentence(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        where = f", in the row {self.row}" if self.row else ""
        return (
            f"Operator {self.operator_uid!r}: output column {self.column!r} is declared "
            f"{self.expected}, the function yielded {self.value}{why}{where}."
        )


@attrs.define(eq=False, slots=False)
class UnsupportedColumnError(MillpondError, TypeError):
    """A column has a Spark type that cannot pass through an operator without loss."""

    column: str
    spark_type: str
    reason: str = "this type cannot be carried to Python without loss"

    @override
    def sentence(self) -> str:
        return f"Column {self.column!r} of type {self.spark_type}: {self.reason}. Cast or drop it."


@attrs.define(eq=False, slots=False)
class WindowStateError(MillpondError):
    """A function asked for state of a single window, and the windows merge."""

    state: str
    assigner: str

    @override
    def sentence(self) -> str:
        return (
            f"State {self.state!r} of a single window is not allowed with {self.assigner}, whose "
            "windows merge: a merged window would lose it. Use global_state, or what the windows "
            "keep."
        )
