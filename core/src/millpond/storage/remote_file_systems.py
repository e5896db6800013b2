"""A checkpoint storage on remote file systems: those of pyarrow (S3, GCS, HDFS) and of fsspec."""

from __future__ import annotations

import os
import posixpath
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa
from pyarrow import fs
from typing_extensions import override

from millpond.config import Config, S3Config
from millpond.errors import ConfigError, CorruptSnapshotError, MillpondError, StorageAccessError
from millpond.storage.checkpoint_storage import (
    CheckpointStorage,
    check_path,
    exactly,
    public_uri,
    without_user,
)

S3_SCHEMES = ("s3", "s3a")
_CREDENTIALS = ("access_key", "secret_key", "session_token")
_HADOOP_NAMES = {
    "endpoint": "endpoint",
    "region": "endpoint.region",
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "ssl": "connection.ssl.enabled",
    "path_style": "path.style.access",
}
_DELAYED_OPEN = "allow_delayed_open"
_IN_ONE_REQUEST = int(pa.__version__.partition(".")[0]) >= 21  # noqa: PLR2004 - which has the option
"""Whether pyarrow writes a file below 10 MB by one request instead of three."""

_AMAZON = ("", "s3.amazonaws.com")
"""Values of the option for Hadoop's endpoint that mean the default endpoint."""


def s3_settings(uri: str, config: Config) -> S3Config:
    """Return the settings for an S3 store, apart from those in its URI.

    Only one source of settings is used:

    * the URI, if it has credentials or options. The result is then empty.
    * ``checkpoint.s3``, if it is configured.
    * Hadoop's configuration, for a URI that begins with ``s3a://``.
    """
    parts = urlsplit(uri)
    own = config.checkpoint.s3
    if parts.scheme not in S3_SCHEMES or parts.query or "@" in parts.netloc:
        return S3Config()
    return own if own != S3Config() or parts.scheme == "s3" else _hadoop_settings(config, uri)


def s3_filesystem(uri: str, settings: S3Config) -> tuple[Any, str]:
    """Return the file system and the path in it for the URI of an S3 store.

    If the URI contains options, `settings` is empty.
    """
    uri = "s3:" + uri.partition(":")[2]
    if settings == S3Config():
        if _IN_ONE_REQUEST and _DELAYED_OPEN not in uri:
            uri += f"{'&' if '?' in uri else '?'}{_DELAYED_OPEN}=true"
        filesystem, root = fs.FileSystem.from_uri(uri)
        return filesystem, root
    parts = urlsplit(uri)
    bucket = parts.netloc
    scheme, _, endpoint = (settings.endpoint or "").rpartition("://")
    arguments: dict[str, Any] = {name: getattr(settings, name) for name in _CREDENTIALS}
    if _IN_ONE_REQUEST:
        arguments[_DELAYED_OPEN] = True
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if endpoint:  # then pyarrow needs some region, and any will do
        arguments["endpoint_override"] = endpoint.rstrip("/")
    elif not settings.region:
        region = str(fs.resolve_s3_region(bucket))
    return fs.S3FileSystem(
        **arguments,
        scheme=scheme or ("http" if settings.ssl is False else "https"),
        region=settings.region or region,
        force_virtual_addressing=settings.path_style is False,
    ), (bucket + unquote(parts.path)).rstrip("/")


def _hadoop_settings(config: Config, uri: str) -> S3Config:
    """Return Hadoop's settings for `uri`. Settings for one bucket override general settings."""
    found, bucket = config.hadoop, urlsplit(uri).netloc
    values = {
        field: found.get(f"fs.s3a.bucket.{bucket}.{name}") or found.get(f"fs.s3a.{name}")
        for field, name in _HADOOP_NAMES.items()
    }
    if values["endpoint"] in _AMAZON:
        del values["endpoint"]
    given = {field: value for field, value in values.items() if value}
    return Config({f"checkpoint.s3.{field}": value for field, value in given.items()}).checkpoint.s3


PYARROW_SCHEMES = ("s3", "s3a", "gs", "gcs", "hdfs", "viewfs", "abfs")
_ANSWER_SECONDS = 30.0
_CURES = {
    re.compile("NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist"): (
        "Make the bucket, or name another one in checkpoint.dir"
    ),
    re.compile(
        "ACCESS_DENIED|AccessDenied|ACCESS_KEY|AccessKey|SIGNATURE|[Ff]orbidden|Permission"
    ): ("Give these credentials the right to list, read, write and delete there, or use others"),
    re.compile("NETWORK|[Cc]onnect|[Tt]ime(d )?out|resolve"): (
        "Check that the store runs and can be reached from this machine, and try again"
    ),
}
_OTHER = "Act on the store's message, and try again"
_GCS_RETRY = "retry_limit_seconds"
_RETRY_SECONDS = 15


