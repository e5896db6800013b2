"""Errors of local stores: their directories, their limits, damage."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError


@attrs.define(eq=False, slots=False)
class DirectoryInUseError(MillpondError):
    """A backend was to be opened in a directory that another open backend works in."""

    backend: str
    directory: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} cannot be opened in {self.directory}: another open "
            "backend, of this process or another one, works there. Close that one, or give each "
            "a directory of its own."
        )


@attrs.define(eq=False, slots=False)
class StoreFullError(MillpondError):
    """A local store cannot grow any further."""

    backend: str
    directory: str
    reason: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} cannot grow its store in {self.directory}: "
            f"{self.reason}. Raise the memory or disk limit, or use more subtasks."
        )


@attrs.define(eq=False, slots=False)
class StoreAccessError(MillpondError):
    """The operating system does not let a backend use its directory; ``cure`` says what would."""

    backend: str
    directory: str
    reason: str
    cure: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} cannot use its store in {self.directory}: "
            f"{self.reason}. {self.cure}."
        )


@attrs.define(eq=False, slots=False)
class StoreDamagedError(MillpondError):
    """A local store does not hold what was written to it."""

    backend: str
    directory: str
    reason: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} found its store in {self.directory} damaged: "
            f"{self.reason}. It is a copy: restore the state from its last snapshot, as a "
            "restarted query does by itself, and check the disk."
        )


@attrs.define(eq=False, slots=False)
class TooManyStatesError(MillpondError):
    """A store or a snapshot takes no further state.

    Attributes:
        backend: the name of the backend whose store is full; empty if it is the snapshot.
        state: the state that is one too many.
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
