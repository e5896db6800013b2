"""A checkpoint storage in a local or mounted directory. It uses only regular files."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import attrs
from typing_extensions import override

from millpond.errors import (
    ConfigError,
    CorruptSnapshotError,
    MillpondError,
    StorageAccessError,
    brief,
)
from millpond.safe_decoding import is_unicode
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path, exactly, public_uri

_MAX_NAME = 255
_BEGUN = re.compile(r"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.[0-9a-f]{8}\.tmp")
"""The path of a file that is still being written."""
_ROOM = "Make room on that disk, or raise the limit, and try again"
_RIGHT = "Give this user the right to write there, or name another directory"
_PLACE = "Move the file that has its name, or name another directory"
_FEWER = "let stores keep fewer open, or use fewer subtasks in a process"
_OPEN_FILES = (errno.EMFILE, errno.ENFILE)
CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _ROOM),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHT),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP), _PLACE),
    **dict.fromkeys(_OPEN_FILES, f"Raise the limit of open files (ulimit -n), {_FEWER}"),
    errno.ENAMETOOLONG: "Name a directory with a shorter path",
    errno.ENOENT: "Make the directory again, and do not delete it while it is in use",
    errno.EAGAIN: "Raise the limit of threads and processes (ulimit -u), or use fewer subtasks",
}
"""Advice for errors of the operating system, by error number."""
_LOG = logging.getLogger("millpond.checkpoint")


def check_local_path(path: str | os.PathLike[str]) -> bytes:
    """Return `path` as bytes; raise ConfigError if the operating system does not accept it."""
    text = os.fspath(path)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(brief(text), f"it cannot be a file's name: {error}", "path") from error
    if b"\0" in encoded:
        raise ConfigError(brief(text), "it cannot be a file's name: it holds a zero byte", "path")
    if any(len(part) > _MAX_NAME for part in encoded.split(b"/")):
        raise ConfigError(brief(text), f"a name is longer than {_MAX_NAME} bytes", "path")
    return encoded


def local_uri(path: str | os.PathLike[str]) -> str:
    """Return the ``file:`` URI of a local path. The path may be relative or begin with ``~``."""
    absolute = Path(path).expanduser().absolute()
    encoded = check_local_path(absolute)
    return "file://" + quote(encoded)


@attrs.frozen(slots=False)
class LocalStorage(CheckpointStorage):
    """A storage of files below a local directory.

    A new file gets its name by a rename when it is complete. Pipes, devices, sockets and
    directories at the path of a file are refused, and no read waits for them. If the directory
    contains symbolic links, no file outside it is listed or deleted through them. The directory
    itself may be a link.
    """

    uri: str

    @cached_property
    def _root(self) -> str:
        return os.fsdecode(unquote_to_bytes(self.uri.removeprefix("file://"))) or "/"

    @property
    def directory(self) -> Path:
        """The root directory of the storage. It may be missing."""
        return Path(self._root)

    def _full(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))  # noqa: PTH118 - once a read

    @override
    def open_writer(self, path: str) -> _LocalFileWriter:
        full = Path(self._full(path))
        with _refusals(full):
            return _LocalFileWriter(full)

    @override
    def read(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise CorruptSnapshotError(path, "a part of it would begin before the file")
        try:
            # Without O_NONBLOCK, opening a pipe waits until another process opens it for writing.
            descriptor = os.open(self._full(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                held = _regular_size(path, os.fstat(descriptor))
                room = max(held - offset, 0)
                return exactly(path, _read_at(descriptor, offset, min(length, room)), length)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise CorruptSnapshotError(path, "it is missing") from None
        except OSError as error:
            raise _failure(path, "read", error) from error

    @override
    def size(self, path: str) -> int:
        try:
            return _regular_size(path, os.stat(self._full(path)))  # noqa: PTH116 - a plain call
        except FileNotFoundError:
            raise CorruptSnapshotError(path, "it is missing") from None
        except OSError as error:
            raise _failure(path, "read", error) from error

    @override
    def delete(self, path: str) -> None:
        """Delete the file at `path`, unless a symbolic link in `path` leads out of the root."""
        target = Path(self._full(path))
        if not self._inside(str(target.parent)):
            _LOG.warning("%s: not deleted, for a symbolic link puts it outside", target)
            return
        with _refusals(target):
            target.unlink(missing_ok=True)

    @override
    def delete_empty(self, folders: Iterable[str]) -> None:
        for folder in sorted(folders, reverse=True):
            with suppress(OSError):
                self._folder(folder).rmdir()

    @override
    def remover_of_new(self, folder: str) -> Callable[[], None]:
        place = self._folder(folder)
        new: list[Path] = []
        with suppress(OSError):  # if a check fails, the path may exist: keep parents
            new += [each for each in (place, *place.parents) if not each.exists()]

        def remove() -> None:
            with suppress(OSError):
                for each in new:
                    each.rmdir()

        return remove

    def _folder(self, folder: str) -> Path:
        return Path(self._full(folder) if folder else self._root)

    @override
    def list(self, folder: str) -> list[str]:
        """Return the regular files below `folder`. Symbolic links are not listed or followed."""
        return sorted(self._files_below(folder))

    def _files_below(self, folder: str) -> Iterator[str]:
        top = str(self._folder(folder))
        if not self._inside(top):
            return
        for parent, _, names in os.walk(top, onerror=self._unreadable):
            for name in names:
                full = os.path.join(parent, name)  # noqa: PTH118 - a tree may be large
                # A running job may have deleted the file by now.
                with suppress(FileNotFoundError):
                    if stat.S_ISREG(os.lstat(full).st_mode) and is_unicode(full):  # as ours
                        yield os.path.relpath(full, self._root)

    def _inside(self, top: str) -> bool:
        # Unlike Path.resolve, realpath does not raise an error for a loop of links.
        return Path(os.path.realpath(top)).is_relative_to(os.path.realpath(self._root))

    def _unreadable(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            place = os.path.relpath(error.filename or self._root, self._root)
            raise _failure(place, "listed", error) from error


def _failure(path: str, done: str, error: OSError) -> MillpondError:
    """Return the error for a file that cannot be read, whose path is `path`."""
    if error.errno in _OPEN_FILES:  # no free descriptor: the file may be undamaged
        return _refusal(path, error)
    return CorruptSnapshotError(path, f"it cannot be {done}: {error.strerror or error}")


def _refusal(path: str, error: OSError) -> StorageAccessError:
    cure = CURES.get(error.errno or 0, "Check the file system")
    return StorageAccessError(path, error.strerror or str(error), cure)


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Replace errors of the operating system by errors that name the file `path`."""
    try:
        yield
    except OSError as error:
        raise _refusal(str(path), error) from error


