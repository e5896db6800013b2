"""The base class of checkpoint storages, which keep write-once files at relative paths.

A file counts only if the handle of a snapshot names it, with its size and digest. So no storage
needs an atomic rename. A writer that dies leaves at most a file that no handle names.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from millpond.errors import ConfigError, CorruptSnapshotError, SnapshotTooLargeError

_LOG = logging.getLogger("millpond.checkpoint")
_MAX_PATH = 1024
MAX_WHOLE = 256 << 20
"""The maximum number of bytes of a metadata file."""


def check_path(path: str) -> str:
    """Return `path` if it is relative and has no part such as ``..``.

    Raises:
        CorruptSnapshotError: `path` is absolute, has a part such as ``..``, or is too long. Paths
            come from snapshots, which are not trusted.
    """
    parts = path.split("/")
    bad = not path or len(path) > _MAX_PATH or path.startswith("/") or "\\" in path
    if bad or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise CorruptSnapshotError(path[:_MAX_PATH], "its path leaves the checkpoint directory")
    return path


class FileWriter(Protocol):
    """A file that is being written. Readers see the file only after ``commit``."""

    def write(self, data: bytes) -> object:
        """Append `data` to the file."""

    def commit(self) -> None:
        """Finish the file, so that readers see it."""

    def abort(self) -> None:
        """Discard the file. This may also be called after ``commit`` has failed."""


class CheckpointStorage(ABC):
    """The base class of storages for the files of snapshots.

    Storages are picklable. Paths are relative to the root of the storage.
    """

    uri: str

    @abstractmethod
    def open_writer(self, path: str) -> FileWriter:
        """Return a writer of a new file at `path`; create missing parent directories."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes of the file at `path`, from the position `offset` on.

        Raises:
            CorruptSnapshotError: the file is missing or too short.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size in bytes of the file at `path`; raise CorruptSnapshotError if missing."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete the file at `path` if it exists."""

    def delete_if_possible(self, path: str) -> bool:
        """Delete the file at `path`, and return whether that succeeded.

        If deleting fails, log a warning instead of raising an error.
        """
        try:
            self.delete(path)
        except Exception as error:  # noqa: BLE001 - a plugin raises any class
            _LOG.warning("%s: not deleted: %s", path, error)
            return False
        return True

    def delete_empty(self, folders: Iterable[str]) -> None:
        """Delete each of `folders` that is empty. Do nothing if the storage has no folders."""

    def remover_of_new(self, folder: str) -> Callable[[], None]:
        """Return a function that deletes `folder` and its parents if they are new and empty.

        A folder is new if it does not exist when this method is called. The function does nothing
        if the storage has no folders.
        """
        return lambda: None

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """Return the sorted paths of all files below `folder`; an empty list if it is missing."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file that consists of `chunks`. If writing fails, no file remains."""
        writer = self.open_writer(path)
        try:
            for chunk in chunks:
                writer.write(chunk)
            writer.commit()
        except BaseException:
            writer.abort()
            raise

    def write_all(self, path: str, data: bytes, cure: str) -> None:
        """Write a metadata file that ``read_all`` can read.

        Args:
            path: the path of the file.
            data: the content of the file.
            cure: advice for the error message on how to make the file smaller.

        Raises:
            SnapshotTooLargeError: `data` is too large for ``read_all``.
        """
        self.write(path, [checked_metadata(path, data, cure)])

    def read_all(self, path: str, limit: int = MAX_WHOLE) -> bytes:
        """Return the content of the metadata file at `path`.

        Raises:
            CorruptSnapshotError: the file is missing, or has more than `limit` bytes.
        """
        size = self.size(path)
        if size > limit:
            raise CorruptSnapshotError(path, f"its {size:,} bytes are more than {limit:,}")
        return self.read(path, 0, size)


def checked_metadata(path: str, data: bytes, cure: str) -> bytes:
    """Return `data`; raise SnapshotTooLargeError if it is too large for ``read_all``."""
    if len(data) > MAX_WHOLE:
        raise SnapshotTooLargeError(path, MAX_WHOLE, cure=cure)
    return data


_USER = re.compile(r"(?<=//)(?:[^/@]*|[^/@:]+:(?![0-9]+/)[^@]*)@")
"""The user and password in a URI. The password may contain slashes, although it should not."""


def public_uri(uri: str) -> str:
    """Return `uri` without credentials and options, for error messages."""
    return _USER.sub("", uri.partition("?")[0]).rstrip("/")


def without_user(text: str, uri: str) -> str:
    """Return a library's error message `text` without the credentials of `uri`."""
    found = _USER.search(uri)
    return text if found is None else text.replace(found[0], "")


def exactly(path: str, data: bytes, length: int) -> bytes:
    """Return `data` if it has `length` bytes; raise CorruptSnapshotError if it is shorter."""
    if len(data) != length:
        raise CorruptSnapshotError(path, f"it is {length - len(data)} bytes too short")
    return data


Schemes = Mapping[str, Callable[[str], CheckpointStorage]]
"""The function that opens a storage for each URI scheme. Plugins provide the functions."""


def open_storage(
    uri: str | CheckpointStorage, schemes: Schemes, unused: str = ""
) -> CheckpointStorage:
    """Return the storage for a URI or an absolute path, which means a ``file:`` URI.

    Args:
        uri: the URI or path. If it is a storage, it is returned unchanged.
        schemes: the function that opens a storage for each URI scheme.
        unused: names of plugins that are not used, with the reasons, for the error message. One of
            these plugins may know the scheme.

    Raises:
        ConfigError: `schemes` does not contain the scheme, or the storage cannot be opened.
    """
    if isinstance(uri, CheckpointStorage):
        return uri
    uri = str(uri)
    if uri.startswith("/"):
        uri = "file://" + quote(os.fsencode(uri))
    scheme = uri.partition(":")[0]
    if scheme not in schemes:
        if "://" not in uri:
            absolute = str(Path(uri).expanduser().absolute())[:300]
            reason = f"{uri[:300]!r} is neither a URI nor an absolute path; write {absolute!r}"
            raise ConfigError("checkpoint.dir", reason)
        known = ", ".join(sorted(schemes))
        reason = f"expected one of the schemes {known}, got {public_uri(uri)[:300]!r}"
        if unused:
            reason += f". A plugin that is not used may know it: {unused.rstrip('.')}"
        raise ConfigError("checkpoint.dir", reason)
    return schemes[scheme](uri)
