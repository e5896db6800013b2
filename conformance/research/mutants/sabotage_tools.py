"""Tools to define mutants: their registry, and ways to make a backend wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.backend import KeyedStateBackend
from millpond.spi import KeyedBackendParameters, StateBackend
from millpond_heap import HeapStateBackend

Spoil = Callable[[KeyedStateBackend], None]
GALLERY: dict[str, Mutant] = {}


class Mutant(StateBackend):
    """The heap backend with a mistake that is added after it was created."""

    MILLPOND_API = 1
    capabilities = HeapStateBackend.capabilities

    def __init__(self, name: str, wrong: str, clauses: str, spoil: Spoil) -> None:
        self.name = name
        self.wrong, self.clauses, self.spoil = wrong, clauses.split(), spoil

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """Create the wrong backend."""
        backend = HeapStateBackend().create_keyed_backend(parameters)
        self.spoil(backend)
        return backend


def mutant(wrong: str, clauses: str, kind: type[Mutant] = Mutant) -> Callable[[Spoil], Spoil]:
    """Register a mutant: its mistake, and the clauses that should catch it.

    `kind` is a class of its own if the factory itself is wrong.
    """

    def add(spoil: Spoil) -> Spoil:
        GALLERY[spoil.__name__] = kind(spoil.__name__, wrong, clauses, spoil)
        return spoil

    return add


def around(target: Any, method: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by `wrapper(original, *arguments)`."""
    original = getattr(target, method)
    setattr(target, method, lambda *given, **named: wrapper(original, *given, **named))


def on_chosen_key(backend: Any, wrapper: Callable[..., Any]) -> None:
    """Change how a selected key is prepared for the tables."""
    backend.current.prepares = True
    around(backend.current, "_choose", wrapper)


def on_states(backend: Any, change: Callable[[Any, Any], None], *kinds: str) -> None:
    """Change each raw state that is created, of some kinds or of all."""

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
    """Change each snapshot strategy that is requested."""

    def asked(original: Any, name: str = "") -> Any:
        strategy = original(name)
        change(strategy)
        return strategy

    around(backend, "strategy", asked)


def on_tables(backend: Any, change: Callable[[Any], None]) -> None:
    """Change each table that is created; all states use these tables."""

    def made(original: Any, registered: Any) -> Any:
        table = original(registered)
        table.hold = lambda *_: {}
        change(table)
        return table

    around(backend, "create_table", made)
