"""Local copies of state: directories on a worker's machine that tasks claim by a lock.

Spark may run a subtask in any Python worker, and workers may die at any time. So a directory
belongs to the process that holds its lock, which the kernel releases when the process ends. A
worker that cannot get the lock, as a killed task's worker may still hold it, uses a private
directory.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from millpond.backend.working_directory import boot_id
from millpond.keygroups import KeyGroupRange

_LOCK = "lock"


@contextmanager
def claimed_directory(path: Path) -> Iterator[tuple[Path, bool]]:
    """Claim a directory for the time of a task.

    Yields:
        The directory, and whether it is the shared one, which outlives the task.
    """
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if _is_locked(path / _LOCK, held):
            yield path / "copy", True
        else:
            private = tempfile.TemporaryDirectory(dir=path, ignore_cleanup_errors=True)
            yield Path(held.enter_context(private)), False


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
_ROOM = 64 << 20
"""A disk with fewer free bytes counts as full."""


def place_of_copy(name: str, configured: Sequence[str] = ()) -> Path:
    """Return the directory of a local copy, and create it on a disk with room.

    If no disk is usable, the returned directory may be missing.

    Args:
        name: the copy's path below the directories of copies.
        configured: the value of ``local.dir``: directories to use instead of the executor's.
    """
    roots = _roots(configured)
    first = zlib.crc32(name.encode()) % len(roots)
    places = [root / name for root in (*roots[first:], *roots[:first])]
    # An existing copy remains in use, so that no copy is in two places.
    places.sort(key=lambda place: not place.exists())
    chosen = next(filter(_is_usable, places), places[0])
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


def executor_directory() -> Path:
    """Return the executor's first local directory, for the temporary files of tasks."""
    return _roots()[0].parent


def _roots(configured: Sequence[str] = ()) -> list[Path]:
    """Return the directories of copies: one in each of `configured`.

    If none is configured, there is one in each of Spark's local directories.

    The boot id is part of their names: stores are not synced to disk, so after a crash of the
    machine no copy can be trusted.
    """
    named = configured or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    given = [part for part in named if part] or [tempfile.gettempdir()]
    return [Path(part) / f"millpond-{boot_id()[:8]}" for part in given]


def _is_usable(place: Path) -> bool:
    """Create a copy's directory, and return whether that succeeded and its disk has room."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(place).free >= _ROOM:
            (place / _LOCK).touch()
            return True
        _LOG.warning("%s is full; local copies go elsewhere", place)
    except OSError as error:
        _LOG.warning("%s cannot be used for local copies: %s", place, error)
    return False


def _remove(folder: Path) -> None:
    """Remove a directory with copies, unless a task uses one of them."""
    # Another worker may remove the same files right now.
    with ExitStack() as locks, suppress(OSError):
        if all(_is_locked(lock, locks) for lock in [*folder.glob(f"**/{_LOCK}*")]):
            shutil.rmtree(folder, ignore_errors=True)
