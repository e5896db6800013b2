"""Mutants with mistakes that ``==`` does not notice, deep inside values, and mutants that leak."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from conformance.research.mutants.sabotage_tools import around, mutant, on_states


def _in_savepoints(backend: Any, change: Callable[[Any], Any]) -> None:
    """Make savepoints contain changed values, which are stored only while a savepoint is taken."""
    states: dict[str, Any] = {}
    around(backend, "make_state", lambda original, registered: _noted(states, original, registered))

    def savepoint(original: Any, number: int, storage: Any) -> Any:
        before = []
        for name, state in states.items():
            for key in list(backend.keys(name)):
                backend.set_current_key(key)
                value = state.value()
                before.append((state, key, value))
                state.update(change(value))
        future = original(number, storage)
        future.result()
        for state, key, value in before:
            backend.set_current_key(key)
            state.update(value)
        return future

    around(backend, "savepoint", savepoint)


def _noted(states: dict[str, Any], original: Any, registered: Any) -> Any:
    state = original(registered)
    if registered.descriptor.kind.value == "value":
        states[registered.descriptor.name] = state
    return state


@mutant("a decimal loses its trailing zeros in a savepoint", "P1")
def savepoints_normalize(backend: Any) -> None:
    _in_savepoints(backend, lambda v: v.normalize() if isinstance(v, Decimal) else v)


@mutant("a list loses its nulls in a savepoint", "P1")
def savepoints_without_nulls(backend: Any) -> None:
    _in_savepoints(
        backend,
        lambda v: [each for each in v if each is not None] if isinstance(v, list) else v,
    )


@mutant("a list in a value loses a null at its end", "V31")
def no_null_at_the_end(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def update(original: Any, value: Any) -> None:
            ends = isinstance(value, list) and len(value) > 1 and value[-1] is None
            original(value[:-1] if ends else value)

        around(raw, "update", update)

    on_states(backend, change, "value")


@mutant("each savepoint leaves a thread", "R26")
def savepoints_leave_threads(backend: Any) -> None:
    def savepoint(original: Any, *given: Any) -> Any:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return original(*given)

    around(backend, "savepoint", savepoint)


@mutant("each aborted snapshot leaves a directory", "R26")
def aborts_leave_directories(backend: Any) -> None:
    def aborted(original: Any, number: int) -> None:
        (Path(backend.parameters.directory) / f"aborted-{number}").mkdir(
            parents=True, exist_ok=True
        )
        original(number)

    around(backend, "notify_checkpoint_aborted", aborted)
