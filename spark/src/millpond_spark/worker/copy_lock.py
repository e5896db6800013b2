"""Local copies: directories that tasks claim by a lock.

Python workers are not pinned to subtasks and may die at any time, so a directory belongs to
the process that holds its lock, which the kernel releases when the process ends. A worker that
cannot get the lock (a killed task's worker may still hold it) works in a private directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["claimed_directory"]

_PRIVATE = "private-"


@contextmanager
def claimed_directory(path: Path) -> Iterator[tuple[Path, bool]]:
    """Claim a directory for the time of a task.

    Yields:
        The directory, and whether it is the shared one, which outlives the task.
    """
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _private_directory(path) as private:
                yield private, False
            return
        _remove_abandoned(path)
        yield path / "copy", True


@contextmanager
def _private_directory(parent: Path) -> Iterator[Path]:
    """A directory for one task, locked while its process lives."""
    with _guard(parent):
        private = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=parent))
        descriptor = os.open(private, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove the private directories of killed processes: each may be as large as the state."""
    found = list(parent.glob(f"{_PRIVATE}*"))
    if not found:
        return
    with _guard(parent):
        for private in found:
            # Still locked, or gone by itself.
            with suppress(OSError):
                descriptor = os.open(private, os.O_RDONLY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(private, ignore_errors=True)
                finally:
                    os.close(descriptor)


@contextmanager
def _guard(parent: Path) -> Iterator[None]:
    """So that nobody meets a private directory between its making and its lock."""
    with (parent / "private.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
