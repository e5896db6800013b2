"""The current key as a byte store's tables use it: encoded, after its key group."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from millpond.backend.current_key import CurrentKey
from millpond.backend.parameters import KeyedBackendParameters

__all__ = ["EncodedKey"]


class EncodedKey(CurrentKey):
    """The current key.

    Attributes:
        prefix: the prefix of its physical keys; None if no key is set.
    """

    def __init__(self, backend: str, parameters: KeyedBackendParameters) -> None:
        super().__init__(backend, parameters)
        self.prefix: bytes | None = None

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        self.prefix = self.group_prefixes[key_group] + self.codec.encode(key)

    @override
    def forget(self) -> None:
        super().forget()
        self.prefix = None
