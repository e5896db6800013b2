"""Checks RocksDB's record files, its MANIFEST and logs, before RocksDB reads them.

RocksDB 10.4's reader loops forever on a record of a type that only reused logs have: it takes the
record for bad and reads it again, before it checks the record's checksum. So this module walks
the headers: some hundreds, of seven bytes each.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

_PATTERNS = ("MANIFEST-*", "*.log")
_BLOCK = 32 << 10
_HEADER = 7
"""Bytes of a header: checksum (4), length (2, little-endian), type (1); none crosses a block."""
_PARTS = frozenset(range(1, 5))
"""Types of records: a whole one, and the first, a middle and the last part of one."""


def damaged_record(directory: Path) -> str:
    """Describe the first record of a closed store that RocksDB must not read; empty if none.

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
