"""The base of backends that keep their state in an ordered key-value store."""

from millpond.backend.bytestore.backend import ByteStoreBackend
from millpond.backend.bytestore.store import META_FAMILY, ByteStore, WriteBatch

__all__ = ["META_FAMILY", "ByteStore", "ByteStoreBackend", "WriteBatch"]
