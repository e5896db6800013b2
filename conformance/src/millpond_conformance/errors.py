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
        backend: the name of the backend.
        reason: the class and the message of the original error.
        raised_at: the file and the line that raised the original error.
        cure: the remedy, if the kit knows one; otherwise empty.
    """

    backend: str
    reason: str
    raised_at: str
    cure: str = ""

    @override
    def sentence(self) -> str:
        """Return the message of the error."""
        text = f"The backend {self.backend!r} cannot be opened, so no clause was run: {self.reason}"
        return f"{text} ({self.raised_at}){f'. {self.cure}.' if self.cure else ''}"
