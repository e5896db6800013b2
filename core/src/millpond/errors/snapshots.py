"""Errors of snapshots and restore."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError


@attrs.define(eq=False, slots=False)
class CorruptSnapshotError(MillpondError):
    """A file of a snapshot is damaged, missing or foreign."""

    file: str
    reason: str

    @override
    def sentence(self) -> str:
        return f"The snapshot file {self.file!r} cannot be trusted: {self.reason}."


@attrs.define(eq=False, slots=False)
class DirectoryNotEmptyError(MillpondError):
    """A savepoint was to be written to a place that already holds files."""

    path: str
    found: tuple[str, ...]
    unfinished: str = ""

    @override
    def sentence(self) -> str:
        return (
            f"A savepoint needs a directory of its own, and {self.path!r} already holds "
            f"{', '.join(map(repr, self.found))}: "
            f"{self.unfinished or 'name a new directory, or empty this one'}."
        )


@attrs.define(eq=False, slots=False)
class RestoreError(MillpondError):
    """State could not be restored from any of its sources."""

    what: str
    causes: tuple[str, ...]

    @override
    def sentence(self) -> str:
        return f"Could not restore {self.what}: " + "; ".join(self.causes)


@attrs.define(eq=False, slots=False)
class ApiVersionError(RestoreError):
    """Something was written by a newer Millpond."""

    what: str
    found: int
    supported: int
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        return (
            f"{self.what} has format version {self.found}, this Millpond reads up to "
            f"{self.supported}: upgrade millpond."
        )


@attrs.define(eq=False, slots=False)
class IncompleteCheckpointError(RestoreError):
    """A subtask has files of a checkpoint, but no metadata that says what they are."""

    what: str
    folder: str
    checkpoint_id: int
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        return (
            f"{self.what} is incomplete: {self.folder!r} has files of checkpoint "
            f"{self.checkpoint_id} and no metadata for them, which is still to be written, was "
            "never written, or is lost: wait, or name an earlier checkpoint."
        )


@attrs.define(eq=False, slots=False)
class NotInSavepointError(RestoreError):
    """A savepoint has no operator, or an operator no state, of a name.

    Attributes:
        what: where it was looked for: a savepoint, or one of its operators.
        kind: ``operator`` or ``state``.
        name: what was looked for.
        known: what there is.
        suggestion: the known name that is most like it.
    """

    what: str
    kind: str
    name: str
    known: tuple[str, ...]
    suggestion: str | None = None
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        there = ", ".join(map(repr, self.known)) or "none"
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.what} has no {self.kind} {self.name!r}; there are: {there}.{hint}"


@attrs.define(eq=False, slots=False)
class SnapshotTooLargeError(MillpondError):
    """A file of a snapshot or savepoint would be refused when it is read, so it is not written.

    Attributes:
        path: the file.
        limit: the bytes that it may have, or may need when it is read.
        state: the state whose rows exceed the limit; empty if unknown.
        cure: how to raise the limit or to stay below it.
    """

    path: str
    limit: int
    state: str = ""
    cure: str = "raise max-file-bytes, or set checkpoint.dir to a directory"

    @override
    def sentence(self) -> str:
        whose = f" with state {self.state!r}" if self.state else ""
        return (
            f"The file {self.path!r}{whose} is not written: it exceeds {self.limit:,} bytes, so "
            f"that no restart could read it: {self.cure}."
        )


@attrs.define(eq=False, slots=False)
class StorageAccessError(MillpondError):
    """A file of a checkpoint directory or savepoint cannot be used; ``cure`` says what would help.

    What lies there is not in doubt: the disk is full, a right or a descriptor is missing.
    """

    path: str
    reason: str
    cure: str

    @override
    def sentence(self) -> str:
        return f"The file {self.path!r} cannot be written or read: {self.reason}. {self.cure}."


@attrs.define(eq=False, slots=False)
class UnclaimedStateError(RestoreError):
    """There is state of operators that the query does not have."""

    what: str
    uids: tuple[str, ...]
    operators: tuple[str, ...]
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        names = ", ".join(map(repr, self.uids))
        have = ", ".join(map(repr, self.operators))
        return (
            f"{self.what} holds state of {names}, but the query's operators are {have}. State is "
            "found by the uid: give the operator its old one, or set "
            "spark.millpond.checkpoint.ignore-unclaimed-state = true to give that state up."
        )


@attrs.define(eq=False, slots=False)
class UnsettledStartError(RestoreError):
    """A query needs a command before it goes on, over Spark Connect; ``command`` is it."""

    what: str
    reason: str
    command: str
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        return (
            f"{self.what} cannot go on so: {self.reason}. While the query is "
            f"stopped, run: {self.command}"
        )
