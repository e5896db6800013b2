"""A check of RocksDB's record files (its MANIFEST and logs), before RocksDB reads them.

RocksDB 10.4 loops forever on a damaged record whose type exists only in reused logs: it reads the
record again and again, before it checks the checksum. So this module checks the headers of all
records. There are a few hundred, of seven bytes each.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

_PATTERNS = ("MANIFEST-*", "*.log")
_BLOCK = 32 << 10
_HEADER = 7
"""Bytes of a header: checksum (4), length (2, little-endian) and type (1)."""
_PARTS = frozenset(range(1, 5))
"""The types of records: a whole record, and the first, a middle and the last part of one."""


def damaged_record(directory: Path) -> str:
    """Return a description of the first record that RocksDB must not read, or '' if there is none.

    `directory` is the directory of a closed store.

    Raises:
        OSError: a file cannot be read.
    """
    for pattern in _PATTERNS:
        for path in sorted(directory.glob(pattern)):
            with path.open("rb") as file:
                if fault := _fault(file):
                    return f"{path.name} is damaged: {fault}"
    return ""


def _fault(file: IO[bytes]) -> str:
    offset = 0
    while block := file.read(_BLOCK):
        start = 0
        while len(block) - start >= _HEADER:
            end = start + _HEADER + int.from_bytes(block[start + 4 : start + 6], "little")
            kind = block[start + 6]
            if kind not in _PARTS:
                return f"the record at byte {offset + start:,} has the unknown type {kind}"
            if end > len(block):
                return f"the record at byte {offset + start:,} is cut off"
            start = end
        offset += len(block)
    return ""
