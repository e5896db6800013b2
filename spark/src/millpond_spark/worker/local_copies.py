"""Local copies of state: directories that tasks claim by a lock.

Spark may run a subtask in any Python worker, and workers may die at any time. So a directory
belongs to the process that holds its lock, which the kernel releases when the process ends. A
worker that cannot get the lock uses a private directory: a killed task's worker may still hold it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import attrs
from millpond.backend.ownership import boot_id
from millpond.keygroups import KeyGroupRange

_LOCK = "lock"
_PRIVATE = "private-"


@contextmanager
def claimed_directory(path: Path) -> Iterator[tuple[Path, bool]]:
    """Claim a directory for the time of a task.

    Yields:
        The directory, and whether it is the shared one, which outlives the task.
    """
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        number = next(n for n in count() if _is_locked(path / f"{_LOCK}{n or ''}", held))
        if number == 0:
            _remove_abandoned(path)
            yield path / "copy", True
            return
        private = path / f"{_PRIVATE}{number}"
        shutil.rmtree(private, ignore_errors=True)
        private.mkdir()
        try:
            yield private, False
        finally:
            shutil.rmtree(private, ignore_errors=True)


def _is_locked(file: Path, held: ExitStack) -> bool:
    """Lock a file for as long as ``held``, and return whether no other process has the lock."""
    lock = file.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    held.enter_context(lock)
    return True


def _remove_abandoned(path: Path) -> None:
    """Remove the private directories of killed processes: each may be as large as the state."""
    for private in path.glob(f"{_PRIVATE}*"):
        with ExitStack() as held:
            if _is_locked(path / private.name.replace(_PRIVATE, _LOCK), held):
                shutil.rmtree(private, ignore_errors=True)


_LOG = logging.getLogger("millpond.spark")
_OWNER = "owner.json"
_ROOM = 64 << 20
"""A disk with less left, in bytes, is full."""

_SPARKS = "blockmgr-"
_BESIDE = (
    f"../../{_SPARKS}*/millpond-*/{_OWNER}",
    # On a standalone cluster, those of applications that are gone with their worker.
    f"../../../../spark-*/executor-*/{_SPARKS}*/millpond-*/{_OWNER}",
)


def place_of_copy(name: str, configured: Sequence[str] = ()) -> Path:
    """Return the directory of a copy, which exists unless no directory can be made.

    Args:
        name: a path below the directories of copies.
        configured: directories to use in place of the executor's.
    """
    roots = _roots(configured)
    first = zlib.crc32(name.encode()) % len(roots)
    places = [root / name for root in (*roots[first:], *roots[:first])]
    # An existing copy remains in use, so that no copy is in two places.
    places.sort(key=lambda place: not place.exists())
    usable = (place for place in places if _is_usable(place, place.parents[name.count("/")]))
    chosen = next(usable, places[0])
    for other in places:
        # The copy on a full disk is worth less than the space it takes.
        if other != chosen and other.exists():
            _remove(other)
    return chosen


def remove_earlier_copies(
    folder: str, divisions: Iterable[KeyGroupRange], configured: Sequence[str] = ()
) -> None:
    """Remove an operator's copies of key groups that were divided in another way.

    Args:
        folder: the operator's, below the directories of copies.
        divisions: the key groups of its subtasks.
        configured: directories to use in place of the executor's.
    """
    present = tuple(f"kg-{groups.start}-{groups.end}-" for groups in divisions)
    for root in _roots(configured):
        for place in (root / folder).glob("kg-*"):
            if not place.name.startswith(present):
                _remove(place)


def executor_name() -> str:
    """Return the executor's name in metrics: Spark's name of its first directory."""
    return _roots()[0].parent.name


def roomiest_directory() -> Path:
    """Return the executor's directory with the most free space, for a task's temporary file."""
    rooms: dict[Path, int] = {}
    for root in _roots():
        with suppress(OSError):
            found = os.statvfs(root.parent)
            rooms[root.parent] = found.f_bavail * found.f_frsize
    return max(rooms, key=lambda place: rooms[place], default=Path(tempfile.gettempdir()))


def _roots(configured: Sequence[str] = ()) -> list[Path]:
    """Return our directory in each configured directory, or in each of the executor's.

    The boot id is part of its name: stores are not synced to disk, so after a crash of the machine
    no copy can be trusted.
    """
    named = configured or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    given = [part for part in named if part] or [tempfile.gettempdir()]
    return [Path(part) / f"millpond-{boot_id()[:8]}" for part in given]


def _is_usable(place: Path, root: Path) -> bool:
    try:
        _sign_and_clean(root)
        found = os.statvfs(root)
        if found.f_bavail * found.f_frsize >= _ROOM:
            place.mkdir(parents=True, exist_ok=True)
            (place / _LOCK).touch()
            return True
        _LOG.warning("%s is full; local copies go elsewhere", root)
    except OSError as error:
        _LOG.warning("%s cannot be used for local copies: %s", root, error)
    return False


@cache
def _sign_and_clean(root: Path) -> None:
    """Sign a directory at a worker's first use, and remove those of executors that have died."""
    root.mkdir(parents=True, exist_ok=True)
    me = _Owner.of_this_executor()
    if me is None or not root.parent.name.startswith(_SPARKS):
        return
    me.sign(root)
    for pattern in _BESIDE:
        for file in root.glob(pattern):
            owner = _Owner.read(file)
            if owner is not None and owner.is_dead(me) and _remove(file.parent):
                _LOG.info("%s was removed: its executor is lost", file.parent)


def _remove(folder: Path) -> bool:
    """Remove copies that no task uses; return whether there were some and they are gone."""
    with ExitStack() as locks:
        try:
            found = [*folder.glob(f"**/{_LOCK}*")]
        except FileNotFoundError:  # another worker removes them right now
            return False
        for lock in found:
            try:
                file = locks.enter_context(lock.open("w"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        held = folder.exists()
        shutil.rmtree(folder, ignore_errors=True)
    return held and not folder.exists()


@attrs.frozen
class _Owner:
    """An executor's process, which no other process ever equals.

    Attributes:
        host, boot, namespace: process ids are unique among processes that have all three in common.
        started: when the process was started, in the kernel's ticks since the machine was.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def of_this_executor(cls) -> _Owner | None:
        """Return the JVM that started Spark's daemon, our parent; None if it cannot be found."""
        try:
            pid = os.getppid()
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pid = int(_status(pid)[1])
            namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
            return cls(os.uname().nodename, boot_id(), namespace, pid, _status(pid)[-1])
        except (OSError, ValueError):
            return None

    @classmethod
    def read(cls, file: Path) -> _Owner | None:
        """Read the owner from a file; None if the file names no owner."""
        try:
            return cls(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def sign(self, root: Path) -> None:
        """Write this owner into a directory."""
        if _Owner.read(root / _OWNER) == self:
            return
        written = root / f".{uuid.uuid4().hex}.tmp"
        written.write_text(json.dumps(attrs.asdict(self)))
        written.replace(root / _OWNER)

    def is_dead(self, me: _Owner) -> bool:
        """Return whether the process is known to have ended; on other machines it is unknown."""
        if self.host != me.host or self == me:
            return False
        if self.boot != me.boot:
            return True
        return self.namespace == me.namespace and not self._runs()

    def _runs(self) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, started = _status(self.pid)
            return started == self.started and state not in "ZX"
        return False


def _status(pid: int) -> tuple[str, str, str]:
    """Return a process's state, its parent and its start time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[1], fields[19]
