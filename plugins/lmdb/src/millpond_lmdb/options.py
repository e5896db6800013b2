"""The options of the LMDB backend."""

from __future__ import annotations

import attrs
from millpond.config import ByteSize


@attrs.frozen
class LmdbOptions:
    """Options under ``backend.lmdb.``.

    Attributes:
        initial_map_size: bytes of the first memory map; it grows by itself.
        max_growth: the map grows by half its size, but by at most this many bytes at once, so
            that under an address-space limit it remains close to the size it needs.
        max_states: how many states one subtask may have; each is a named database.
        max_readers: slots for read transactions: one per running snapshot, and one more.
    """

    initial_map_size: ByteSize = ByteSize(16 << 20)
    max_growth: ByteSize = ByteSize(1 << 30)
    max_states: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    max_readers: int = attrs.field(default=126, validator=attrs.validators.ge(2))
