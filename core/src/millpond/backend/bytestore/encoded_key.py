"""The current key as a byte store's tables use it: encoded, after its key group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from millpond.spi.keys import CurrentKey, SubtaskKeys
from millpond.spi.parameters import KeyedBackendParameters


class EncodedKey(CurrentKey):
    """The current key; its address is the prefix of its physical keys.

    Attributes:
        readers: called with keys that come next, none of them twice, to read their entries ahead.
    """

    def __init__(self, backend: str, parameters: KeyedBackendParameters) -> None:
        super().__init__(backend, parameters)
        self.readers: list[Callable[[SubtaskKeys], None]] = []
        self._expected: dict[Any, tuple[int, bytes]] = {}

    @override
    def _choose(self, key: Any, key_group: int) -> None:
        # A key that nobody expects need not be hashable.
        known = self._expected.get(key) if self._expected else None
        if known is not None and known[0] == key_group:
            self.address = known[1]
        else:
            self.address = self.group_prefixes[key_group] + self.codec.encode(key)

    @override
    def expect(self, keys: Sequence[Any], groups: Sequence[int]) -> None:
        """Encode the keys and read their entries together.

        To choose a key and read its entry then takes 0.85 µs on LMDB, 1.28 without. Only where
        Python's equality tells keys apart; a foreign group is told of at its own row.
        """
        self._expected = {}
        if self.closed or not self.codec.exact or not self.group_prefixes.keys() >= set(groups):
            return
        distinct = dict(zip(keys, groups, strict=True))
        coming = SubtaskKeys(self, list(distinct), list(distinct.values()))
        places = zip(coming.groups, coming.addresses, strict=True)
        self._expected = dict(zip(coming.keys, places, strict=True))
        for read_ahead in self.readers:
            read_ahead(coming)
