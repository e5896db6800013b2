"""The faults of the crash matrix: in a storage, in flushes, and in files on disk."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

from millpond.errors import CorruptSnapshotError
from millpond.snapshots.catalog import read_catalog
from millpond.snapshots.paths import parse_record_path
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond.storage.local_directory import open_local_storage
from millpond_cli.inspection.orphans import orphans

from tests.crash.crash_model import FAULT, LAYOUTS, RETRIED, Case

SMALL_DISK = "size=8m"


class FaultyStorage(CheckpointStorage):
    """A storage whose operations fail at a point, once it is armed."""

    def __init__(self, root: Path, case: Case) -> None:
        self.uri = root.as_uri()
        self._inner = open_local_storage(self.uri)
        self._root = root
        self._case = case
        self.armed = False
        self.struck = False
        self._passed = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FaultyStorage) and other.uri == self.uri

    __hash__ = None

    def strike(self, point: str, path: str = "", data: bytes = b"") -> None:
        """Let the fault happen if this is its point."""
        if not self.armed or self._case.point != point:
            return
        self.struck = True
        self._passed += 1
        if self._case.point in LAYOUTS and self._passed != self._case.passed + 1:
            return
        fault = self._case.fault
        if fault == "torn write":
            target = self._root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data[: len(data) // 2])
        if fault in ("SIGKILL", "torn write"):
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "full disk":
            limit_files(16)
            return
        number = errno.ENOSPC if fault == "ENOSPC" else errno.EIO
        raise OSError(number, os.strerror(number), path)

    def open_writer(self, path):
        return _FaultyWriter(self, self._inner.open_writer(path), path)

    def read(self, path, offset, length):
        self.strike("restore", path)
        return self._inner.read(path, offset, length)

    def size(self, path):
        return self._inner.size(path)

    def delete(self, path):
        self.strike("gc", path)
        self.strike("outdated files", path)
        self._inner.delete(path)

    def list(self, folder):
        return self._inner.list(folder)


class _FaultyWriter:
    def __init__(self, storage, inner, path):
        self._storage, self._inner, self._path = storage, inner, path
        self._written = b""
        self._parts = 0

    def write(self, data):
        self._written += data
        self._parts += data.endswith(b"MILLPOND")
        if data.endswith(b"MILLHNDL"):
            self._storage.strike("metadata", self._path, self._written)
        else:
            # Only a renewed base is followed by another part with rows, the delta.
            renewed = self._parts == 2
            self._storage.strike("base renewal" if renewed else "upload", self._path, self._written)
        return self._inner.write(data)

    def commit(self):
        if parse_record_path(self._path):
            self._storage.strike("subtask's record", self._path, self._written)
        self._storage.strike("commit", self._path, self._written)
        self._inner.commit()

    def abort(self):
        self._inner.abort()


def limit_files(size):
    """Make the kernel refuse to let a file grow beyond a number of bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def _no_room():
    limit_files(16)
    try:
        yield
    finally:
        limit_files(resource.RLIM_INFINITY)


def take(case, backend, number, storage):
    """Return a snapshot's handle; at some points the first attempt fails and is repeated."""
    if storage.armed and case.point in RETRIED:
        try:
            with FAULT.armed(5) if case.point == "serializer" else _no_room():
                backend.snapshot(number, storage).result()
        except Exception:  # noqa: BLE001 - whatever it is, the next attempt counts
            pass
        else:
            raise AssertionError("the fault did not happen")
    return backend.snapshot(number, storage).result().handle


@contextmanager
def small_disk(directory):
    """Return a directory on a small disk, if mounting is allowed."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", SMALL_DISK, "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(directory)], check=True)


def fill_up(directory):
    """Fill a small disk; without one, limit the size of files."""
    if not directory.is_mount():
        limit_files(16)
        return
    with (directory / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(64 << 10)):
            pass


def make_room(directory):
    """Undo `fill_up`."""
    (directory / "ballast").unlink(missing_ok=True)


def damage(path, how, start=0):
    """Damage a file somewhere after its beginning."""
    data = bytearray(path.read_bytes())
    at = start + random.Random(path.name).randrange(max(1, len(data) - start))
    if how == "lost file":
        path.unlink()
        return
    if how == "truncated":
        del data[at:]
    elif how == "zeroed":
        data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    elif data:
        data[at] ^= 1 << at % 8
    path.write_bytes(data)


def damage_metadata(case, storage, root, handles):
    """Damage the newest or second newest metadata, and then run the tool's garbage collection."""
    handle = handles[-1] if case.point == "newest metadata" else handles[-2]
    path = root / handle.metadata
    rows = [f for f in (*handle.files, *handle.history) if f.path == handle.metadata]
    damage(path, case.fault, max((f.offset + f.size for f in rows), default=0))
    catalog = read_catalog(storage)
    try:
        orphans(catalog, 1)
    except CorruptSnapshotError as error:
        if error.file != handle.metadata:
            raise AssertionError(f"{error.file} is blamed for {handle.metadata}") from error
        return
    raise AssertionError("damaged metadata was passed over")
