"""The options of the LMDB backend."""

from __future__ import annotations

import attrs
from millpond.config import ByteSize


@attrs.frozen
class LmdbOptions:
    """The options under ``backend.lmdb.``.

    Attributes:
        initial_map_size: bytes of the first memory map; it grows by itself.
        max_growth: the maximum number of bytes by which the map grows at once. Otherwise it grows
            by half its size. Under an address-space limit, a small value keeps the map close to the
            size it needs.
        max_states: the maximum number of states of one subtask. Each state is a named database.
        max_readers: the number of slots for read transactions: one for each running snapshot, and
            one more.
    """

    initial_map_size: ByteSize = ByteSize(16 << 20)
    max_growth: ByteSize = ByteSize(1 << 30)
    max_states: int = attrs.field(default=1024, validator=attrs.validators.ge(1))
    max_readers: int = attrs.field(default=126, validator=attrs.validators.ge(2))
