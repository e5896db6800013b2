"""Shared helpers of the second gallery: how to make a backend wrong, and how to demonstrate it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import millpond as mp
from millpond.errors import MillpondError
from millpond.snapshots.strategy import SnapshotStrategy
from millpond.storage.checkpoint_storage import CheckpointStorage

from conformance.research.mutants.sabotage_tools import around, on_strategies

__all__ = [
    "FULL",
    "LOG",
    "NATIVE",
    "Gated",
    "at",
    "begun",
    "configured",
    "stored_by",
    "tables",
    "turned",
    "works",
]

FULL, LOG, NATIVE = (
    {"state.snapshot.strategy": name} for name in ("full", "changelog", "incremental")
)


class Gated(CheckpointStorage):
    """A storage that starts to write files only after `gate` is set."""

    def __init__(self, name: str) -> None:
        self.inner = mp.checkpoint_storage(f"memory:{name}")
        self.uri, self.gate = self.inner.uri, threading.Event()

    def open_writer(self, path: str) -> Any:
        """Start a file once the gate is open."""
        self.gate.wait(60)
        return self.inner.open_writer(path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Read like the storage in memory."""
        return self.inner.read(path, offset, length)

    def size(self, path: str) -> int:
        """Return a file's size."""
        return self.inner.size(path)

    def delete(self, path: str) -> None:
        """Delete like the storage in memory."""
        self.inner.delete(path)

    def list(self, folder: str) -> list[str]:
        """List like the storage in memory."""
        return self.inner.list(folder)


def at(backend: Any, key: Any, descriptor: Any, **space: Any) -> Any:
    """Return a state with a key selected."""
    backend.set_current_key(key)
    return backend.get_partitioned_state(descriptor, **space)


def begun(backend: Any) -> Any:
    """Return a backend whose snapshots start their file before they read any other row.

    A file is started with its first megabyte, which is the first row of the first key group.
    """
    first = next(key for key in map(str, range(10_000)) if not mp.assign_to_key_group(key, 128))
    at(backend, first, mp.ValueStateDescriptor("0 begin", bytes)).update(bytes(1 << 20))
    return backend


def configured(member: Any, base: str, options: dict[str, Any]) -> mp.Config:
    """Return a configuration with options of a member and of the unchanged backend."""
    return mp.Config(
        FULL, backend={base: options, f"{__package__}.gallery:w_{type(member).__name__}": options}
    )


@contextmanager
def works() -> Iterator[None]:
    """Turn an unexpected error into a failed assertion."""
    try:
        yield
    except (MillpondError, zlib.error) as error:
        raise AssertionError(str(error)) from error


def tables(backend: Any, before: type, after: type) -> None:
    """Replace the class of a backend's tables and timer rows by a derived one."""

    def made(original: Any, *given: Any) -> Any:
        table = original(*given)
        if type(table) is before:
            table.__class__ = after
        return table

    around(backend, "create_table", made)
    around(backend, "create_timer_rows", made)


def stored_by(backend: Any, after: type) -> None:
    """Replace the class of a backend's store, and of stores that it opens later, by a derived one."""

    def made(original: Any, *given: Any) -> Any:
        store = original(*given)
        store.__class__ = after
        return store

    backend.store.__class__ = after
    around(backend, "open_store", made)


def turned(backend: Any, name: str, after: type[SnapshotStrategy]) -> None:
    """Replace the class of a strategy by a derived one."""

    def change(strategy: Any) -> None:
        if strategy.name == name:
            strategy.__class__ = after

    on_strategies(backend, change)
