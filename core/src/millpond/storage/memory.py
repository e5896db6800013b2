"""A checkpoint storage in the memory of this process, for tests and small, temporary state."""

from __future__ import annotations

import re
import threading
import uuid
import weakref
from typing import ClassVar
from urllib.parse import parse_qs

from typing_extensions import override

from millpond.errors import ConfigError, CorruptSnapshotError, SnapshotTooLargeError
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path, exactly

DEFAULT_MAX_FILE_BYTES = 1 << 30


class MemoryStorage(CheckpointStorage):
    """A storage of files in memory. All storages with the same name share the files.

    The URI is ``memory:name``. ``memory:name?max-file-bytes=N`` limits the size of each file, by
    default to 1 GiB.
    """

    _roots: ClassVar[dict[str, dict[str, bytes]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, uri: str = "memory:") -> None:
        self.uri = uri
        self._name, _, query = uri.partition("?")
        self._limit = _limit(uri, query)

    @classmethod
    def private(cls) -> MemoryStorage:
        """Return a storage with a random name, whose files are deleted together with the object."""
        storage = cls(f"memory:{uuid.uuid4().hex}")
        weakref.finalize(storage, cls._roots.pop, storage._name, None)
        return storage

    @property
    def _files(self) -> dict[str, bytes]:
        with self._lock:
            return self._roots.setdefault(self._name, {})

    @override
    def open_writer(self, path: str) -> _MemoryFileWriter:
        """Return a writer of a new file, which is limited to ``max-file-bytes`` of the URI.

        Raises:
            SnapshotTooLargeError: raised by ``write`` if the file becomes too large.
        """
        return _MemoryFileWriter(self._files, check_path(path), self._limit)

    @override
    def read(self, path: str, offset: int, length: int) -> bytes:
        return exactly(path, self._data(path)[offset : offset + length], length)

    @override
    def size(self, path: str) -> int:
        return len(self._data(path))

    def _data(self, path: str) -> bytes:
        data = self._files.get(check_path(path))
        if data is None:
            raise CorruptSnapshotError(path, "it is missing")
        return data

    @override
    def delete(self, path: str) -> None:
        self._files.pop(check_path(path), None)

    @override
    def list(self, folder: str) -> list[str]:
        return sorted(path for path in self._files if path.startswith(f"{folder}/") or not folder)


class _MemoryFileWriter:
    def __init__(self, files: dict[str, bytes], path: str, limit: int) -> None:
        self._files = files
        self._path = path
        self._room = limit
        self._limit = limit
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            raise SnapshotTooLargeError(self._path, self._limit)
        self._chunks.append(data)

    def commit(self) -> None:
        self._files[self._path] = b"".join(self._chunks)

    def abort(self) -> None:
        self._chunks.clear()


def _limit(uri: str, query: str) -> int:
    given = parse_qs(query).get("max-file-bytes", [str(DEFAULT_MAX_FILE_BYTES)])[-1]
    if not re.fullmatch(r"[1-9][0-9]{0,17}", given):
        raise ConfigError("checkpoint.dir", f"{uri!r}: max-file-bytes must be a number of bytes")
    return int(given)
