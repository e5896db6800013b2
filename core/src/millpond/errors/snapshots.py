"""Errors of snapshots and restore."""

from __future__ import annotations

from typing_extensions import override

from millpond.errors.base import MillpondError, hint


class CorruptSnapshotError(MillpondError):
    """A file of a snapshot is damaged, missing or not a snapshot."""

    message = "The snapshot file {file!r} cannot be trusted: {reason}."

    file: str
    reason: str


class DirectoryNotEmptyError(MillpondError):
    """The directory of a new savepoint already contains files."""

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
    """A newer Millpond wrote the file."""

    message = (
        "{what} has format version {found}, this Millpond reads up to "
        "{supported}: upgrade millpond."
    )

    found: int = 0
    supported: int = 0


class IncompleteCheckpointError(RestoreError):
    """A subtask has files of a checkpoint, but no metadata for them."""

    message = (
        "{what} is incomplete: {folder!r} has files of checkpoint "
        "{checkpoint_id} and no metadata for them, which is still to be written, was "
        "never written, or is lost: wait, or name an earlier checkpoint."
    )

    folder: str = ""
    checkpoint_id: int = 0


class NotInSavepointError(RestoreError):
    """A savepoint has no operator of a name, or an operator no state of a name.

    Attributes:
        what: the searched savepoint or operator.
        kind: ``operator`` or ``state``.
        name: the missing name.
        known: the existing names.
        suggestion: the existing name that is most similar.
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
    """A file of a snapshot or savepoint is not written, since a reader would refuse it.

    Attributes:
        path: the file.
        limit: the bytes that the file may have, or that a reader may need for it.
        state: the state whose rows exceed the limit; empty if unknown.
        cure: how to raise the limit or to remain below it.
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
    """A file of a checkpoint directory or savepoint cannot be read or written now.

    The file is not damaged: the disk is full, or a permission or file descriptor is missing.
        ``cure``
    says what would help.
    """

    message = "The file {path!r} cannot be written or read: {reason}. {cure}."

    path: str
    reason: str
    cure: str


class UnclaimedStateError(RestoreError):
    """The stored state includes operators that the query does not have."""

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
    """Over Spark Connect, a query needs the command ``command`` before it can go on."""

    message = "{what} cannot continue: {reason}. While the query is stopped, run: {command}"

    reason: str = ""
    command: str = ""
