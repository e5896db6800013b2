"""The base of backends that keep their state in an ordered key-value store."""

from millpond.backend.bytestore.byte_store_backend import ByteStoreBackend
from millpond.backend.bytestore.list_pieces import whole_lists
from millpond.backend.bytestore.store import META_FAMILY, ByteStore, StoreReader, WriteBatch
from millpond.backend.key_layout import end_of_prefix

__all__ = [
    "META_FAMILY",
    "ByteStore",
    "ByteStoreBackend",
    "StoreReader",
    "WriteBatch",
    "end_of_prefix",
    "whole_lists",
]
