"""Ownership of a directory: one open backend has it, in the process that opened that backend."""

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

from millpond.backend.failures import named
from millpond.backend.local_copy_seal import SEAL_FILE, Seal, break_seal, write_seal
from millpond.closing import Closeable
from millpond.errors import DirectoryInUseError

__all__ = ["DirectoryLock", "Stay", "WorkingDirectory", "close_in_forked_children"]


class Inherited(Protocol):
    """What a forked child finds open, and must leave alone."""

    def disown(self) -> None:
        """Be closed in this process, and release nothing."""


_LOG = logging.getLogger("millpond.restore")

_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_inherited: list[Inherited] = []
"""Of the parent process. Kept, since a native destructor would wait for threads of the parent."""


def close_in_forked_children(backend: Inherited) -> None:
    """Have a forked child find the backend closed: two processes would spoil its store."""
    _open.add(backend)


def _disown() -> None:
    for backend in _open:
        _inherited.append(backend)
        backend.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown)


class DirectoryLock(Closeable):
    """Holds a directory against other backends, of this process and of others.

    The kernel frees the lock when the process dies.

    Raises:
        DirectoryInUseError: an open backend holds it.
    """

    def __init__(self, backend: str, directory: Path) -> None:
        self._file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise DirectoryInUseError(backend, str(directory)) from None

    def disown(self) -> None:
        """Close the file in a forked child; the lock stays the parent's."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @override
    def close(self) -> None:
        """Free the directory, also where a forked child has inherited the descriptor."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1


class WorkingDirectory(Closeable):
    """The directory of one open backend: locked while it is open, sealed when it is closed.

    Args:
        backend: its name.
        path: the directory, which is made where there is none.
        exclusive: whether no other backend may be open there.
        keeps: whether what is left there may be opened again (the capability ``local-copy``).

    Raises:
        DirectoryInUseError: another open backend has it.
        StoreAccessError: it is not a directory, or cannot be written.
    """

    def __init__(self, backend: str, path: Path, *, exclusive: bool, keeps: bool) -> None:
        self._backend = backend
        self._path = path
        self._keeps = keeps
        with named(backend, path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(backend, path) if exclusive else None

    def take_over(self, versions: frozenset[str]) -> tuple[frozenset[str], str]:
        """Break the seal; what of some versions may be there, and why a copy was thrown away.

        Nothing is opened here. A copy without a sound seal is deleted; one at a version that
        the restore cannot use is left to the backend.
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
        """Seal what the closed backend has left; see ``write_seal``.

        Without a seal the next start restores the snapshot; nothing else is lost.
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
    """An open backend's stay in its working directory, if it has one, and how it leaves that.

    Attributes:
        ended: whether the backend was closed, or belongs to the parent of a forked child.
        sound: whether what will be left in the directory may be opened again.
    """

    def __init__(self) -> None:
        self.ended = False
        self.sound = True
        self._directory: WorkingDirectory | None = None

    def begin(self, directory: WorkingDirectory) -> None:
        """Be given the directory, to be freed at the end."""
        self._directory = directory

    def seal(self, version: str | None, trusted: str) -> None:
        """Seal what the closed backend has left, if it is sound."""
        if self._directory is not None and self.sound:
            self._directory.seal(version, trusted)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Whatever happens while the backend is closed, the directory is free afterwards."""
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
