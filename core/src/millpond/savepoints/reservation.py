"""The directory of a new savepoint is reserved for one writer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Container, Iterable
from pathlib import PurePosixPath
from types import TracebackType
from typing import Self

import attrs

from millpond.errors import CorruptSnapshotError, DirectoryNotEmptyError, StorageAccessError
from millpond.savepoints.savepoint_file import MARKER_ENDING, METADATA_FILE, unfinished
from millpond.snapshots.handles import SavepointHandle
from millpond.storage.checkpoint_storage import public_uri

_LOG = logging.getLogger("millpond.checkpoint")


@attrs.frozen
class Reservation:
    """A context manager; at its end the savepoint is complete, or what was written is deleted.

    Attributes:
        handle: the place.
        uids: the operators that the savepoint is to hold.
        marker: the name of the file that shows that somebody writes there.
        folders: the paths of those that were there before, empty as they are.
        remove_new: deletes the place, and those it lies in, that were not there before, if empty.
    """

    handle: SavepointHandle
    uids: frozenset[str]
    marker: str
    folders: frozenset[str]
    remove_new: Callable[[], None]

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See ``release`` and ``abandon``."""
        if error is None:
            self.release()
        else:
            self.abandon()

    def abandon(self) -> None:
        """Release it after an error, which counts: delete the savepoint's files first.

        If that fails, too, the log says so.
        """
        for step in (self._discard, self.release):
            try:
                step()
            except Exception as failed:  # noqa: BLE001 - any storage's; the first error counts
                place = _place(self.handle)
                _LOG.warning("%s: what a failed savepoint has left stays: %s", place, failed)

    def _discard(self) -> None:
        storage = self.handle.storage
        for path in written_files(self.handle, self.uids):
            storage.delete(path)
        storage.delete_empty(filter(self._has_made, storage.not_files(self.handle.folder)))

    def _has_made(self, path: str) -> bool:
        """Whether a folder is that of an operator, or of a state, and was not there before."""
        operator, *state = PurePosixPath(path).relative_to(self.handle.folder).parts
        return path not in self.folders and operator in self.uids and len(state) <= 1

    def release(self) -> None:
        """Take the marker away, or warn where that fails; and a new place without anything."""
        if self.handle.storage.delete_if_possible(self.handle.path(self.marker)):
            self.remove_new()


def reserved(handle: SavepointHandle, uids: Iterable[str]) -> Reservation:
    """Reserve a place without files: a savepoint must not be mixed with anything else.

    A marker is written before looking, so of several writers at a time each sees the others',
    or finds what they have written: one of them goes on, or none.

    Args:
        handle: the place.
        uids: the operators that the savepoint is to hold.

    Raises:
        DirectoryNotEmptyError: the place holds files, or somebody else is about to write there.
        StorageAccessError: it is no directory, or cannot be read.
    """
    marker = f"{uuid.uuid4().hex}{MARKER_ENDING}"
    storage = handle.storage
    remove_new = storage.remover_of_new(handle.folder)
    try:
        held = storage.list(handle.folder)
    except CorruptSnapshotError as error:
        cure = "Name a directory that does not exist yet"
        raise StorageAccessError(_place(handle), error.reason, cure) from error
    if not held:
        folders = frozenset(storage.not_files(handle.folder))
        try:
            storage.write(handle.path(marker), [b""])
        except BaseException:
            remove_new()
            raise
        held = [path for path in storage.list(handle.folder) if path != handle.path(marker)]
        if not held:
            return Reservation(handle, frozenset(uids), marker, folders, remove_new)
        storage.delete(handle.path(marker))
    held.sort(key=lambda path: not path.endswith(MARKER_ENDING))
    shown = (*held[:3], "…") if len(held) > 3 else tuple(held)  # noqa: PLR2004
    raise DirectoryNotEmptyError(_place(handle), shown, unfinished(handle))


def written_files(handle: SavepointHandle, uids: Container[str]) -> list[str]:
    """What has been written of the savepoint in a reserved place: tables, and its metadata.

    Nobody keeps others from writing into folders below it meanwhile, so a savepoint there, complete
    or begun, is left out, and so is what is no table in the folder of a state of these operators.
    """
    root = PurePosixPath(handle.folder)
    paths = [PurePosixPath(path) for path in handle.storage.list(handle.folder)]
    marked = (path for path in paths if path.name == METADATA_FILE or path.suffix == MARKER_ENDING)
    others = {path.parent for path in marked} - {root}
    ours = (path for path in paths if path == root / METADATA_FILE or _is_table(path, root, uids))
    return [str(path) for path in ours if others.isdisjoint(path.parents)]


def _is_table(path: PurePosixPath, root: PurePosixPath, uids: Container[str]) -> bool:
    """Whether it is named as tables are: one of the operators, state and file."""
    within = path.suffix == ".parquet" and path.parents[2:3] == (root,)
    return within and path.parents[1].name in uids


def _place(handle: SavepointHandle) -> str:
    return "/".join(filter(None, (public_uri(handle.storage.uri), handle.folder)))