@attrs.frozen
class FileStorage(CheckpointStorage):
    """A storage of files on any remote file system that pyarrow or fsspec knows by URI.

    An object store shows an object only when its upload is complete. On other file systems, a
    writer that dies may leave an incomplete file. No handle names such a file.

    Attributes:
        s3: the settings for S3 that the URI does not contain.
    """

    uri: str = attrs.field(repr=public_uri)
    s3: S3Config = S3Config()

    @override
    def open_writer(self, path: str) -> _RemoteFileWriter:
        filesystem, full = self._locate(path)
        with _refusals(self.uri, path):
            return _RemoteFileWriter(filesystem, full, partial(_refusals, self.uri, path))

    @override
    def read(self, path: str, offset: int, length: int) -> bytes:
        filesystem, full = self._locate(path)
        try:
            with _refusals(self.uri, path), filesystem.open_input_file(full) as file:
                room = max(file.size() - offset, 0)
                return exactly(path, bytes(file.read_at(min(length, room), offset)), length)
        except FileNotFoundError:
            raise CorruptSnapshotError(path, "it is missing") from None
        except ValueError as error:
            raise CorruptSnapshotError(path, f"it cannot be read: {error}") from error

    @override
    def size(self, path: str) -> int:
        filesystem, full = self._locate(path)
        with _refusals(self.uri, path):
            info = filesystem.get_file_info(full)
        if info.type is not fs.FileType.File:
            raise CorruptSnapshotError(path, "it is missing")
        return int(info.size)

    @override
    def delete(self, path: str) -> None:
        filesystem, full = self._locate(path)
        with _refusals(self.uri, path):
            if filesystem.get_file_info(full).type is not fs.FileType.NotFound:
                filesystem.delete_file(full)

    @override
    def list(self, folder: str) -> list[str]:
        filesystem, root = _open_filesystem(self.uri, self.s3)
        base = posixpath.join(root, folder).rstrip("/")
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        with _refusals(self.uri, folder):
            found = filesystem.get_file_info(selector)
        files = [info.path for info in found if info.type is fs.FileType.File]
        return sorted(posixpath.relpath(path, root) for path in files)

    def _locate(self, path: str) -> tuple[Any, str]:
        filesystem, root = _open_filesystem(self.uri, self.s3)
        return filesystem, posixpath.join(root, check_path(path))


class _RemoteFileWriter:
    """A writer of a remote file. Readers see the file when its stream is closed."""

    def __init__(
        self, filesystem: Any, path: str, refusals: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._filesystem = filesystem
        self._refusals = refusals
        self._path = path
        parent = posixpath.dirname(path)
        if filesystem.type_name not in ("s3", "gcs", "abfs"):
            filesystem.create_dir(parent, recursive=True)
        self._stream = filesystem.open_output_stream(path, compression=None)

    def write(self, data: bytes) -> object:
        with self._refusals():
            return self._stream.write(data)

    def commit(self) -> None:
        with self._refusals():
            self._stream.close()

    def abort(self) -> None:
        # This fails if the store is not reachable. No handle names the incomplete file.
        with suppress(Exception):
            self._stream.close()
        with suppress(Exception):
            if self._filesystem.get_file_info(self._path).type is fs.FileType.File:
                self._filesystem.delete_file(self._path)


@contextmanager
def _refusals(uri: str, path: str) -> Iterator[None]:
    """Replace a file system's error by an error that names the file and gives advice.

    Each file system of fsspec has error classes of its own.
    """
    try:
        yield
    except (MillpondError, FileNotFoundError, ValueError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        cure = next((cure for words, cure in _CURES.items() if words.search(reason)), _OTHER)
        raise StorageAccessError(posixpath.join(public_uri(uri), path), reason, cure) from error


@cache
def _open_filesystem(uri: str, s3: S3Config) -> tuple[Any, str]:
    """Return the file system for `uri` and the path in it; raise ConfigError after a timeout.

    Without a network some stores block for minutes.
    """
    opened: Future[tuple[Any, str]] = Future()
    threading.Thread(target=_connect, args=(uri, s3, opened), daemon=True).start()
    try:
        return opened.result(_ANSWER_SECONDS)
    except TimeoutError as error:
        reason = f"it has not answered within {_ANSWER_SECONDS:.0f} s; is there a network?"
        raise ConfigError("checkpoint.dir", f"{public_uri(uri)!r}: {reason}") from error
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - a file system raises any class
        # The new error has no cause, because the text of `error` may contain credentials.
        said = without_user(str(error), uri).rstrip(".")
        raise ConfigError(
            "checkpoint.dir", f"{public_uri(uri)!r} cannot be opened: {said}"
        ) from None


def _connect(uri: str, s3: S3Config, opened: Future[tuple[Any, str]]) -> None:
    try:
        filesystem, root = _named_filesystem(uri, s3)
        # Any answer will do here: the root directory may be missing or unreadable.
        with suppress(OSError):
            filesystem.get_file_info(root)
        opened.set_result((filesystem, root))
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        opened.set_exception(error)


def _named_filesystem(uri: str, s3: S3Config) -> tuple[Any, str]:
    scheme, _, rest = uri.partition("://")
    if scheme not in PYARROW_SCHEMES:
        import fsspec  # noqa: PLC0415 - optional: only for file systems that pyarrow does not know

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme))), rest
    if scheme in S3_SCHEMES:
        return s3_filesystem(uri, s3)
    if scheme in ("gs", "gcs") and _GCS_RETRY not in uri:
        uri += f"{'&' if '?' in uri else '?'}{_GCS_RETRY}={_RETRY_SECONDS}"
    filesystem, root = fs.FileSystem.from_uri(uri)
    return filesystem, root


def open_file_storage(uri: str, config: Config) -> CheckpointStorage:
    """Return a storage on a file system of pyarrow or fsspec, given its URI."""
    storage = FileStorage(uri, s3_settings(uri, config))
    _open_filesystem(uri, storage.s3)
    return storage


def fsspec_schemes() -> list[str]:
    """Return fsspec's protocols, except those that pyarrow or Millpond support."""
    try:
        from fsspec import available_protocols  # noqa: PLC0415 - optional
    except ImportError:
        return []
    return [
        name for name in available_protocols() if name not in (*PYARROW_SCHEMES, "file", "memory")
    ]
