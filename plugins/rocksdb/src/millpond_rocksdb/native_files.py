"""The names and downloads of RocksDB's own files in snapshots."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millpond.errors import ConfigError, CorruptSnapshotError
from millpond.snapshots.handles import KeyedStateHandle, SnapshotFile
from millpond.spi import decoding, named

NATIVE_FORMAT = "rocksdb"
"""The format of snapshots that contain RocksDB's own files."""
CHUNK = 4 << 20
META = "meta"
"""The kind of the files that RocksDB writes again for each snapshot."""
_MAX_FILE = 1 << 40
_NEEDED = re.compile(r"[0-9]{6,20}\.(?:sst|blob)|MANIFEST-[0-9]{6,20}|CURRENT")
_NOT_NEEDED = re.compile(r"[0-9]{6,20}\.log|OPTIONS-[0-9]{6,20}|rocksdict-config\.json")
"""The files that RocksDB creates when it opens a store: options, and logs, which are empty here."""
_CURRENT = re.compile(rb"MANIFEST-[0-9]{6,20}\n")


def name_of(file: SnapshotFile) -> str:
    """Return the name that RocksDB gave a file in a snapshot."""
    return file.path.rpartition("/")[2].rpartition("_")[2]


def kind_of(path: Path) -> str:
    """Return ``sst`` or ``blob`` for a file that never changes, and ``META`` for any other file."""
    return path.suffix[1:] if path.suffix in (".sst", ".blob") else META


def files_to_store(checkpoint: Path) -> list[Path]:
    """Return the files that a snapshot must contain, sorted, from a directory of hard links.

    Raises:
        ConfigError: there are files of other kinds, without which a restore might fail.
    """
    found = sorted(checkpoint.iterdir())
    needed = [path for path in found if _NEEDED.fullmatch(path.name)]
    for path in found:
        if path not in needed and not _NOT_NEEDED.fullmatch(path.name):
            reason = (
                f"incremental snapshots cannot store RocksDB's file {path.name}: do without the "
                "option that makes it, or use the strategy changelog or full"
            )
            raise ConfigError("state.snapshot.strategy", reason)
    return needed


def fetch_files(handle: KeyedStateHandle, directory: Path, threads: int) -> None:
    """Download the files of a snapshot into `directory` and check them, with several threads.

    Raises:
        CorruptSnapshotError: a file is damaged, missing, or not part of the snapshot.
    """
    with named("rocksdb", directory):
        directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda file: _fetch(handle, file, directory), handle.files):
            pass


def _fetch(handle: KeyedStateHandle, file: SnapshotFile, directory: Path) -> None:
    name = name_of(file)
    if not _NEEDED.fullmatch(name) or not 0 <= file.size <= _MAX_FILE:
        raise CorruptSnapshotError(file.path, "it is not a file of a RocksDB snapshot")
    digest = hashlib.sha256()
    first = b""
    with named("rocksdb", directory), (directory / name).open("wb") as target:
        for data in _chunks(handle, file):
            first = first or data
            digest.update(data)
            target.write(data)
    if digest.hexdigest() != file.digest:
        raise CorruptSnapshotError(file.path, "its digest is wrong")
    if name == "CURRENT" and not _CURRENT.fullmatch(first):
        raise CorruptSnapshotError(file.path, "it names no manifest")


def _chunks(handle: KeyedStateHandle, file: SnapshotFile) -> Iterator[bytes]:
    if file.inline:
        with decoding(file.path, "its handle gives it an impossible size"):
            data = base64.b64decode(file.inline, validate=True)
        yield data
        return
    assert handle.storage is not None
    for offset in range(0, file.size, CHUNK):
        yield handle.storage.read(file.path, offset, min(CHUNK, file.size - offset))
