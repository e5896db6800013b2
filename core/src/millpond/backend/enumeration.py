"""Enumerates a backend's keys and counts its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from millpond.arguments import check_type, unstarted_kind
from millpond.backend.bulk_keys import checked_key
from millpond.backend.state_registry import StateRegistry
from millpond.errors import ArgumentTypeError, NullValueError, StateTypeError, brief
from millpond.spi.backend import TableSource
from millpond.spi.keys import CurrentKey
from millpond.state.descriptors import StateKind
from millpond.state.interfaces import State
from millpond.types import KeyCodec
from millpond.types.key_columns import codec_from_snapshot

S = TypeVar("S", bound=State)


class Enumeration:
    """Finds the keys and namespaces of a state, whether requested or only restored."""

    def __init__(self, current: CurrentKey, states: StateRegistry, source: TableSource) -> None:
        self._current = current
        self._states = states
        self._source = source

    def keys(self, state_name: str, namespace: Any) -> Iterator[Any]:
        """The keys with an entry in a state and namespace, each once, in any order."""
        codec = self._namespaces(state_name)
        if codec is None:
            return
        try:
            wanted = codec.check(namespace)
        except (StateTypeError, NullValueError):
            return  # a namespace of another type holds nothing, whatever Python calls equal to it
        same = _sameness(codec, wanted)
        for key, found in self._source.addresses(state_name, codec):
            if same(found):
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """All pairs of key and namespace with an entry in a state, each once."""
        codec = self._namespaces(state_name)
        if codec is not None:
            yield from self._source.addresses(state_name, codec)

    def _namespaces(self, state_name: str) -> KeyCodec | None:
        """The codec of a state's namespaces; None where there is no such state."""
        self._current.require_open()
        check_type("state_name", state_name, str)
        registered = self._states.known(state_name)
        if registered is not None:
            return registered.namespace_codec
        stored = self._states.restored.get(state_name)
        if stored is None or stored.kind is StateKind.TIMER:
            return None
        return codec_from_snapshot(stored.namespace)

    def apply(
        self, function: Callable[[Any, S], None], state: S, state_name: str, namespace: Any
    ) -> None:
        """Call ``function(key, state)`` for each key of a namespace; restore the current key.

        Raises:
            ArgumentTypeError: it has a ``yield``, so that nothing of it would run.
        """
        with self._current.kept():
            for key in list(self.keys(state_name, namespace)):
                self._current.select(*checked_key(self._current, key))
                state.set_current_namespace(namespace)
                given: Any = function(key, state)  # type: ignore[func-returns-value]
                if unstarted_kind(given):
                    expected = "a function that runs when it is called, with no yield in it"
                    raise ArgumentTypeError("function", expected, brief(given))

    def count(self) -> int:
        """The number of stored entries; each map entry counts."""
        self._current.require_open()
        return self._source.count_entries()


def _sameness(codec: KeyCodec, wanted: Any) -> Callable[[Any], bool]:
    """Whether a checked namespace is the wanted one, as stores tell them apart: by their bytes."""
    if codec.exact:
        return lambda found: bool(found is wanted or found == wanted)  # NaN is not equal to itself
    encoded = codec.encode(wanted)
    return lambda found: codec.encode(found) == encoded
