"""The working directory of an open backend: its lock, and the marker of a clean shutdown.

Only one open backend at a time may use the directory. When a backend is closed, its files remain as
a local copy of the state, which the next backend may reopen.

A backend reopens files only if there is a marker. The marker is written after a successful close
and removed before the files are opened again. So a killed process leaves no marker. The marker
contains the size and modification time of each file. This shows if a file was truncated, changed,
lost or added. RocksDB's checksums find other damage; LMDB has none.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import weakref
from functools import cache
from pathlib import Path
from typing import Protocol

import attrs
import cattrs
from typing_extensions import override

from millpond.closeable import Closeable
from millpond.errors import DirectoryInUseError
from millpond.format_versions import LOCAL_COPY
from millpond.spi.byte_store import named


class Inherited(Protocol):
    """An open object that a forked child process inherits and must not use."""

    def disown(self) -> None:
        """Treat the object as closed in this process, without releasing its resources."""


_LOG = logging.getLogger("millpond.restore")

_open: weakref.WeakSet[Inherited] = weakref.WeakSet()
_inherited: list[Inherited] = []
"""The backends of the parent process. They are kept alive in a forked child, because a native
destructor would wait for threads of the parent."""


def close_in_forked_children(backend: Inherited) -> None:
    """Close `backend` in forked child processes, because two processes would corrupt its store."""
    _open.add(backend)


def _disown() -> None:
    for backend in _open:
        _inherited.append(backend)
        backend.disown()
    _open.clear()


os.register_at_fork(after_in_child=_disown)


class DirectoryLock(Closeable):
    """A lock of a directory against other backends in this and other processes.

    The operating system releases the lock when the process dies.

    Raises:
        DirectoryInUseError: another open backend has the lock.
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
        """Close the file of the lock in a forked child process. The parent still has the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @override
    def close(self) -> None:
        """Release the lock, even if a forked child process has inherited the file."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = -1


MARKER_FILE = "millpond-closed.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_MARKER = 16 << 20


@cache
def boot_id() -> str:
    """Return an id that changes with each start of the machine.

    Stores are not synced to disk, so a local copy cannot be trusted after a crash of the machine.
    """
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "boot"


@attrs.frozen
class CleanShutdown:
    """The marker of a backend that was closed successfully.

    Attributes:
        directory: the directory in which the backend was closed. So a copied directory is refused.
        boot: the id of the machine's start.
        version: the version name of the state in the files; None if it has none.
        files: the size and modification time (ns) of each file, by its path in the directory.
    """

    directory: str
    boot: str
    version: str | None
    files: dict[str, tuple[int, int]]

    @classmethod
    def of_directory(cls, directory: Path, version: str | None) -> CleanShutdown:
        """Return the marker for the files in `directory`; raise OSError if one cannot be read."""
        files = {}
        for path in directory.rglob("*") if version is not None else ():
            if not path.is_dir() and path.name != MARKER_FILE:
                status = path.lstat()
                files[path.relative_to(directory).as_posix()] = status.st_size, status.st_mtime_ns
        return cls(str(directory.resolve()), boot_id(), version, files)

    @classmethod
    def read(cls, directory: Path) -> CleanShutdown | None:
        """Return the marker in `directory`; None if there is none or it is damaged."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe does not block
        try:
            with os.fdopen(os.open(directory / MARKER_FILE, flags), "rb") as file:
                tree = json.loads(file.read(_LARGEST_MARKER))
            LOCAL_COPY.check(tree.pop("format_version"))
            return cattrs.structure(tree, cls)
        except Exception:  # noqa: BLE001 - a damaged marker may be anything
            return None

    def write(self, directory: Path) -> None:
        """Write the marker, which must not exist yet; raise OSError if that fails."""
        tree = {"format_version": LOCAL_COPY.version, **cattrs.unstructure(self)}
        with (directory / MARKER_FILE).open("x") as file:
            json.dump(tree, file)

    def damage(self, directory: Path) -> str:
        """Return the reason why the files in `directory` cannot be trusted, or '' if they can."""
        if self.directory != str(directory.resolve()):
            return f"it was closed in {self.directory}"
        if self.boot != boot_id():
            return "the machine was restarted, and local copies are not synced to disk"
        found = self.of_directory(directory, self.version).files
        paths = self.files.keys() | found.keys()
        changed = [path for path in paths if self.files.get(path) != found.get(path)]
        return (
            f"{min(changed)} was changed, added or removed after it was closed" if changed else ""
        )


class WorkingDirectory(Closeable):
    """The working directory of one open backend.

    Args:
        backend: the name of the backend.
        path: the directory, which is created if it is missing.
        exclusive: whether no other backend may be open in the directory.
        keeps: whether a backend may reopen the files (the capability ``local-copy``).

    Raises:
        DirectoryInUseError: another open backend uses the directory.
        StoreAccessError: `path` is not a directory, or cannot be written.
    """

    def __init__(self, backend: str, path: Path, *, exclusive: bool, keeps: bool) -> None:
        self._backend = backend
        self._path = path
        self._keeps = keeps
        with named(backend, path):
            path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(backend, path) if exclusive else None

    def take_over(self, versions: frozenset[str]) -> tuple[frozenset[str], str]:
        """Check the files in the directory before the backend opens them, and remove the marker.

        If the files have no valid marker, or have changed since it was written, they are deleted.
        Files of another version remain, and the backend replaces them.

        Args:
            versions: the version names that the restore can use.

        Returns:
            The version names that the files may have, and the reason why files were deleted (or
            '').
        """
        if not self._keeps:
            return versions, ""
        with named(self._backend, self._path):
            marker = CleanShutdown.read(self._path)
            _remove(self._path / MARKER_FILE)
            if not versions:
                return versions, ""
            if marker is None and next(self._path.iterdir(), None) is not None:
                reason = "it was not closed in good order, as after a process that was killed"
            elif marker is not None and marker.version is not None:
                reason = marker.damage(self._path)
            else:
                reason = ""
            if reason:
                for path in self._path.iterdir():
                    _remove(path)
                return frozenset(), reason
        known = marker.version if marker else None
        return versions & {known} if known else frozenset(), ""

    def leave(self, version: str | None) -> None:
        """Write the marker for the files of the closed backend, so that they can be reopened.

        If that fails, the next start restores the snapshot, which only takes longer.
        """
        if not self._keeps:
            return
        try:
            CleanShutdown.of_directory(self._path, version).write(self._path)
        except OSError as error:
            _LOG.warning("the local copy in %s could not be kept: %s", self._path, error)

    def disown(self) -> None:
        """Treat the directory as closed in a forked child process. The parent keeps the lock."""
        if self._lock is not None:
            self._lock.disown()

    @override
    def close(self) -> None:
        """Release the lock of the directory."""
        if self._lock is not None:
            self._lock.close()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
