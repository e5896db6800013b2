"""The current key as a byte store's tables use it: encoded, after its key group."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond.backend.current_key import CurrentKey

__all__ = ["EncodedKey"]


class EncodedKey(CurrentKey):
    """The current key; its address is the prefix of its physical keys."""

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        self.address = self.group_prefixes[key_group] + self.codec.encode(key)
