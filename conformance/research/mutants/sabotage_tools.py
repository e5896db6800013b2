"""What mutants are made of: the gallery, and ways to spoil a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.backend import KeyedStateBackend
from millpond.spi import KeyedBackendParameters, StateBackend
from millpond_heap.factory import HeapStateBackend

Spoil = Callable[[KeyedStateBackend], None]
GALLERY: dict[str, Mutant] = {}


class Mutant(StateBackend):
    """The heap backend, spoiled after it was made."""

    MILLPOND_API = 1
    capabilities = HeapStateBackend.capabilities

    def __init__(self, name: str, wrong: str, clauses: str, spoil: Spoil) -> None:
        self.name = name
        self.wrong, self.clauses, self.spoil = wrong, clauses.split(), spoil

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """A backend with something wrong."""
        backend = HeapStateBackend().create_keyed_backend(parameters)
        self.spoil(backend)
        return backend


def mutant(wrong: str, clauses: str, kind: type[Mutant] = Mutant) -> Callable[[Spoil], Spoil]:
    """Add a mutant to the gallery: what is wrong with it, and the clauses that should catch it.

    ``kind`` is a class of its own where the factory itself is wrong.
    """

    def add(spoil: Spoil) -> Spoil:
        GALLERY[spoil.__name__] = kind(spoil.__name__, wrong, clauses, spoil)
        return spoil

    return add


def around(target: Any, method: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by ``wrapper(original, *arguments)``."""
    original = getattr(target, method)
    setattr(target, method, lambda *given, **named: wrapper(original, *given, **named))


def on_chosen_key(backend: Any, wrapper: Callable[..., Any]) -> None:
    """Change how a chosen key is prepared for the tables."""
    backend.current.prepares = True
    around(backend.current, "_choose", wrapper)


def on_states(backend: Any, change: Callable[[Any, Any], None], *kinds: str) -> None:
    """Change each raw state that is made, of some kinds or of all."""

    def made(original: Any, registered: Any) -> Any:
        state = original(registered)
        raw = state
        while hasattr(raw, "_raw") or hasattr(raw, "wrapped"):
            raw = raw._raw if hasattr(raw, "_raw") else raw.wrapped
        if not kinds or registered.descriptor.kind.value in kinds:
            change(state, raw)
        return state

    around(backend, "make_state", made)


def on_strategies(backend: Any, change: Callable[[Any], None]) -> None:
    """Change each snapshot strategy that is asked for."""

    def asked(original: Any, name: str = "") -> Any:
        strategy = original(name)
        change(strategy)
        return strategy

    around(backend.snapshots, "strategy", asked)


def on_tables(backend: Any, change: Callable[[Any], None]) -> None:
    """Change each table that is made; no state goes past it."""

    def made(original: Any, registered: Any) -> Any:
        table = original(registered)
        table.hold = lambda *_: {}
        change(table)
        return table

    around(backend, "create_table", made)
