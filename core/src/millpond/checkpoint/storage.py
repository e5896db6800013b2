"""Checkpoint storages: write-once files under a root, by relative paths.

A file counts only when a handle names it, with its size and digest. So nothing depends on a
rename being atomic, and a writer that dies leaves at most a file that nobody names.
"""

from __future__ import annotations

import posixpath
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import attrs
from pyarrow import fs

from millpond.errors import ConfigError, CorruptSnapshotError
from millpond.plugins import get_registry

__all__ = ["CheckpointStorage", "FileStorage", "MemoryStorage", "checkpoint_storage"]

_MAX_PATH = 1024


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


class CheckpointStorage(ABC):
    """Where snapshots live. Storages are picklable; a handle is bound to one when it is read."""

    uri: str

    @abstractmethod
    def write(self, path: str, chunks: list[bytes]) -> None:
        """Write a new file; parent directories are made."""

    @abstractmethod
    def read(self, path: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            CorruptSnapshotError: the file is missing or too short.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file; no error where there is none."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """The paths of all files below a folder, sorted; none where it does not exist."""


class MemoryStorage(CheckpointStorage):
    """Files in this process's memory, shared by all storages of one name."""

    _roots: ClassVar[dict[str, dict[str, bytes]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, uri: str = "memory:") -> None:
        self.uri = uri

    @property
    def _files(self) -> dict[str, bytes]:
        with self._lock:
            return self._roots.setdefault(self.uri, {})

    def write(self, path: str, chunks: list[bytes]) -> None:
        """See the base class."""
        self._files[check_path(path)] = b"".join(chunks)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """See the base class."""
        data = self._files.get(check_path(path))
        if data is None:
            raise CorruptSnapshotError(path, "it is missing")
        return _exactly(path, data[offset : offset + length], length)

    def delete(self, path: str) -> None:
        """See the base class."""
        self._files.pop(check_path(path), None)

    def list(self, folder: str) -> list[str]:
        """See the base class."""
        return sorted(path for path in self._files if path.startswith(folder))


@attrs.define
class FileStorage(CheckpointStorage):
    """Files on any file system that pyarrow knows by URI: local, S3, GCS, HDFS."""

    uri: str

    def write(self, path: str, chunks: list[bytes]) -> None:
        """See the base class."""
        filesystem, full = self._locate(path)
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(posixpath.dirname(full), recursive=True)
        with filesystem.open_output_stream(full, compression=None) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """See the base class."""
        filesystem, full = self._locate(path)
        try:
            with filesystem.open_input_file(full) as file:
                return _exactly(path, bytes(file.read_at(length, offset)), length)
        except FileNotFoundError:
            raise CorruptSnapshotError(path, "it is missing") from None
        except OSError as error:
            raise CorruptSnapshotError(path, f"it cannot be read: {error}") from error

    def delete(self, path: str) -> None:
        """See the base class."""
        filesystem, full = self._locate(path)
        if filesystem.get_file_info(full).type is not fs.FileType.NotFound:
            filesystem.delete_file(full)

    def list(self, folder: str) -> list[str]:
        """See the base class."""
        filesystem, root = _open_filesystem(self.uri)
        base = posixpath.join(root, folder)
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        found = filesystem.get_file_info(selector)
        files = [info.path for info in found if info.type is fs.FileType.File]
        return sorted(posixpath.relpath(path, root) for path in files)

    def _locate(self, path: str) -> tuple[Any, str]:
        filesystem, root = _open_filesystem(self.uri)
        return filesystem, posixpath.join(root, check_path(path))


@cache
def _open_filesystem(uri: str) -> tuple[Any, str]:
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise ConfigError("checkpoint.dir", f"{uri!r} cannot be opened: {error}") from error
    return filesystem, root


def _exactly(path: str, data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise CorruptSnapshotError(path, f"it is {length - len(data)} bytes too short")
    return data


def _open_file_storage(uri: str) -> CheckpointStorage:
    if uri.startswith("file:/") and not uri.startswith("file:///"):
        uri = "file:///" + uri.removeprefix("file:").lstrip("/")
    _open_filesystem(uri)
    return FileStorage(uri)


BUILTIN_STORAGES: Mapping[str, Callable[[str], CheckpointStorage]] = {
    "memory": MemoryStorage,
    **dict.fromkeys(("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs"), _open_file_storage),
}


def checkpoint_storage(uri: str | CheckpointStorage) -> CheckpointStorage:
    """Open a storage by URI: ``memory:``, ``file:/…``, an absolute path, ``s3://…``.

    Raises:
        ConfigError: no plugin knows the scheme, or the place cannot be opened.
    """
    if isinstance(uri, CheckpointStorage):
        return uri
    uri = str(uri)
    if uri.startswith("/"):
        uri = f"file://{uri}"
    schemes = get_registry().gather("millpond_checkpoint_storages")
    scheme = uri.partition(":")[0]
    if scheme not in schemes:
        known = ", ".join(sorted(schemes))
        raise ConfigError("checkpoint.dir", f"{uri!r}: the scheme is none of: {known}")
    opened: CheckpointStorage = schemes[scheme](uri)
    return opened
