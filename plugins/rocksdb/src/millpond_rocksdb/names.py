"""RocksDB's names in configuration and handles."""

from __future__ import annotations

BACKEND = "rocksdb"
"""The backend's name in configuration."""

NATIVE_FORMAT = "rocksdb"
"""The format of handles that hold RocksDB's own files."""
