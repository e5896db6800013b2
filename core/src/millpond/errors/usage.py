"""Errors of arguments, of configuration and of tools."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError


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


UNPLACED = "configuration"
"""The place of an error if only the key is known; see ``millpond.config.option_sources``."""


@attrs.define(eq=False, slots=False)
class ConfigError(MillpondError, ValueError):
    """A configuration key or value cannot be used.

    Attributes:
        key: as it is written at the place, where that is known.
        place: a file and line, Spark's configuration, a call.
    """

    key: str
    reason: str
    place: str = UNPLACED
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.place}: {self.key}: {self.reason}.{hint}"


@attrs.define(eq=False, slots=False)
class PlaceError(MillpondError):
    """A directory or file that a command was given cannot be used."""

    place: str
    reason: str

    @override
    def sentence(self) -> str:
        text = f"{self.place}: {self.reason}"
        return text if text.endswith("?") else f"{text}."


@attrs.define(eq=False, slots=False)
class JobError(MillpondError):
    """A job, or its function, failed for a reason that lies in it.

    ``what`` is the function or the file, ``reason`` what was raised, with the line where known.
    """

    what: str
    reason: str

    @override
    def sentence(self) -> str:
        return f"{self.what}: {self.reason}"
