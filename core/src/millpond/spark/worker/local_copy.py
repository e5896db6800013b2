"""Local copies: directories under Spark's local directories, claimed by a lock.

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
from contextlib import contextmanager
from pathlib import Path

from millpond.backend.local_copy_seal import boot_id

__all__ = ["claimed_directory", "local_root"]


def local_root() -> Path:
    """Where local copies lie.

    The boot id is part of it: stores are not synced to disk, so after a crash of the machine
    nothing there can be trusted.
    """
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(spark or tempfile.gettempdir()) / f"millpond-{boot_id()[:8]}"


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
            private = Path(tempfile.mkdtemp(prefix="private-", dir=path))
            try:
                yield private, False
            finally:
                shutil.rmtree(private, ignore_errors=True)
            return
        yield path / "copy", True
