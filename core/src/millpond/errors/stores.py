"""Errors of local stores."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError


class DirectoryInUseError(MillpondError):
    """Another open backend works in the directory."""

    message = (
        "The backend {backend!r} cannot be opened in {directory}: another open "
        "backend, of this process or another one, works there. Close that one, or give each "
        "a directory of its own."
    )

    backend: str
    directory: str


class StoreFullError(MillpondError):
    """A local store cannot grow any further."""

    message = (
        "The backend {backend!r} cannot grow its store in {directory}: "
        "{reason}. Raise the memory or disk limit, or use more subtasks."
    )

    backend: str
    directory: str
    reason: str


class StoreAccessError(MillpondError):
    """The operating system refuses access to a backend's directory; ``cure`` names a remedy."""

    message = "The backend {backend!r} cannot use its store in {directory}: {reason}. {cure}."

    backend: str
    directory: str
    reason: str
    cure: str


class StoreDamagedError(MillpondError):
    """The content of a local store is not what the backend wrote."""

    message = (
        "The backend {backend!r} found its store in {directory} damaged: "
        "{reason}. It is a copy: restore the state from its last snapshot, as a "
        "restarted query does by itself, and check the disk."
    )

    backend: str
    directory: str
    reason: str


class TooManyStatesError(MillpondError):
    """A store or a snapshot cannot take another state.

    Attributes:
        backend: the name of the backend whose store is full; empty if it is the snapshot.
        state: the state that exceeds the limit.
        limit: the highest number of states.
        option: the configuration key that sets the limit.
    """

    backend: str
    state: str
    limit: int
    option: str

    @override
    def sentence(self) -> str:
        holder = f"the backend {self.backend!r}" if self.backend else "a snapshot"
        return (
            f"State {self.state!r}: {holder} keeps at most {self.limit:,} states of a subtask. "
            f"Raise {self.option}, or keep several things in one state."
        )
