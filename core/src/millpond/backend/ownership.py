"""Ownership of a directory: one open backend owns it, in the process that opened the backend."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from millpond.backend.ownership import SEAL_FILE, Seal, break_seal, write_seal
from millpond.closeable import Closeable
from millpond.errors import DirectoryInUseError
from millpond.spi.store_errors import named


class Inherited(Protocol):
    """An open object that a forked child inherits and must leave alone."""

    def disown(self) -> None:
        """Count as closed in this process, but release nothing."""


_LOG = logging.getLogger("millpond.restore")

_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_inherited: list[Inherited] = []
"""The parent's backends, kept alive: a native destructor would wait for threads of the parent."""


def close_in_forked_children(backend: Inherited) -> None:
    """Close the backend in forked children: two processes would corrupt its store."""
    _open.add(backend)


def _disown() -> None:
    for backend in _open:
        _inherited.append(backend)
        backend.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown)


class DirectoryLock(Closeable):
    """Locks a directory against other backends in this and other processes.

    The kernel frees the lock when the process dies.

    Raises:
        DirectoryInUseError: an open backend holds the lock.
    """

    def __init__(self, backend: str, directory: Path) -> None:
        self._file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                raise DirectoryInUseError(backend, str(directory)) from None
            raise

    def disown(self) -> None:
        """Close the file in a forked child; the lock stays the parent's."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @override
    def close(self) -> None:
        """Free the directory, even if a forked child has inherited the descriptor."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1


class WorkingDirectory(Closeable):
    """The directory of one open backend: locked while it is open, sealed when it is closed.

    Args:
        backend: its name.
        path: the directory; it is created if it is missing.
        exclusive: whether no other backend may be open there.
        keeps: whether a backend may reopen what is left there (the capability ``local-copy``).

    Raises:
        DirectoryInUseError: another open backend owns the directory.
        StoreAccessError: the path is not a directory, or cannot be written.
    """

    def __init__(self, backend: str, path: Path, *, exclusive: bool, keeps: bool) -> None:
        self._backend = backend
        self._path = path
        self._keeps = keeps
        with named(backend, path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(backend, path) if exclusive else None

    def take_over(self, versions: frozenset[str]) -> tuple[frozenset[str], str]:
        """Break the seal; return which versions may be there, and why a copy was deleted.

        Opens nothing. Deletes a copy without a sound seal; leaves one at a version that the
        restore cannot use to the backend.
        """
        if not self._keeps:
            return versions, ""
        with named(self._backend, self._path):
            if not versions:
                break_seal(self._path)
                return versions, ""
            seal = Seal.read(self._path)
            reason = self._damage(seal)
            break_seal(self._path)
            if reason:
                self._empty()
                return frozenset(), reason
        known = seal.version if seal else None
        return versions & {known} if known else frozenset(), ""

    def _damage(self, seal: Seal | None) -> str:
        if seal is not None and seal.version is not None:
            return seal.damage(self._backend, self._path)
        if seal is None and any(path.name != SEAL_FILE for path in self._path.iterdir()):
            return "it has no sound seal, as after a process that was killed or has failed"
        return ""

    def _empty(self) -> None:
        for path in self._path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def seal(self, version: str | None, trusted: str) -> None:
        """Seal the files of the closed backend; see ``write_seal``.

        Without a seal the next start restores the snapshot; nothing is lost but time.
        """
        if not self._keeps:
            return
        try:
            write_seal(self._backend, self._path, version, trusted)
        except OSError as error:
            _LOG.warning("the local copy in %s could not be sealed: %s", self._path, error)

    def disown(self) -> None:
        """Release the object in a forked child; the directory stays the parent's."""
        if self._lock is not None:
            self._lock.disown()

    @override
    def close(self) -> None:
        """Free the directory."""
        if self._lock is not None:
            self._lock.close()


class Stay:
    """An open backend's use of its working directory, if it has one, from opening to closing.

    Attributes:
        ended: whether the backend was closed, or belongs to the parent of a forked child.
        sound: whether a backend may later reopen the files in the directory.
    """

    def __init__(self) -> None:
        self.ended = False
        self.sound = True
        self._directory: WorkingDirectory | None = None

    def begin(self, directory: WorkingDirectory) -> None:
        """Take the directory; ``ending`` frees it."""
        self._directory = directory

    def seal(self, version: str | None, trusted: str) -> None:
        """Seal the files of the closed backend if they are sound."""
        if self._directory is not None and self.sound:
            self._directory.seal(version, trusted)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Free the directory afterwards, even if closing the backend fails."""
        self.ended = True
        try:
            yield
        finally:
            if self._directory is not None:
                self._directory.close()

    def disown(self) -> None:
        """End in a forked child: the directory stays the parent's."""
        self.ended = True
        if self._directory is not None:
            self._directory.disown()
