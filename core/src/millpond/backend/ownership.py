"""To whom an open backend and its directory belong: one backend, in the process that opened it."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.closing import Closeable
from millpond.errors import DirectoryInUseError

if TYPE_CHECKING:
    from millpond.backend.keyed import KeyedStateBackend

__all__ = ["DirectoryLock", "close_in_forked_children"]

_open: weakref.WeakSet[KeyedStateBackend] = weakref.WeakSet()
_inherited: list[KeyedStateBackend] = []
"""Of the parent process. Kept, since a native destructor would wait for threads of the parent."""


def close_in_forked_children(backend: KeyedStateBackend) -> None:
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
        """Have no part in the lock any more, in a forked child: it stays the parent's."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Free the directory, also where a forked child has inherited the descriptor."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1
