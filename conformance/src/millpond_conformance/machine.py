"""A stateful machine of Hypothesis: it generates programs, and compares a backend with a model.

The rules of the machine write to states and flush them. They take snapshots of every kind, and
confirm, abort or cancel snapshots. They restore newer and older snapshots, in this process and in
new processes. They close the backend and reopen its directory. They move the clock forwards and
backwards.
"""

from __future__ import annotations

import copy
import tempfile
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import millpond as mp
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from millpond.backend import KeyedStateBackend
from typing_extensions import override

from millpond_conformance import elsewhere
from millpond_conformance.comparing import assert_same
from millpond_conformance.model import (
    GROUPS,
    KEYS,
    SPACES,
    TTL_MS,
    Model,
    descriptors,
    in_order,
    observations,
)
from millpond_conformance.opening import open_at, open_wrapped
from millpond_conformance.processes import fresh_processes

keys = st.sampled_from(KEYS)
spaces = st.sampled_from(SPACES)
numbers = st.integers(-(1 << 70), 1 << 70)


class BackendMachine(RuleBasedStateMachine):
    """The machine. Its subclasses define the backend and the core's wrappers around every state."""

    backend_name = ""
    wrapped = "none"

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="millpond-machine-")
        self._opened = 0
        self._storage = mp.checkpoint_storage((Path(self._folder.name) / "snapshots").as_uri())
        self._clock = mp.ManualClock(1000)
        self._model = Model()
        self._number = 0
        self._confirmed: list[tuple[Any, Model]] = []
        self._running: tuple[int, Any, Model] | None = None
        self._backend = self._open([])

    def _directory(self) -> Path:
        self._opened += 1
        return Path(self._folder.name) / str(self._opened)

    def _open(self, restore: list[Any]) -> KeyedStateBackend:
        return open_wrapped(
            self.backend_name,
            self.wrapped,
            key_type=str,
            max_parallelism=GROUPS,
            directory=self._directory(),
            clock=self._clock,
            restore=restore,
        )

    def _replace(self, restore: list[Any], model: Model) -> None:
        """Replace the backend by a new one, restored from the handles `restore`.

        Args:
            restore: the snapshots or savepoints.
            model: the contents that the new backend must have.
        """
        self._backend.close()
        self._running = None
        self._model = copy.deepcopy(model)
        self._backend = self._open(restore)

    def _state(self, name: str, key: str, space: str) -> Any:
        self._backend.set_current_key(key)
        return self._backend.get_partitioned_state(descriptors()[name], space)

    def _next(self) -> int:
        for name in descriptors():
            self._state(name, "a", "n")
        self._number += 1
        return self._number

    # ---------------------------------------------------------------- writes

    @rule(key=keys, space=spaces, value=st.none() | numbers)
    def update(self, key: str, space: str, value: int | None) -> None:
        """Set a value; None clears it."""
        self._state("values", key, space).update(value)
        self._model.values.pop((key, space), None)
        if value is not None:
            self._model.values[key, space] = value

    @rule(key=keys, space=spaces, value=numbers)
    def stamp(self, key: str, space: str, value: int) -> None:
        """Set a value that expires, in a state with a TTL."""
        self._state("stamped", key, space).update(value)
        self._model.stamped[key, space] = (value, self._clock.now_ms)

    @rule(key=keys, space=spaces, more=st.lists(numbers, max_size=3))
    def extend(self, key: str, space: str, more: list[int]) -> None:
        """Add elements to a list."""
        self._state("lists", key, space).add_all(more)
        if more:
            self._model.lists.setdefault((key, space), []).extend(more)

    @rule(key=keys, space=spaces, entry=keys, value=st.none() | numbers)
    def put(self, key: str, space: str, entry: str, value: int | None) -> None:
        """Put an entry into a map; None as its value removes it."""
        state = self._state("maps", key, space)
        entries = self._model.maps.setdefault((key, space), {})
        if value is None:
            state.remove(entry)
            entries.pop(entry, None)
        else:
            state.put(entry, value)
            entries[entry] = value

    @rule(key=keys, space=spaces, value=numbers)
    def add(self, key: str, space: str, value: int) -> None:
        """Add a number to a reducing state, which holds a sum."""
        self._state("sums", key, space).add(value)
        self._model.sums[key, space] = self._model.sums.get((key, space), 0) + value

    @rule(key=keys, space=spaces, name=st.sampled_from(("values", "lists", "maps", "sums")))
    def clear(self, key: str, space: str, name: str) -> None:
        """Clear a state for one key and namespace."""
        self._state(name, key, space).clear()
        getattr(self._model, name).pop((key, space), None)

    @rule(ms=st.integers(-TTL_MS, 2 * TTL_MS))
    def wait(self, ms: int) -> None:
        """Move the clock forwards or backwards."""
        self._clock.advance(ms)

    @rule()
    def flush(self) -> None:
        """Flush the buffered changes without a version."""
        self._backend.flush(None)

    # ---------------------------------------------------------------- snapshots

    @rule()
    def confirm(self) -> None:
        """Take a snapshot and confirm it."""
        number = self._next()
        handle = self._backend.snapshot(number, self._storage).result().handle
        self._backend.notify_checkpoint_complete(number)
        self._confirmed.append((handle, copy.deepcopy(self._model)))
        self._running = None

    @precondition(lambda self: self._running is None)
    @rule()
    def begin(self) -> None:
        """Begin a snapshot. Later rules may change the state while the snapshot is written."""
        number = self._next()
        future = self._backend.snapshot(number, self._storage)
        self._running = (number, future, copy.deepcopy(self._model))

    @precondition(lambda self: self._running is not None)
    @rule(how=st.sampled_from(("confirm", "abort", "cancel")))
    def settle(self, how: str) -> None:
        """Confirm, abort or cancel the snapshot that `begin` has started."""
        assert self._running is not None
        (number, future, model), self._running = self._running, None
        if how == "confirm":
            handle = future.result().handle
            self._backend.notify_checkpoint_complete(number)
            self._confirmed.append((handle, model))
        elif how == "abort":
            self._backend.notify_checkpoint_aborted(number)
        else:
            future.cancel()
            with suppress(CancelledError):
                future.result()

    @rule()
    def savepoint(self) -> None:
        """Take a savepoint, and continue with a backend that is restored from it."""
        handle = self._backend.savepoint(self._next(), self._storage).result().handle
        self._replace([handle], self._model)
        self._confirmed = []

    # ---------------------------------------------------------------- other backends

    @precondition(lambda self: self._confirmed)
    @rule(older=st.booleans())
    def crash(self, older: bool) -> None:  # noqa: FBT001 - hypothesis names it
        """Replace the backend by one that is restored from the newest confirmed snapshot.

        If `older` is true, restore the second newest confirmed snapshot instead.
        """
        if older and len(self._confirmed) > 1:
            self._confirmed.pop()
        handle, model = self._confirmed[-1]
        self._replace([handle], model)
        self._confirmed = [(handle, model)]

    @rule()
    def reopen(self) -> None:
        """Close the backend and reopen its directory.

        The reopened backend must have the version of the last flush, or be empty.
        """
        version = f"v{self._next()}"
        self._backend.flush(version)
        directory = self._backend.parameters.directory
        assert directory is not None
        self._backend.close()
        self._backend = open_at(
            self.backend_name, directory, [version], self._clock, GROUPS, self.wrapped
        )
        self._backend.strategy("changelog").start(None)
        if self._backend.version is None:
            self._model = Model()
        self._running, self._confirmed = None, []

    @precondition(lambda self: self._confirmed)
    @rule()
    def move(self) -> None:
        """Restore the newest snapshot in a new process, and take a second snapshot there.

        Continue with a backend that is restored from the second snapshot.
        """
        handle, model = self._confirmed[-1]
        model.expire(self._clock.now_ms)
        seen, again = fresh_processes(self.backend_name).call(
            elsewhere.moved,
            self.backend_name,
            self.wrapped,
            str(self._directory()),
            handle,
            self._clock.now_ms,
            self._next(),
        )
        assert_same(in_order(seen), in_order(model.observations()))
        self._replace([again], model)
        self._confirmed = []

    @rule(name=st.sampled_from(("values", "lists", "sums")))
    def enumerate(self, name: str) -> None:
        """Compare the listed keys and namespaces with the model, and then all contents.

        The contents are compared too because a backend may flush when it lists keys.
        """
        found = sorted(self._backend.keys_and_namespaces(name))
        assert found == sorted(getattr(self._model, name))
        self._model.expire(self._clock.now_ms)
        assert_same(in_order(observations(self._backend)), in_order(self._model.observations()))

    # ---------------------------------------------------------------- invariants

    @invariant()
    def agrees(self) -> None:
        """Compare every state of every key and namespace with the model, without a flush."""
        self._model.expire(self._clock.now_ms)
        assert observations(self._backend) == self._model.observations()

    @override
    def teardown(self) -> None:
        """Close the backend, and delete its files."""
        self._backend.close()
        self._folder.cleanup()


def machine_of(backend: str, wrapped: str) -> type[BackendMachine]:
    """Return the machine class for a backend.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
    """
    return type("BackendMachine", (BackendMachine,), {"backend_name": backend, "wrapped": wrapped})
