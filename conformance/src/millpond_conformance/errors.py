"""Errors of the kit itself."""

from __future__ import annotations

from millpond.errors import MillpondError
from typing_extensions import override


class HarnessError(MillpondError):
    """The kit could not run, so it says nothing about the backend."""

    backend: str
    reason: str

    message = "The kit could not run against {backend!r}: {reason}"


class UnopenableBackendError(MillpondError):
    """A backend cannot even be opened, so no clause was run.

    Attributes:
        backend: its name.
        reason: the class and message of the error.
        raised_at: the file and line that raised it.
        cure: the remedy, if the kit knows one.
    """

    backend: str
    reason: str
    raised_at: str
    cure: str = ""

    @override
    def sentence(self) -> str:
        """Return the message."""
        text = f"The backend {self.backend!r} cannot be opened, so no clause was run: {self.reason}"
        return f"{text} ({self.raised_at}){f'. {self.cure}.' if self.cure else ''}"
