"""The write-back buffer: tables that read each touched entry once and write it once.

Within a bundle the tables keep entries as objects. A flush serializes each dirty one once, into
one atomic batch for the store; the changelog records the same batch. Addresses are the physical
keys: key group, key, namespace (and map key), each part self-delimiting.
"""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import Any

from millpond.backend.bytestore.encoded_key import EncodedKey
from millpond.backend.bytestore.write_buffer import WriteBuffer
from millpond.spi.rows import Change, Expiry
from millpond.types import KeyCodec

UNREAD: Any = object()
"""The value of an entry that was not read from the store."""


class BufferedTable:
    """The base of both tables: the addresses of entries.

    Attributes:
        swept: the position that the clean-up has reached.
    """

    def __init__(
        self, current: EncodedKey, buffer: WriteBuffer, family: str, namespaces: KeyCodec
    ) -> None:
        self.current = current
        self._buffer = buffer
        self._family = family
        self._namespaces = namespaces
        self.swept = b""

    def sweep(self, limit: int, expiry: Expiry) -> tuple[int, int, bool]:
        """See ``CellTable.sweep``; buffered changes are newer than stored rows."""
        looked, removed, physical = 0, 0, b""
        expired: list[Change] = []  # rows that stay as they are may be large, and are not held
        with closing(self._buffer.store.scan(self._family, self.swept, None)) as scan:
            for looked, (physical, data) in enumerate(islice(scan, limit), 1):  # noqa: B007
                kept = expiry.of_bytes(data)
                if kept is not data:
                    expired.append((physical, kept))
        for key, kept in expired:
            if not self._is_dirty(key):
                self.load(key, kept)
                removed += kept is None
        ended = looked < limit
        self.swept = b"" if ended else physical + b"\0"
        return looked, removed, ended

    def load(self, key: bytes, value: bytes | None) -> None:
        """Put a portable row, or remove it for None: a change like any other in the bundle."""
        raise NotImplementedError

    def _is_dirty(self, physical: bytes) -> bool:
        raise NotImplementedError

    def _unreadable(self, physical: bytes, error: Exception) -> Exception:
        return self._buffer.unreadable(self._family, physical, error)

    def prepare_namespace(self, namespace: Any) -> Any:
        """The encoded namespace."""
        return self._namespaces.encode(namespace)

    def _address(self, namespace: bytes) -> bytes:
        """The physical key, or the start of it, for the current key."""
        prefix: bytes | None = self.current.address
        if prefix is None:
            raise self.current.missing()
        return prefix + namespace
