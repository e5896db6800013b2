"""Errors of snapshots and restore."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError, hint


class CorruptSnapshotError(MillpondError):
    """A file of a snapshot is damaged, missing or foreign."""

    message = "The snapshot file {file!r} cannot be trusted: {reason}."

    file: str
    reason: str


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


class RestoreError(MillpondError):
    """State could not be restored from any of its sources."""

    what: str
    causes: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        if not self.causes:
            return super().sentence()
        return f"Could not restore {self.what}: " + "; ".join(self.causes)


class ApiVersionError(RestoreError):
    """Something was written by a newer Millpond."""

    message = (
        "{what} has format version {found}, this Millpond reads up to "
        "{supported}: upgrade millpond."
    )

    found: int = 0
    supported: int = 0


class IncompleteCheckpointError(RestoreError):
    """A subtask has files of a checkpoint, but no metadata that says what they are."""

    message = (
        "{what} is incomplete: {folder!r} has files of checkpoint "
        "{checkpoint_id} and no metadata for them, which is still to be written, was "
        "never written, or is lost: wait, or name an earlier checkpoint."
    )

    folder: str = ""
    checkpoint_id: int = 0


class NotInSavepointError(RestoreError):
    """A savepoint has no operator, or an operator no state, of a name.

    Attributes:
        what: where it was looked for: a savepoint, or one of its operators.
        kind: ``operator`` or ``state``.
        name: what was looked for.
        known: what there is.
        suggestion: the known name that is most like it.
    """

    kind: str = ""
    name: str = ""
    known: tuple[str, ...] = ()
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        there = ", ".join(map(repr, self.known)) or "none"
        missing = f"{self.what} has no {self.kind} {self.name!r}"
        return f"{missing}; there are: {there}.{hint(self.suggestion)}"


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


class StorageAccessError(MillpondError):
    """A file of a checkpoint directory or savepoint cannot be used; ``cure`` says what would help.

    What lies there is not in doubt: the disk is full, a right or a descriptor is missing.
    """

    message = "The file {path!r} cannot be written or read: {reason}. {cure}."

    path: str
    reason: str
    cure: str


class UnclaimedStateError(RestoreError):
    """There is state of operators that the query does not have."""

    uids: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @override
    def sentence(self) -> str:
        names = ", ".join(map(repr, self.uids))
        have = ", ".join(map(repr, self.operators))
        return (
            f"{self.what} holds state of {names}, but the query's operators are {have}. State is "
            "found by the uid: give the operator its old one, or set "
            "spark.millpond.checkpoint.ignore-unclaimed-state = true to give that state up."
        )


class UnsettledStartError(RestoreError):
    """A query needs a command before it goes on, over Spark Connect; ``command`` is it."""

    message = "{what} cannot go on so: {reason}. While the query is stopped, run: {command}"

    reason: str = ""
    command: str = ""
