"""The interface of the key-value stores that backends use, and the errors of local stores."""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from millpond.errors import MillpondError, StoreAccessError, StoreDamagedError, StoreFullError
from millpond.storage.local_directory import CURES

META_FAMILY = "default"
"""The family that every store has from the start. Millpond stores notes about the store in it."""


WriteBatch = Mapping[str, Sequence[tuple[bytes, bytes | None]]]
"""The sorted keys and values to write, by family. The value None deletes a key."""


@attrs.frozen
class FamilySize:
    """The size of a family in a store.

    Attributes:
        rows: the number of rows.
        bytes: the size of the rows in the store's files.
        is_exact: whether both numbers are exact; otherwise they are estimates.
    """

    rows: int
    bytes: int
    is_exact: bool


class StoreReader(ABC):
    """The content of a store at one moment, which another thread may read."""

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over rows like ``ByteStore.scan``, as they were when the reader was opened."""

    @abstractmethod
    def close(self) -> None:
        """Release the reader. Any thread may call this method."""


class ByteStore(ABC):
    """A key-value store of bytes in key order, divided into named families.

    A family is, for example, a column family of RocksDB or a named database of LMDB.

    Note for implementers:

    * Only one thread at a time uses a store.
    * Keys and values may have any length. If the library has a limit, the store must work around
      it.
    * Writes need not survive a power failure, because the store is only a local copy of the state.
    * If the process is killed, a reopened store must have the content after one of the writes,
      which must be the same write in all families.
    * Convert errors of the operating system and the native library by ``store_error``.

    Attributes:
        damaged: whether the store has found that it is damaged.
    """

    damaged = False

    @abstractmethod
    def families(self) -> list[str]:
        """Return the names of all families, including ``META_FAMILY``."""

    @abstractmethod
    def create_family(self, family: str) -> None:
        """Add an empty family if it does not exist.

        Raises:
            TooManyStatesError: the store has no room for another family.
        """

    @abstractmethod
    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None if the family does not contain the key.

        Raises:
            StoreDamagedError: the value cannot be read.
        """

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the result of ``get`` for each key.

        Override this method if the store has a faster way.
        """
        return [self.get(family, key) for key in keys]

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over keys and values in key order, from `start` up to but not including `end`.

        If `end` is None, iterate up to the last key. The caller closes the iterator before the next
        write. If the store cannot read a row, the iterator must raise an error instead of ending
        early.

        Raises:
            StoreDamagedError: a row cannot be read.
        """

    def scan_back(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Iterate over the same rows as ``scan``, but from the last row to the first.

        By default all rows are read first. Override this method if the store can iterate backwards.
        """
        with closing(self.scan(family, start, end)) as rows:
            yield from reversed(list(rows))

    @abstractmethod
    def write(self, batch: WriteBatch) -> None:
        """Write all changes atomically: a later read sees either all of them or none.

        Raises:
            StoreFullError: the store cannot grow any more.
            StoreDamagedError: the store is damaged.
        """

    def reader(self) -> StoreReader | None:
        """Return a reader of the current content, so that writes can continue during a snapshot.

        By default return None. A snapshot is then read before the next write.
        """
        return None

    def family_size(self, family: str) -> FamilySize | None:
        """Return the size of a family, without reading its rows; None if that is impossible.

        Its cost must not depend on the number of rows. By default return None.
        """
        return None

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of the store itself, by name. By default there are none.

        The metric ``live_bytes``, if it exists, is the size of the stored entries on disk.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release files and memory. All writes must be there when the store is opened again."""


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
        backend: the name of the backend.
        directory: the directory of the store.
        error: an ``OSError``, or an error or message of the native library. Such a message contains
            the text of the operating system's error, if there was one.
        cure: advice for the error message, used if the store is neither damaged nor full.
        damaged: whether the native library has reported damage.
        full: whether the native library has reported that it has no room.
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
    """Replace errors of the operating system by errors that name the backend and the directory.

    Raises:
        StoreFullError, StoreDamagedError, StoreAccessError: see ``store_error``.
    """
    try:
        yield
    except OSError as error:
        raise store_error(backend, directory, error) from error


def fits_address_space(more: int) -> bool:
    """Return whether the process can allocate `more` bytes under its address-space limit.

    Call this function before a native library allocates memory, because such a library may end the
    process if the allocation fails.
    """
    try:
        mmap.mmap(-1, more).close()
    except (OSError, MemoryError, ValueError):
        return False
    return True
