"""The current key as the heap's tables use it: a key group and an address in its dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.spi import CurrentKey, KeyedBackendParameters
from typing_extensions import override


class HeapKey(CurrentKey):
    """The current key; its address is the key, or the encoded key if equality is not exact."""

    def __init__(self, backend: str, parameters: KeyedBackendParameters) -> None:
        super().__init__(backend, parameters)
        self.prepares = not self.codec.exact

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        self.address = key if self.codec.exact else self.codec.encode(key)

    @override
    def addresses(self, keys: list[Any], groups: list[int]) -> list[Any]:
        codec = self.codec
        return keys if codec.exact else codec.encode_many(keys)

    def turn_to(self, key_group: int, address: Any) -> None:
        """Let the tables work on another key."""
        self.key_group, self.address = key_group, address

    @contextmanager
    def turned_away(self) -> Iterator[None]:
        """Let the tables be turned to other keys inside the ``with`` block."""
        before = self.key_group, self.address
        try:
            yield
        finally:
            self.key_group, self.address = before
