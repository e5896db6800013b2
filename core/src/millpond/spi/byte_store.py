"""The contract of the key-value stores that backends use, and the errors of local stores."""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from millpond.errors import MillpondError, StoreAccessError, StoreDamagedError, StoreFullError
from millpond.storage.local_directory import CURES

META_FAMILY = "default"
"""The family that every store has from the start; it holds Millpond's notes about the store."""


WriteBatch = Mapping[str, Sequence[tuple[bytes, bytes | None]]]
"""Sorted keys and values by family; the value None deletes a key."""


class StoreReader(ABC):
    """A store's content at one moment, which another thread may read."""

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """See ``ByteStore.scan``; later writes have no effect on it."""

    @abstractmethod
    def close(self) -> None:
        """Release the reader; any thread may call this."""


class ByteStore(ABC):
    """A key-value store of bytes in key order, divided into named families.

    A family is a column family of RocksDB, a named database of LMDB, or the like.

    Note for implementers: one thread at a time uses a store. Keys and values have any length; a
    store with a limit hides it. Writes need not survive a power loss: the files are a local copy.
    After the process was killed, a reopened store must hold its content as of one moment between
    two writes, the same moment in all families. Turn errors of the operating system and the native
    library into Millpond's errors, see ``store_error``.

    Attributes:
        damaged: whether the store has found damage.
    """

    damaged = False

    @abstractmethod
    def families(self) -> list[str]:
        """Return the names of all families, META_FAMILY among them."""

    @abstractmethod
    def create_family(self, family: str) -> None:
        """Add an empty family, unless it exists.

        Raises:
            TooManyStatesError: the store has no room for another family.
        """

    @abstractmethod
    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None.

        Raises:
            StoreDamagedError: the value cannot be read.
        """

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Call ``get`` for each of the keys; override it if the store has a faster way."""
        return [self.get(family, key) for key in keys]

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate in key order over the rows from ``start`` up to, but without, ``end``.

        If ``end`` is None, iterate up to the last row.

        The caller closes the iterator before it writes. The iterator ends only after the last
        row; if it cannot read on, it raises.

        Raises:
            StoreDamagedError: a row cannot be read.
        """

    def scan_back(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over the same rows as ``scan``, from the last one to the first.

        By default all of them are read first; override it if the store can iterate backwards.
        """
        with closing(self.scan(family, start, end)) as rows:
            yield from reversed(list(rows))

    @abstractmethod
    def write(self, batch: WriteBatch) -> None:
        """Apply all changes in one atomic step; no later read sees a part of them.

        Raises:
            StoreFullError: the store cannot grow any further.
            StoreDamagedError: the store is damaged.
        """

    def reader(self) -> StoreReader | None:
        """Return a consistent reader, so that a snapshot can be read while writes continue.

        If it returns None, as by default, a snapshot is read before the next write.
        """
        return None

    def metrics(self) -> Mapping[str, float]:
        """Return the store's own metrics by name; none by default.

        ``live_bytes``, if present, is the size of the stored entries on disk.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; the next opening finds all writes."""


_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM)
_TEXTS = {number: os.strerror(number) for number in (*_FULL, *CURES, errno.EIO)}


def store_error(
    backend: str,
    directory: str | Path,
    error: BaseException | str,
    cure: str = "Check the file system",
    *,
    damaged: bool = False,
    full: bool = False,
) -> MillpondError:
    """Return the error to raise for an error of a store.

    Args:
        backend: the backend's name.
        directory: the directory of its store.
        error: an ``OSError``, or a native library's error or message, which quotes the text of the
            operating system's error if there was one.
        cure: advice for errors that are neither damage nor lack of room.
        damaged: whether the native library has found damage.
        full: whether the native library has found no room.
    """
    place, reason = str(directory), str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        number = next((known for known, text in _TEXTS.items() if text in reason), None)
    if damaged or (number == errno.EIO and not full):
        return StoreDamagedError(backend, place, reason)
    if full or number in _FULL:
        return StoreFullError(backend, place, reason)
    return StoreAccessError(backend, place, reason, CURES.get(number or 0, cure))


@contextmanager
def named(backend: str, directory: str | Path) -> Iterator[None]:
    """Turn errors of the operating system into ones that name backend and directory.

    Raises:
        StoreFullError, StoreDamagedError, StoreAccessError: see ``store_error``.
    """
    try:
        yield
    except OSError as error:
        raise store_error(backend, directory, error) from error


def fits_address_space(more: int) -> bool:
    """Return whether the process can allocate more bytes under its address-space limit.

    Call this before a native library allocates memory: if it gets none, it ends the process.
    """
    try:
        mmap.mmap(-1, more).close()
    except (OSError, MemoryError, ValueError):
        return False
    return True
