"""Find leaks: count threads, descriptors and files of this process before and after some calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import attrs

_WARM, _CALLS, _ROUNDS = 6, 16, 4
"""The number of calls before the first count, of calls in a round, and of rounds at most."""


@attrs.frozen
class Census:
    """The numbers of threads and descriptors of this process, and of entries in some folders.

    A file descriptor does not count if its file is in one of the folders, because a store may open
    and close its files at any time. If the file has been deleted, the descriptor counts.

    Attributes:
        threads: Python's threads.
        native_threads: the threads of the operating system.
        descriptors: the open file descriptors.
        files: the files and directories in the folders.
    """

    threads: int
    native_threads: int
    descriptors: int
    files: int

    @classmethod
    def of_process(cls, folders: Sequence[Path] = ()) -> Census:
        """Count threads and descriptors of this process, and the entries in `folders`."""
        return cls(
            threading.active_count(),
            sum(1 for _ in Path("/proc/self/task").iterdir()),
            sum(1 for path in _targets() if not _is_in(path, folders)),
            sum(1 for folder in folders for _ in folder.rglob("*")),
        )


def _targets() -> Iterator[str]:
    """Yield the target of each descriptor of this process."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own descriptor is closed again
            yield str(link.readlink())


def _is_in(path: str, folders: Sequence[Path]) -> bool:
    inside = any(path.startswith(f"{folder}/") for folder in folders)
    return inside and not path.endswith(" (deleted)")


def grown(call: Callable[[], object], folders: Sequence[Path]) -> dict[str, int]:
    """Repeat `call` in several rounds, and return the counts of `Census` that do not stop growing.

    The result has the names of these counts, each with the growth in the last round. The number of
    a store's files may grow in the first rounds, until the store merges the files. Therefore a
    count is returned only if it has grown in each round.
    """
    for _ in range(_WARM):
        call()
    growing: dict[str, int] = {}
    before = attrs.asdict(Census.of_process(folders))
    for _ in range(_ROUNDS):
        for _ in range(_CALLS):
            call()
        after = attrs.asdict(Census.of_process(folders))
        added = {name: after[name] - before[name] for name in before}
        growing = {name: more for name, more in added.items() if more >= _CALLS // 2}
        if not growing:
            break
        before = after
    return growing
