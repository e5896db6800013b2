"""Checkpoint storages: write-once files under a root, by relative paths.

A file counts only when a handle names it, with its size and digest. So nothing depends on a
rename being atomic, and a writer that dies leaves at most a file that no handle names.
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
"""Bytes of a file of metadata at most."""


def check_path(path: str) -> str:
    """Return a relative path that stays below the root.

    Raises:
        CorruptSnapshotError: it is absolute, leaves the root, or is absurdly long. Paths come
            from snapshots, which are untrusted.
    """
    parts = path.split("/")
    bad = not path or len(path) > _MAX_PATH or path.startswith("/") or "\\" in path
    if bad or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise CorruptSnapshotError(path[:_MAX_PATH], "its path leaves the checkpoint directory")
    return path


class FileWriter(Protocol):
    """A file under construction: it exists for others after ``commit``, if at all."""

    def write(self, data: bytes) -> object:
        """Append bytes."""

    def commit(self) -> None:
        """Finish the file."""

    def abort(self) -> None:
        """Leave no file; may be called after a failed commit."""


class CheckpointStorage(ABC):
    """Where snapshots live. Storages are picklable; a handle is bound to one when it is read."""

    uri: str

    @abstractmethod
    def open_writer(self, path: str) -> FileWriter:
        """Begin a new file; parent directories are made."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptSnapshotError: the file is missing or too short.
        """

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes; CorruptSnapshotError where it is missing."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; no error where there is none."""

    def delete_if_possible(self, path: str) -> bool:
        """Delete a file that nobody needs; False where that fails, with a warning in the log."""
        try:
            self.delete(path)
        except Exception as error:  # noqa: BLE001 - storages are plugins: what they raise is theirs
            _LOG.warning("%s: not deleted: %s", path, error)
            return False
        return True

    def delete_empty(self, folders: Iterable[str]) -> None:
        """Delete those of some folders that hold nothing, where a storage has folders."""

    def remover_of_new(self, folder: str) -> Callable[[], None]:
        """What deletes a folder, and those it lies in, that are not there yet, if they are empty.

        Nothing where a storage has no folders.
        """
        return lambda: None

    def not_files(self, folder: str) -> list[str]:
        """What lies below a folder and is no file, where a storage has such things: see ``list``.

        Of a local directory these are directories, pipes, devices and symbolic links.
        """
        return []

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """The paths of all files below a folder, sorted; none where it does not exist."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a new file; where that fails, there is none."""
        writer = self.open_writer(path)
        try:
            for chunk in chunks:
                writer.write(chunk)
            writer.commit()
        except BaseException:
            writer.abort()
            raise

    def write_all(self, path: str, data: bytes, cure: str) -> None:
        """Write a file of metadata that ``read_all`` reads again.

        Raises:
            SnapshotTooLargeError: it has more bytes than ``read_all`` reads; ``cure`` says what
                makes it smaller.
        """
        self.write(path, [checked_metadata(path, data, cure)])

    def read_all(self, path: str, limit: int = MAX_WHOLE) -> bytes:
        """A whole file of metadata.

        Raises:
            CorruptSnapshotError: it is missing, or larger than ``limit`` bytes.
        """
        size = self.size(path)
        if size > limit:
            raise CorruptSnapshotError(path, f"its {size:,} bytes are more than {limit:,}")
        return self.read(path, 0, size)


def checked_metadata(path: str, data: bytes, cure: str) -> bytes:
    """Return metadata that readers accept; SnapshotTooLargeError if it has too many bytes."""
    if len(data) > MAX_WHOLE:
        raise SnapshotTooLargeError(path, MAX_WHOLE, cure=cure)
    return data


_USER = re.compile(r"(?<=//)(?:[^/@]*|[^/@:]+:(?![0-9]+/)[^@]*)@")
"""A URI's user, with a password that may hold slashes, which it should not."""


def public_uri(uri: str) -> str:
    """A URI as error messages show it: without credentials and options."""
    return _USER.sub("", uri.partition("?")[0]).rstrip("/")


def without_user(text: str, uri: str) -> str:
    """What a library says of a URI, without the credentials in it."""
    found = _USER.search(uri)
    return text if found is None else text.replace(found[0], "")


def exactly(path: str, data: bytes, length: int) -> bytes:
    """Return data that has the wanted length; CorruptSnapshotError where it is shorter."""
    if len(data) != length:
        raise CorruptSnapshotError(path, f"it is {length - len(data)} bytes too short")
    return data


Schemes = Mapping[str, Callable[[str], CheckpointStorage]]
"""URI scheme to what opens such a URI: the table that a registry of plugins fills."""


def open_storage(
    uri: str | CheckpointStorage, schemes: Schemes, unused: str = ""
) -> CheckpointStorage:
    """Open a storage by URI; an absolute path is a ``file:`` URI.

    Args:
        uri: the URI; a storage is returned as it is.
        schemes: who opens it.
        unused: which plugins are not used, and why: one of them may know the scheme.

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
