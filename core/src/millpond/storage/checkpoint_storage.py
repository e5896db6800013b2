"""Checkpoint storages: write-once files under a root, by relative paths.

A file counts only if a handle names it, with its size and digest. So nothing depends on an
atomic rename, and a writer that dies leaves at most a file that no handle names.
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
"""Maximum number of bytes of a metadata file."""


def check_path(path: str) -> str:
    """Return `path` if it is relative and does not leave the root.

    Raises:
        CorruptSnapshotError: the path is absolute, leaves the root, or is too long. Paths come from
            snapshots, which are not trusted.
    """
    parts = path.split("/")
    bad = not path or len(path) > _MAX_PATH or path.startswith("/") or "\\" in path
    if bad or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise CorruptSnapshotError(path[:_MAX_PATH], "its path leaves the checkpoint directory")
    return path


class FileWriter(Protocol):
    """A file that is being written. Others see it only after ``commit``."""

    def write(self, data: bytes) -> object:
        """Append bytes."""

    def commit(self) -> None:
        """Finish the file."""

    def abort(self) -> None:
        """Discard the file; may be called after a failed commit."""


class CheckpointStorage(ABC):
    """A place for the files of snapshots.

    Storages are picklable. A handle is bound to its storage when it is read.
    """

    uri: str

    @abstractmethod
    def open_writer(self, path: str) -> FileWriter:
        """Begin a new file; missing parent directories are made."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptSnapshotError: the file is missing or too short.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the size of a file in bytes; CorruptSnapshotError if it is missing."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file if it exists."""

    def delete_if_possible(self, path: str) -> bool:
        """Delete a file that is not needed; if that fails, log a warning and return False."""
        try:
            self.delete(path)
        except Exception as error:  # noqa: BLE001 - a plugin raises any class
            _LOG.warning("%s: not deleted: %s", path, error)
            return False
        return True

    def delete_empty(self, folders: Iterable[str]) -> None:
        """Delete each of `folders` that is empty; do nothing if the storage has no folders."""

    def remover_of_new(self, folder: str) -> Callable[[], None]:
        """Return a function that deletes a folder and its parents if they are new and empty.

        A folder is new if it does not exist at the time of this call. The function does nothing if
        the storage has no folders.
        """
        return lambda: None

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """Return the sorted paths of all files below a folder; no path if it does not exist."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file; if that fails, no file remains."""
        writer = self.open_writer(path)
        try:
            for chunk in chunks:
                writer.write(chunk)
            writer.commit()
        except BaseException:
            writer.abort()
            raise

    def write_all(self, path: str, data: bytes, cure: str) -> None:
        """Write a metadata file that ``read_all`` accepts.

        Raises:
            SnapshotTooLargeError: the data is too large for ``read_all``; ``cure`` says how to make
                it smaller.
        """
        self.write(path, [checked_metadata(path, data, cure)])

    def read_all(self, path: str, limit: int = MAX_WHOLE) -> bytes:
        """Return the content of a metadata file.

        Raises:
            CorruptSnapshotError: the file is missing, or larger than ``limit`` bytes.
        """
        size = self.size(path)
        if size > limit:
            raise CorruptSnapshotError(path, f"its {size:,} bytes are more than {limit:,}")
        return self.read(path, 0, size)


def checked_metadata(path: str, data: bytes, cure: str) -> bytes:
    """Return `data`, or raise SnapshotTooLargeError if it has too many bytes for readers."""
    if len(data) > MAX_WHOLE:
        raise SnapshotTooLargeError(path, MAX_WHOLE, cure=cure)
    return data


_USER = re.compile(r"(?<=//)(?:[^/@]*|[^/@:]+:(?![0-9]+/)[^@]*)@")
"""A URI's user, with a password that may hold slashes although it should not."""


def public_uri(uri: str) -> str:
    """Return a URI for error messages: without credentials and options."""
    return _USER.sub("", uri.partition("?")[0]).rstrip("/")


def without_user(text: str, uri: str) -> str:
    """Return a library's message about a URI without the credentials in it."""
    found = _USER.search(uri)
    return text if found is None else text.replace(found[0], "")


def exactly(path: str, data: bytes, length: int) -> bytes:
    """Return `data` if it has `length` bytes; raise CorruptSnapshotError if it is shorter."""
    if len(data) != length:
        raise CorruptSnapshotError(path, f"it is {length - len(data)} bytes too short")
    return data


Schemes = Mapping[str, Callable[[str], CheckpointStorage]]
"""The functions that open storages, by URI scheme: a table that the plugin registry fills."""


def open_storage(
    uri: str | CheckpointStorage, schemes: Schemes, unused: str = ""
) -> CheckpointStorage:
    """Open a storage by URI; an absolute path is a ``file:`` URI.

    Args:
        uri: the URI. A storage is returned unchanged.
        schemes: the functions that open storages, by scheme.
        unused: plugins that are not used, with reasons: one of them may know the scheme.

    Raises:
        ConfigError: the scheme is not in the table, or the place cannot be opened.
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
