"""Functions that clauses call in new processes, with full disks or damaged files."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import millpond as mp
from millpond.errors import BackendFailedError, MillpondError, StoreFullError
from millpond.snapshots.restore import restore_keyed

from millpond_conformance.opening import open_at

_BLOB = mp.ValueStateDescriptor("blob", bytes)
_ROWS, _MIGRATED = 2000, 3000
_BEGINNING = 16 << 10
"""The number of bytes at the beginning of a file that `damaged_while_open` does not overwrite."""


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """In the ``with`` block, make the operating system refuse files larger than `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def opened_on_full_disks(backend_name: str, directory: str) -> int:
    """Open backends on full disks, and return the number of files that remain open afterwards.

    A full disk is simulated by a limit of 0 to 11 pages for the size of a file. The errors remain
    referenced, as in code that logs them later. Without the limit, a backend must be able to open
    each of the directories.
    """
    open_at(backend_name, Path(directory) / "first").close()
    before, errors = _open_files(), []
    for pages in range(12):
        with largest_file(pages << 12):
            try:
                open_at(backend_name, Path(directory) / str(pages)).close()
            except MillpondError as error:
                errors.append(error)
    left = _open_files() - before
    for pages in range(12):
        open_at(backend_name, Path(directory) / str(pages)).close()
    return left


def rows_of(backend: Any) -> dict[str, bytes]:
    """Return, by key, the values of `damaged_while_open` that can be read from `backend`."""
    state, found = backend.get_partitioned_state(_BLOB), {}
    for number in range(_ROWS):
        backend.set_current_key(f"k{number}")
        value = state.value()
        if value is not None:
            found[f"k{number}"] = value
    return found


def blobs() -> dict[str, bytes]:
    """Return, by key, the values that `damaged_while_open` writes."""
    generator = random.Random(1)  # noqa: S311 - data, no secret
    return {f"k{number}": generator.randbytes(2000) for number in range(_ROWS)}


def damaged_while_open(backend_name: str, directory: str) -> bool:
    """Flush a backend with the version ``v1``, and overwrite most bytes of its files.

    Return whether a later read, or closing the backend, raises an error.
    """
    backend = open_at(backend_name, Path(directory))
    state = backend.get_partitioned_state(_BLOB)
    for key, blob in blobs().items():
        backend.set_current_key(key)
        state.update(blob)
    backend.flush("v1")
    for path in Path(directory).rglob("*"):
        if path.is_file() and path.stat().st_size > 2 * _BEGINNING:
            with path.open("r+b") as file:
                file.seek(_BEGINNING)
                file.write(b"\xff" * (path.stat().st_size - _BEGINNING))
    told = False
    for use in (lambda: rows_of(backend), backend.close):
        try:
            use()
        except MillpondError:
            told = True
    return told


_DISKS = ((0, int), (0, float), (32, int), (64, float), (64, int), (256, int), (256, float))
"""Free disk space in KiB for a migration, and the type that is requested after its failure."""


def half_migrated(backend_name: str, directory: str) -> list[str]:
    """Migrate values from int to float while the disk becomes full, for several sizes of the disk.

    Return a description of each wrong value or unexpected error.
    """
    wrong = []
    for number, (room, afterwards) in enumerate(_DISKS):
        place = Path(directory) / str(number)
        with open_at(backend_name, place) as backend:
            _prepare(backend)
            before = max((each.stat().st_size for each in place.rglob("*")), default=0)
            try:
                with largest_file(before + (room << 10)):
                    found = _numbers(backend, float)
            except StoreFullError:
                wrong += _found_wrong(backend, afterwards, room)
            else:
                wrong += _differences(found, float, room)
    return wrong


def _prepare(backend: Any) -> None:
    """Restore many ints into `backend`, from a snapshot of another backend."""
    storage = mp.checkpoint_storage("memory:half migrated")
    with mp.open_keyed_backend("heap", key_type=str) as source:
        state = source.get_partitioned_state(mp.ValueStateDescriptor("number", int))
        for number in range(_MIGRATED):
            source.set_current_key(f"k{number}")
            state.update(number)
        restore_keyed(backend, [source.snapshot(1, storage).result().handle])
    backend.flush("v1")


def _numbers(backend: Any, declared: Any) -> list[str]:
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("number", declared))
    found = []
    for number in range(_MIGRATED):
        backend.set_current_key(f"k{number}")
        found.append(repr(state.value()))
    return found


def _found_wrong(backend: Any, declared: Any, room: int) -> list[str]:
    """Return descriptions of the wrong values after a failed migration.

    The list is empty if all values are right, or if the backend refuses all calls.

    Args:
        backend: the backend.
        declared: the type with which the state is requested.
        room: the free disk space in KiB, for the message.
    """
    try:
        return _differences(_numbers(backend, declared), declared, room)
    except BackendFailedError:
        return []
    except MillpondError as error:
        return [f"{room} KiB, {declared.__name__}: {error}"]


def _differences(found: list[str], declared: Any, room: int) -> list[str]:
    right = [repr(declared(number)) for number in range(_MIGRATED)]
    wrong = [pair for pair in zip(found, right, strict=True) if pair[0] != pair[1]]
    return [f"{room} KiB, {declared.__name__}: {len(wrong)} wrong, {wrong[0]}"] if wrong else []
