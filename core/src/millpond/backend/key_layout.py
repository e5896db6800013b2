"""The physical key of a row: key group, key, namespace and, in a map, map key.

The key group comes first, big-endian, so that the rows of a range of groups are adjacent. Codecs
encode the other parts, each so that a reader can find its end. A timer's row has its timestamp
between the key group and the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millpond.keygroups import key_group_prefix_bytes
from millpond.types import KeyCodec
from millpond.untrusted import unreadable

__all__ = ["Address", "KeyLayout", "end_of_prefix"]


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class Address(NamedTuple):
    """Key and namespace of a physical key, and the position where each ends in it."""

    key: Any
    key_end: int
    namespace: Any
    namespace_end: int


class KeyLayout:
    """The layout of an operator's physical keys, for its number of key groups.

    Attributes:
        group_bytes: the number of leading bytes for the key group: 1 up to 128 groups, else 2.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.group_bytes = key_group_prefix_bytes(max_parallelism)

    def group_prefix(self, key_group: int) -> bytes:
        """The prefix of a key group's physical keys."""
        return key_group.to_bytes(self.group_bytes, "big")

    def end_of_group(self, key_group: int) -> bytes | None:
        """The first physical key after those of a key group; None if there can be none."""
        return end_of_prefix(self.group_prefix(key_group))

    def group_of(self, physical: bytes) -> int:
        """The key group of a physical key."""
        return int.from_bytes(physical[: self.group_bytes], "big")

    def parse(
        self, physical: bytes, keys: KeyCodec, namespaces: KeyCodec, skip: int = 0
    ) -> Address:
        """Key and namespace of a physical key, with ``skip`` other bytes before the key."""
        key, key_end = keys.decode(physical, self.group_bytes + skip)
        namespace, namespace_end = namespaces.decode(physical, key_end)
        return Address(key, key_end, namespace, namespace_end)

    def addresses(
        self, physical: Iterable[bytes], keys: KeyCodec, namespaces: KeyCodec
    ) -> Iterator[tuple[Any, Any]]:
        """Key and namespace of physical keys; adjacent entries of one map yield one pair.

        Raises:
            CorruptSnapshotError: a key cannot be decoded.
        """
        last = None
        for row in physical:
            try:
                address = self.parse(row, keys, namespaces)
            except Exception as error:
                raise unreadable("", "", row, error) from error
            if row[: address.namespace_end] != last:
                last = row[: address.namespace_end]
                yield address.key, address.namespace
