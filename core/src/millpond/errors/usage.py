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
    """An argument has the right type but cannot be used."""


UNPLACED = "configuration"
"""The place of an error whose source is unknown; see ``millpond.config.option_sources``."""


class ConfigError(MillpondError, ValueError):
    """A configuration key or value cannot be used.

    Attributes:
        key: the key as it is written in its source, if that is known.
        place: the source: a file, Spark's configuration, a call.
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
    """A job, or its function, failed because of its own code.

    Attributes:
        what: the function or the file.
        reason: the raised error, with its line if known.
    """

    message = "{what}: {reason}"

    what: str
    reason: str