def _regular_size(path: str, status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise CorruptSnapshotError(path, "it is a directory, pipe or device instead of a file")
    return status.st_size


def _read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return `length` bytes from `offset` on. One system call returns at most 2 GB."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length:
        return data
    chunks = [data]
    while data and (done := sum(map(len, chunks))) < length:
        data = os.pread(descriptor, length - done, offset + done)
        chunks.append(data)
    return b"".join(chunks)


def begun_path(path: str) -> str:
    """Return the final path of a file that is being written, or '' for any other file."""
    match = _BEGUN.fullmatch(path)
    return "" if match is None else match["folder"] + match["name"]


class _LocalFileWriter:
    """A writer of a local file.

    It writes a temporary file in the same directory, and renames the temporary file at the end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            self._file = self._temporary.open("wb")
        except FileNotFoundError:
            # Only the first snapshot creates the folder. On a mounted disk each check is a request.
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("wb")

    def write(self, data: bytes) -> object:
        with _refusals(self._path):
            return self._file.write(data)

    def commit(self) -> None:
        with _refusals(self._path):
            self._file.close()
            self._temporary.replace(self._path)

    def abort(self) -> None:
        # If the disk is full, closing the file also fails, because it writes the buffered rest.
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def open_local_storage(uri: str) -> LocalStorage:
    """Return the storage of a directory, given its URI.

    ``file:/x`` and ``file:///x/`` mean the same directory.

    Raises:
        ConfigError: the URI contains a host or an unquoted ``#`` or ``?``, or no absolute path.
    """
    rest = uri.removeprefix("file:")
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if host not in ("", "localhost"):
        raise _refused(uri, f"it names the host {host!r}; write file:///{path.lstrip('/')}")
    if not path.startswith("/"):
        raise _refused(uri, f"it is not absolute; write {local_uri(path)}")
    if "#" in path or "?" in path:
        raise _refused(uri, "write %23 for # and %3F for ? in a file: URI, or give a plain path")
    plain = os.fsdecode(unquote_to_bytes(path))
    if "\0" in plain or (".." in plain.split("/") and ".." not in path.split("/")):
        raise _refused(uri, "it hides a parent directory or a null byte behind percent signs")
    return LocalStorage("file://" + quote(os.fsencode("/" + plain.strip("/"))))


def _refused(uri: str, reason: str) -> ConfigError:
    return ConfigError("checkpoint.dir", f"{public_uri(uri)!r}: {reason}")
