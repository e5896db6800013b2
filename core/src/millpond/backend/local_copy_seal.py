"""The seal of a local copy: what its files were when the backend was closed.

A copy is opened only under a sound seal. The seal is written when a backend was closed in good
order and broken before a store is opened again, so a killed process leaves none. Whatever
changes a file through the file system changes its time of change, which no program can set
back; damage underneath the file system is found by digests, which cover as much as can be read
in a millisecond or two.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import cattrs
import xxhash

from millpond.format_versions import LOCAL_COPY
from millpond.sealed_json import SealedJson

SEAL_FILE = "millpond-seal.json"
DIGESTED_BYTES = 8 << 20
"""So many bytes of a copy are digested, small files first: 0.8 ms where the cache holds them."""

_SEALED = SealedJson("a seal")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHUNK = 256 << 10
_LARGEST_SEAL = 16 << 20
_PLAIN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@cache
def boot_id() -> str:
    """An id that changes with each start of the machine.

    Stores are not synced to disk, so after a crash of the machine no local copy can be trusted.
    """
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "boot"


@attrs.frozen
class _SealedFile:
    """A file under a seal: times in ns, and the digest of its first bytes."""

    path: str
    size: int
    inode: int
    modified: int
    changed: int
    digested: int = 0
    digest: str = ""

    @classmethod
    def of(cls, directory: Path, path: Path) -> _SealedFile:
        """A file as it is, not yet digested."""
        status = path.lstat()
        name = path.relative_to(directory).as_posix()
        return cls(name, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def change(self, found: _SealedFile) -> str:
        """How the file has changed; empty where it has not."""
        if self.size != found.size:
            return f"{self.path} had {self.size:,} bytes when it was closed, now {found.size:,}"
        if attrs.evolve(self, digested=0, digest="") != found:
            return f"{self.path} was written to, or replaced, after it was closed"
        return ""


@attrs.frozen
class Seal:
    """The record of a local copy, by which a change of its files is found.

    Attributes:
        backend, directory, boot: where and when it was closed; a copy from elsewhere is refused.
        version: the version of the state that it holds; None where that has no version.
        files: all files of the directory but the seal.
    """

    backend: str
    directory: str
    boot: str
    version: str | None
    files: tuple[_SealedFile, ...]

    @classmethod
    def read(cls, directory: Path) -> Seal | None:
        """The seal on a directory, if there is one that can be read."""
        try:
            tree = json.loads(_SEALED.unseal(_read(directory / SEAL_FILE), SEAL_FILE))
            LOCAL_COPY.check(tree.pop("format_version"))
            return cattrs.structure(tree, cls)
        except Exception:  # noqa: BLE001 - whatever it is that lies there, it is not a seal
            return None

    def data(self) -> bytes:
        """The seal's file."""
        tree = {"format_version": LOCAL_COPY.version, **cattrs.unstructure(self)}
        return _SEALED.seal(json.dumps(tree))

    def damage(self, backend: str, directory: Path) -> str:
        """Why the copy cannot be trusted; empty where it can.

        Args:
            backend: what is to open it.
            directory: where it lies now.

        Raises:
            OSError: the files cannot be read.
        """
        if (self.backend, self.directory) != (backend, str(directory.resolve())):
            return f"it was sealed by {self.backend!r} in {self.directory}"
        if self.boot != boot_id():
            return "the machine was restarted, and local copies are not synced to disk"
        if any(not 0 <= file.digested <= file.size for file in self.files):
            return "its seal digests more of a file than the file holds"
        return self._changed_file(directory) or self._other_content(directory)

    def _changed_file(self, directory: Path) -> str:
        found = {file.path: file for file in _look(directory)}
        for file in self.files:
            if file.path not in found:
                return f"{file.path} is missing"
            if change := file.change(found.pop(file.path)):
                return change
        return f"{min(found)} was added after it was closed" if found else ""

    def _other_content(self, directory: Path) -> str:
        for file in self.files:
            if file.digest != _digest(directory / file.path, file.digested):
                return f"{file.path} holds something else than when it was closed"
        return ""


def write_seal(backend: str, directory: Path, version: str | None, trusted: str) -> None:
    """Seal what a closed backend has left in a directory; see ``Seal``.

    Args:
        backend: its name.
        directory: its directory.
        version: the state that lies there.
        trusted: a pattern of files of which their store checks each block it reads.

    Raises:
        OSError: a file cannot be read, or the seal not be written.
    """
    files = () if version is None else tuple(_digested(directory, trusted))
    _outlive(
        (f.changed for f in files if f.digested < f.size and not _matches(f, trusted)), directory
    )
    seal = Seal(backend, str(directory.resolve()), boot_id(), version, files)
    _overwrite(directory, seal.data())


def break_seal(directory: Path) -> None:
    """Make the seal worthless, before anything there is opened."""
    if os.path.lexists(directory / SEAL_FILE):
        _overwrite(directory, b"broken")


def _overwrite(directory: Path, data: bytes) -> None:
    """Write the seal's file, in place: a new one might wait for the file system's journal.

    Half of it is not a sound seal, so nothing more is needed.
    """
    path = directory / SEAL_FILE
    _remove_foreign(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _PLAIN_FILE, 0o666)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.truncate(file.write(data))


def _remove_foreign(path: Path) -> None:
    """Remove what is not a file of ours; a link would lead what we write into another file."""
    if not os.path.lexists(path):
        return
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(path)
    elif not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        path.unlink()


def _read(path: Path) -> bytes:
    """A seal's bytes, no more than one has; a pipe is not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | _PLAIN_FILE), "rb") as file:
        return file.read(_LARGEST_SEAL)


def _matches(file: _SealedFile, pattern: str) -> bool:
    return bool(pattern) and fnmatch.fnmatch(file.path, pattern)


def _look(directory: Path) -> Iterator[_SealedFile]:
    for path in directory.rglob("*"):
        if not path.is_dir() and path.name != SEAL_FILE:
            yield _SealedFile.of(directory, path)


def _digested(directory: Path, trusted: str) -> Iterator[_SealedFile]:
    left = DIGESTED_BYTES
    for file in sorted(_look(directory), key=lambda file: file.size):
        length = 0 if _matches(file, trusted) else min(left, file.size)
        left -= length
        digest = _digest(directory / file.path, length)
        yield attrs.evolve(file, digested=length, digest=digest)


def _digest(path: Path, length: int) -> str:
    """The digest of a file's first bytes; empty of none."""
    if length <= 0:
        return ""
    digest = xxhash.xxh3_128()
    view = memoryview(bytearray(min(_CHUNK, length)))
    # Read, not mapped: a sector that cannot be read is then an error, and no SIGBUS.
    with path.open("rb", buffering=0) as file:
        while length > 0 and (count := file.readinto(view[:length])):
            digest.update(view[:count])
            length -= count
    return digest.hexdigest()


def _outlive(changes: Iterator[int], directory: Path) -> None:
    """Wait until the clock of the file system has passed the last of some changes, in ns.

    It ticks every few milliseconds: a change in the same tick could not be told from the last one
    before the seal. After a batch nothing is left to wait for.
    """
    last = max(changes, default=0)
    while last:
        _overwrite(directory, b"broken")
        if (directory / SEAL_FILE).stat().st_ctime_ns > last:
            return
        time.sleep(0.001)
