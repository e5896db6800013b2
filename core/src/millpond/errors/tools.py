"""Errors of the command line: what it was given cannot be used."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError

__all__ = ["JobError", "PlaceError"]


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
