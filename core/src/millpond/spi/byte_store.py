"""The interface that an ordered key-value store implements to become a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence

META_FAMILY = "default"
"""The family that every store has from the start; it holds Millpond's notes about the store."""


WriteBatch = Mapping[str, Sequence[tuple[bytes, bytes | None]]]
"""Sorted keys and values by family; the value None deletes a key."""


class StoreReader(ABC):
    """A store's content at one moment, for a thread of its own to read."""

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """See ``ByteStore.scan``; later writes have no effect on it."""

    @abstractmethod
    def close(self) -> None:
        """Release the reader; any thread may call this."""


class ByteStore(ABC):
    """Ordered bytes to bytes, in named families (column families, named databases).

    Note for implementers: one thread at a time uses a store. Keys and values have any length;
    a store with a limit hides it. Writes need not survive a power loss: the files are a local
    copy. After the process was killed, a reopened store must hold a state between two writes,
    the same one in all families. Raise Millpond's errors for those of the operating system and
    the native library (``millpond.spi.store_errors``).

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
        """Iterate over the rows from ``start`` up to, not at, ``end`` (None: to the last), by key.

        The caller closes the iterator before it writes. The iterator ends only after the last
        row; if it cannot read on, it raises.

        Raises:
            StoreDamagedError: a row cannot be read.
        """

    @abstractmethod
    def write(self, batch: WriteBatch) -> None:
        """Apply all changes in one atomic step; no later read sees a part of them.

        Raises:
            StoreFullError: the store cannot grow any further.
            StoreDamagedError: the store is damaged.
        """

    def reader(self) -> StoreReader | None:
        """Return a consistent reader, so that a snapshot can be read while writes continue.

        None, the default: a snapshot is read before the next write.
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
