"""Reading a part of a snapshot: from its file, or from the handle that carries it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Protocol

from millpond.errors import CorruptSnapshotError
from millpond.snapshots.paths import BUNDLE_ENDING
from millpond.storage.checkpoint_storage import CheckpointStorage, check_path, exactly
from millpond.untrusted import decoding

__all__ = ["Part", "part_bytes", "part_reader", "require_whole"]


class Part(Protocol):
    """What a handle says of a part."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def offset(self) -> int:
        """Where it begins there."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def inline(self) -> str:
        """The bytes themselves in base64, where the handle carries them."""


def part_bytes(part: Part) -> bytes:
    """The bytes of a part that its handle carries.

    Raises:
        CorruptSnapshotError: they are not base64, or not as many as they should be.
    """
    with decoding(part.path, "what its handle carries cannot be read"):
        data = base64.b64decode(part.inline, validate=True)
    if len(data) != part.size:
        raise CorruptSnapshotError(part.path, f"its size is not {part.size:,} bytes")
    return data


def part_reader(storage: CheckpointStorage, part: Part) -> Callable[[int, int], bytes]:
    """What reads exactly so many bytes of a part from an offset in it.

    Raises:
        CorruptSnapshotError: what the handle carries is damaged; in a read, also where the
            file is missing or too short.
    """
    if part.inline:
        data = part_bytes(part)
        return lambda at, length: exactly(part.path, data[at : at + length], length)
    check_path(part.path)
    return lambda at, length: storage.read(part.path, part.offset + at, length)


def require_whole(storage: CheckpointStorage, part: Part) -> None:
    """Raise CorruptSnapshotError where a part's file is missing, or has another size.

    A file of several parts has to hold this one.
    """
    if part.inline:
        return
    size, end = storage.size(part.path), part.offset + part.size
    if size < end or (size > end and not part.path.endswith(BUNDLE_ENDING)):
        raise CorruptSnapshotError(part.path, f"its size is not {part.size:,} bytes")
