"""Errors of arguments."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError

__all__ = ["ArgumentTypeError", "ArgumentValueError"]


@attrs.define(eq=False, slots=False)
class ArgumentTypeError(MillpondError, TypeError):
    """An argument is of a wrong type."""

    parameter: str
    expected: str
    given: str

    @override
    def sentence(self) -> str:
        return f"{self.parameter}: expected {self.expected}, got {self.given}."


@attrs.define(eq=False, slots=False)
class ArgumentValueError(MillpondError, ValueError):
    """An argument is of the right type, and cannot be used."""

    parameter: str
    expected: str
    given: str

    @override
    def sentence(self) -> str:
        return f"{self.parameter}: expected {self.expected}, got {self.given}."
