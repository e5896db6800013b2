"""Physical keys: key group, key and namespace as bytes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

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
        parts = codec.split(value)
        return _SHORT.issuperset(map(type, parts)) or all(map(_lasts, codec.parts, parts))
    return type(value) in _LASTING and not (
        isinstance(value, (str, bytes)) and len(value) > _LONGEST
    )
