"""The small protocol that an ordered key-value store implements to become a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence

__all__ = ["META_FAMILY", "ByteStore", "StoreReader", "WriteBatch"]

META_FAMILY = "default"
"""The family that every store has from the start; it holds what Millpond notes about the store."""

WriteBatch = Mapping[str, Sequence[tuple[bytes, bytes | None]]]
"""Sorted keys and values by family; None as a value deletes."""


class StoreReader(ABC):
    """What a store held at one moment, for a thread of its own to read."""

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """As ``ByteStore.scan``, unmoved by later writes."""

    @abstractmethod
    def close(self) -> None:
        """Release it; from any thread."""


class ByteStore(ABC):
    """Ordered bytes to bytes, in named families (column families, named databases).

    Note for implementers: one thread at a time uses a store. Keys and values have any length;
    a store with a limit hides it. Durability against power loss is not asked for: the files
    are a local copy. Against a killed process, what a reopened store holds must be one of
    the states between two writes, in all families together. What the operating system or the
    native library refuses becomes an error of Millpond (``millpond.backend.failures``).

    Attributes:
        damaged: set once the store has found that it does not hold what was written to it.
    """

    damaged = False

    @abstractmethod
    def families(self) -> list[str]:
        """The names of all families, META_FAMILY among them."""

    @abstractmethod
    def create_family(self, family: str) -> None:
        """Add an empty family; nothing happens where it exists.

        Raises:
            TooManyStatesError: there is no room for another one.
        """

    @abstractmethod
    def get(self, family: str, key: bytes) -> bytes | None:
        """The value of a key, or None.

        Raises:
            StoreDamagedError: it cannot be read.
        """

    @abstractmethod
    def scan(
        self, family: str, start: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """Keys from ``start`` (inclusive) to ``end`` (exclusive; None: the last), in order.

        The caller closes the iterator before it writes. Its end is the end of the rows, never that
        of what could be read.

        Raises:
            StoreDamagedError: a row cannot be read.
        """

    @abstractmethod
    def write(self, batch: WriteBatch) -> None:
        """Apply all changes in one atomic step; no later read sees a part of them.

        Raises:
            StoreFullError: the store cannot grow any further.
            StoreDamagedError: it does not hold what was written to it.
        """

    def reader(self) -> StoreReader | None:
        """A consistent reader, so that snapshots are taken while writes go on.

        None, the default: snapshots are read before the next write.
        """
        return None

    def metrics(self) -> Mapping[str, float]:
        """What the store says of itself, by name; none by default.

        ``live_bytes``, where it is there, is what the stored entries take on disk.
        """
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; what was written is found at the next opening."""
