"""Enumerates a backend's keys and counts its entries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from millpond.arguments import check_type
from millpond.backend.current_key import CurrentKey
from millpond.backend.state_registry import StateRegistry
from millpond.state.descriptors import StateKind
from millpond.state.interfaces import State
from millpond.types import KeyCodec
from millpond.types.key_columns import codec_from_snapshot

__all__ = ["EntrySource", "Enumeration"]


S = TypeVar("S", bound=State)


class EntrySource(ABC):
    """What a backend provides for its enumeration."""

    @abstractmethod
    def set_current_key(self, key: Any) -> None:
        """Choose the key that all states work on."""

    @abstractmethod
    def addresses(self, name: str, namespaces: KeyCodec) -> Iterator[tuple[Any, Any]]:
        """A state's pairs of key and namespace, each once; the state may change meanwhile."""

    @abstractmethod
    def count_entries(self) -> int:
        """The number of entries of all states."""


class Enumeration:
    """Finds the keys and namespaces of a state, whether requested or only restored."""

    def __init__(self, current: CurrentKey, states: StateRegistry, source: EntrySource) -> None:
        self._current = current
        self._states = states
        self._source = source

    def keys(self, state_name: str, namespace: Any) -> Iterator[Any]:
        """The keys with an entry in a state and namespace, each once, in any order."""
        check_type("state_name", state_name, str)
        for key, found in self.keys_and_namespaces(state_name):
            if found == namespace:
                yield key

    def keys_and_namespaces(self, state_name: str) -> Iterator[tuple[Any, Any]]:
        """All pairs of key and namespace with an entry in a state, each once."""
        self._current.require_open()
        check_type("state_name", state_name, str)
        registered = self._states.known(state_name)
        if registered is not None:
            yield from self._source.addresses(state_name, registered.namespace_codec)
        elif state_name in self._states.restored:
            stored = self._states.restored[state_name]
            if stored.kind is not StateKind.TIMER:
                codec = codec_from_snapshot(stored.namespace)
                yield from self._source.addresses(state_name, codec)

    def apply(
        self, function: Callable[[Any, S], None], state: S, state_name: str, namespace: Any
    ) -> None:
        """Call ``function(key, state)`` for each key of a namespace; restore the current key."""
        before = self._current.key_or_none
        try:
            for key in list(self.keys(state_name, namespace)):
                self._source.set_current_key(key)
                state.set_current_namespace(namespace)
                function(key, state)
        finally:
            self._current.forget()
            if before is not None:
                self._source.set_current_key(before)

    def count(self) -> int:
        """The number of stored entries; each map entry counts."""
        self._current.require_open()
        return self._source.count_entries()
