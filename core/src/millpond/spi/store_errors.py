"""Translation of the operating system's errors at a local store, with place and cure."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.errors import MillpondError, StoreAccessError, StoreDamagedError, StoreFullError

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM)
_OPEN_FILES = (
    "Raise the limit of open files (ulimit -n), let stores keep fewer open, or use fewer subtasks "
    "in a process"
)
_NO_DIRECTORY = "Move the file that has its name, or name another directory"
_NO_RIGHT = "Give this user the right to write there, or name another directory"
_CURES = {
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.EISDIR: _NO_DIRECTORY,
    errno.ELOOP: _NO_DIRECTORY,
    errno.ENAMETOOLONG: "Name a directory with a shorter path",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.ENOENT: "Make the directory again, and do not delete it while it is in use",
    errno.EAGAIN: "Raise the limit of threads and processes (ulimit -u), or use fewer subtasks",
}
_TEXTS = {number: os.strerror(number) for number in (*_FULL, *_CURES, errno.EIO)}


def store_error(
    backend: str,
    directory: str | Path,
    error: BaseException | str,
    cure: str = "Check the file system",
    *,
    damaged: bool = False,
    full: bool = False,
) -> MillpondError:
    """Return the error to raise for an error of a store.

    Args:
        backend: the backend's name.
        directory: the directory of its store.
        error: an ``OSError``, or a native library's error or message, which quotes the text of the
            operating system's error if there was one.
        cure: what to do about an error of another kind.
        damaged: whether the native library has found damage.
        full: whether the native library has found no room.
    """
    place, reason = str(directory), str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        number = next((known for known, text in _TEXTS.items() if text in reason), None)
    if damaged or (number == errno.EIO and not full):
        return StoreDamagedError(backend, place, reason)
    if full or number in _FULL:
        return StoreFullError(backend, place, reason)
    return StoreAccessError(backend, place, reason, _CURES.get(number or 0, cure))


@contextmanager
def named(backend: str, directory: str | Path) -> Iterator[None]:
    """Turn errors of the operating system into ones that name backend and directory.

    Raises:
        StoreFullError, StoreDamagedError, StoreAccessError: see ``store_error``.
    """
    try:
        yield
    except OSError as error:
        raise store_error(backend, directory, error) from error


def fits_address_space(more: int) -> bool:
    """Return whether the process can allocate more bytes under its address-space limit.

    Check this first: a native library that gets no memory ends the process.
    """
    try:
        mmap.mmap(-1, more).close()
    except (OSError, MemoryError, ValueError):
        return False
    return True
