"""Local copies: the directories on a worker's machine in which backends store their state.

A local copy outlives the task, so that a later task on the machine does not have to restore the
snapshot. Spark may run a subtask in any Python worker, and workers may die at any time. Therefore a
task locks the directory that it uses. The kernel releases the lock when the process ends. If
another process has the lock, for example the worker of a killed task, the task uses a private
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
    """Lock a directory below `path` during the ``with`` block.

    Yields:
        The directory and True; or a private temporary directory and False, if another process has
        locked the directory.
    """
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        if _is_locked(path / _LOCK, held):
            yield path / "copy", True
        else:
            private = tempfile.TemporaryDirectory(dir=path, ignore_cleanup_errors=True)
            folder = Path(held.enter_context(private))
            _is_locked(folder / _LOCK, held)  # so that `_remove` does not delete it
            (folder / "copy").mkdir()
            yield folder / "copy", False


def _is_locked(file: Path, held: ExitStack) -> bool:
    """Try to lock `file` until `held` is closed; return whether this has succeeded."""
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
    """Return the directory of a local copy. Create it on a disk with free space if necessary.

    If no disk can be used, the returned directory may not exist.

    Args:
        name: the relative path of the local copy.
        configured: the value of ``local.dir``, the parent directories of all local copies. If it is
            empty, Spark's local directories are used.
    """
    roots = _roots(configured)
    first = zlib.crc32(name.encode()) % len(roots)
    places = [root / name for root in (*roots[first:], *roots[:first])]
    # An existing directory is preferred, so that a copy is only on one disk.
    places.sort(key=lambda place: not place.exists())
    chosen = next(filter(_is_usable, places), places[0])
    for other in places:
        # A copy on a full disk is removed, to free its space.
        if other != chosen and other.exists():
            _remove(other)
    return chosen


def remove_earlier_copies(
    folder: str, divisions: Iterable[KeyGroupRange], configured: Sequence[str] = ()
) -> None:
    """Remove the local copies of an operator's subtasks from before a rescale.

    Args:
        folder: the relative path of the operator's local copies.
        divisions: the key groups of each of the operator's present subtasks.
        configured: the value of ``local.dir``, the parent directories of all local copies. If it is
            empty, Spark's local directories are used.
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
    """Return the directories that have local copies: one in each of `configured`.

    If `configured` is empty, there is one in each of Spark's local directories. Their names have
    the machine's boot id. After a crash of the machine, local copies are therefore not found. They
    may be damaged, because backends do not sync them to disk.
    """
    named = configured or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    given = [part for part in named if part] or [tempfile.gettempdir()]
    return [Path(part) / f"millpond-{boot_id()[:8]}" for part in given]


def _is_usable(place: Path) -> bool:
    """Create the directory `place`; return whether this succeeds and its disk has free space."""
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
    """Remove `folder` with all local copies in it, unless a task uses one of them."""
    # Errors are ignored, because another worker may remove these files at the same time.
    with ExitStack() as locks, suppress(OSError):
        if all(_is_locked(lock, locks) for lock in folder.glob(f"**/{_LOCK}")):
            shutil.rmtree(folder, ignore_errors=True)
