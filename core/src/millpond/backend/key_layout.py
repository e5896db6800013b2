"""Physical keys: key group, key and namespace as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any, NamedTuple

from millpond.keygroups import key_group_prefix_bytes
from millpond.safe_decoding import unreadable
from millpond.types import KeyCodec, VoidNamespace
from millpond.types.keys import TupleKeyCodec

_MOST = 1000
_LONGEST = 100
_SHORT = frozenset({bool, int, float, date, datetime, type(None), VoidNamespace})
_LASTING = _SHORT | {str, bytes}


class PreparedNamespaces:
    """Remembers what was made of a namespace, by the object itself.

    Windows come with row after row, as the same objects: to check and encode one takes 2 µs, to
    find it here 0.08. An object that may have changed when it comes again is made anew each time.

    Args:
        codec: of the namespaces.
        prepare: makes what is remembered.
    """

    def __init__(self, codec: KeyCodec, prepare: Callable[[Any], Any]) -> None:
        self._codec = codec
        self._prepare = prepare
        # The namespaces are held, so that no other object gets the identity of one.
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, namespace: Any) -> Any:
        """The prepared form of a namespace; raises what ``prepare`` does."""
        found = self._made.get(id(namespace))
        if found is not None:
            return found[1]
        made = self._prepare(namespace)
        if _lasts(self._codec, namespace):
            if len(self._made) >= _MOST:
                self._made.clear()
            self._made[id(namespace)] = namespace, made
        return made


def _lasts(codec: KeyCodec, value: Any) -> bool:
    """Whether a value may be kept: it cannot change, as a bytearray for bytes can, and is short."""
    if isinstance(codec, TupleKeyCodec):  # a tuple, or of a class that is frozen
        parts = codec.parts_of(value)
        return _SHORT.issuperset(map(type, parts)) or all(map(_lasts, codec.parts, parts))
    return type(value) in _LASTING and not (
        isinstance(value, (str, bytes)) and len(value) > _LONGEST
    )


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
