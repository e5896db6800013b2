"""Local copies of state: directories on a worker's machine that tasks claim by a lock.

Spark may run a subtask in any Python worker, and workers may die at any time. So a directory
belongs to the process that holds its lock, which the kernel releases when the process ends. A
worker that cannot get the lock, as a killed task's worker may still hold it, uses a private
directory.
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
from millpond.backend.working_directory import boot_id
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
            # Remove the private directories of killed processes: each may be as large as the state.
            for private in path.glob(f"{_PRIVATE}*"):
                with ExitStack() as lock:
                    if _is_locked(path / private.name.replace(_PRIVATE, _LOCK), lock):
                        shutil.rmtree(private, ignore_errors=True)
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
    """Try to lock a file until ``held`` is closed; return whether this succeeded."""
    lock = file.open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return False
    held.enter_context(lock)
    return True


_LOG = logging.getLogger("millpond.spark")
_OWNER = "owner.json"
_ROOM = 64 << 20
"""A disk with fewer free bytes counts as full."""

_SPARKS = "blockmgr-"
_BESIDE = (
    f"../../{_SPARKS}*/millpond-*/{_OWNER}",
    # On a standalone cluster: directories of applications that ended together with their worker.
    f"../../../../spark-*/executor-*/{_SPARKS}*/millpond-*/{_OWNER}",
)


def place_of_copy(name: str, configured: Sequence[str] = ()) -> Path:
    """Return the directory of a local copy, on a disk with room.

    The directory is created, unless that fails on every disk.

    Args:
        name: the copy's path below the directories of copies.
        configured: the value of ``local.dir``: directories to use instead of the executor's.
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
    """Remove an operator's local copies from before a rescale.

    Args:
        folder: the operator's folder below the directories of copies.
        divisions: the key groups of its present subtasks.
        configured: the value of ``local.dir``: directories to use instead of the executor's.
    """
    present = tuple(f"kg-{groups.start}-{groups.end}-" for groups in divisions)
    for root in _roots(configured):
        for place in (root / folder).glob("kg-*"):
            if not place.name.startswith(present):
                _remove(place)


def executor_name() -> str:
    """Return the executor's name in metrics, which is that of its first local directory."""
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
    """Return the directories of copies: one in each of `configured`.

    If none is configured, there is one in each of Spark's local directories.

    The boot id is part of their names: stores are not synced to disk, so after a crash of the
    machine no copy can be trusted.
    """
    named = configured or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    given = [part for part in named if part] or [tempfile.gettempdir()]
    return [Path(part) / f"millpond-{boot_id()[:8]}" for part in given]


def _is_usable(place: Path, root: Path) -> bool:
    """Create a copy's directory, and return whether that succeeded and its disk has room.

    Args:
        place: the copy's directory.
        root: the directory of copies that it is in.
    """
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
    """Write the executor's identity into a directory of copies, and clean up after dead executors.

    Runs once a worker. Directories whose executor has died are removed.
    """
    root.mkdir(parents=True, exist_ok=True)
    me = _Owner.of_this_executor()
    if me is None or not root.parent.name.startswith(_SPARKS):
        return
    if _Owner.read(root / _OWNER) != me:
        written = root / f".{uuid.uuid4().hex}.tmp"
        written.write_text(json.dumps(attrs.asdict(me)))
        written.replace(root / _OWNER)
    for pattern in _BESIDE:
        for file in root.glob(pattern):
            owner = _Owner.read(file)
            if owner is not None and owner.is_dead(me) and _remove(file.parent):
                _LOG.info("%s was removed: its executor is lost", file.parent)


def _remove(folder: Path) -> bool:
    """Remove a directory with copies, unless a task uses one; return whether it was removed."""
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
    """The identity of an executor's process, which no other process ever has.

    Attributes:
        host, boot, namespace: the host's name, its boot id and the namespace of process ids. Among
            processes that have all three in common, the process id is unique at any time.
        started: the start of the process, in the kernel's ticks since the machine's start.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def of_this_executor(cls) -> _Owner | None:
        """Return the executor's JVM, which has started this worker; None if it cannot be found.

        The worker's parent is the JVM, or PySpark's daemon, whose parent is the JVM.
        """
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
        """Read the owner from a directory's file; None if the file names no owner."""
        try:
            return cls(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def is_dead(self, me: _Owner) -> bool:
        """Return whether the process has certainly ended, as far as executor ``me`` can tell."""
        if self.host != me.host or self == me:
            return False
        if self.boot != me.boot:
            return True
        if self.namespace != me.namespace:
            return False
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, started = _status(self.pid)
            return started != self.started or state in "ZX"
        return True


def _status(pid: int) -> tuple[str, str, str]:
    """Return a process's state, its parent and its start time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[1], fields[19]
