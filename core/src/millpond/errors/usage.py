"""Errors of arguments, of configuration and of tools."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError, hint


class _ArgumentError(MillpondError):
    message = "{parameter}: expected {expected}, got {given}."
    parameter: str
    expected: str
    given: str


class ArgumentTypeError(_ArgumentError, TypeError):
    """An argument is of a wrong type."""


class ArgumentValueError(_ArgumentError, ValueError):
    """An argument is of the right type, and cannot be used."""


UNPLACED = "configuration"
"""The place of an error if only the key is known; see ``millpond.config.option_sources``."""


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
        return f"{self.place}: {self.key}: {self.reason}.{hint(self.suggestion)}"


class PlaceError(MillpondError):
    """A directory or file that a command was given cannot be used."""

    place: str
    reason: str

    @override
    def sentence(self) -> str:
        text = f"{self.place}: {self.reason}"
        return text if text.endswith("?") else f"{text}."


class JobError(MillpondError):
    """A job, or its function, failed for a reason that lies in it.

    ``what`` is the function or the file, ``reason`` what was raised, with the line where known.
    """

    message = "{what}: {reason}"

    what: str
    reason: str
