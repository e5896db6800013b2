"""The directory of a new savepoint is reserved for one writer."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import Self

import attrs

from millpond.checkpoint.savepoint.savepoint_file import (
    MARKER_ENDING,
    SavepointHandle,
    unfinished,
)
from millpond.errors import DirectoryNotEmptyError
from millpond.storage.checkpoint_storage import public_uri

__all__ = ["Reservation", "reserved"]


@attrs.frozen
class Reservation:
    """A context manager; at its end the savepoint is complete, or what was written is deleted."""

    handle: SavepointHandle
    marker: str

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Delete all files where there was an error, then see ``release``."""
        if error is not None:
            self._discard()
        self.release()

    def _discard(self) -> None:
        storage = self.handle.storage
        for path in storage.list(self.handle.folder):
            if not path.endswith(MARKER_ENDING):
                storage.delete(path)

    def release(self) -> None:
        """Take the marker away; may be called twice."""
        self.handle.storage.delete(self.handle.path(self.marker))


def reserved(handle: SavepointHandle) -> Reservation:
    """Reserve a place without files: a savepoint must not be mixed with anything else.

    A marker is written before looking, so of several writers at a time each sees the others',
    or finds what they have written: one of them goes on, or none.

    Raises:
        DirectoryNotEmptyError: the place holds files, or somebody else is about to write there.
    """
    marker = f"{uuid.uuid4().hex}{MARKER_ENDING}"
    storage = handle.storage
    held = storage.list(handle.folder)
    if not held:
        storage.write(handle.path(marker), [b""])
        held = [path for path in storage.list(handle.folder) if path != handle.path(marker)]
        if not held:
            return Reservation(handle, marker)
        storage.delete(handle.path(marker))
    held.sort(key=lambda path: not path.endswith(MARKER_ENDING))
    shown = (*held[:3], "…") if len(held) > 3 else tuple(held)  # noqa: PLR2004
    place = "/".join(filter(None, (public_uri(storage.uri), handle.folder)))
    raise DirectoryNotEmptyError(place, shown, unfinished(handle))
