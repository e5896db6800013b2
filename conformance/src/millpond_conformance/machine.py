"""A stateful machine: generated programs over a backend, beside a model in plain dictionaries.

The model shares no code with the core or a plugin. Its rules write, flush, take snapshots of every
kind, lose what was not confirmed, restore newer and older ones, divide and join key groups, and
move the clock.
"""

from __future__ import annotations

import copy
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import millpond as mp
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from millpond.backend import KeyedStateBackend

__all__ = ["machine_of"]

KEYS = ("", "a", "b", "ab", "\0", "ключ")
SPACES = ("n", "m")
TTL_MS = 50
GROUPS = 8

keys = st.sampled_from(KEYS)
spaces = st.sampled_from(SPACES)
numbers = st.integers(-(1 << 70), 1 << 70)


@attrs.define
class Model:
    """What must be there: by state, then by key and namespace."""

    values: dict[Any, int] = attrs.field(factory=dict)
    lists: dict[Any, list[int]] = attrs.field(factory=dict)
    maps: dict[Any, dict[str, int]] = attrs.field(factory=dict)
    sums: dict[Any, int] = attrs.field(factory=dict)
    stamped: dict[Any, tuple[int, int]] = attrs.field(factory=dict)

    def live(self, now: int) -> dict[Any, int]:
        """The values with TTL that have not expired."""
        return {at: value for at, (value, when) in self.stamped.items() if when + TTL_MS > now}


def _descriptors() -> dict[str, Any]:
    ttl = mp.StateTtlConfig(timedelta(milliseconds=TTL_MS))
    return {
        "values": mp.ValueStateDescriptor("values", int),
        "lists": mp.ListStateDescriptor("lists", int),
        "maps": mp.MapStateDescriptor("maps", str, int),
        "sums": mp.ReducingStateDescriptor("sums", int.__add__, int),
        "stamped": mp.ValueStateDescriptor("stamped", int).enable_time_to_live(ttl),
    }


class BackendMachine(RuleBasedStateMachine):
    """Generated programs; a subclass names the backend."""

    backend_name = ""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="millpond-machine-")
        self._opened = 0
        self._storage = mp.checkpoint_storage(f"memory:machine-{uuid.uuid4().hex}")
        self._clock = mp.ManualClock(1000)
        self._model = Model()
        self._number = 0
        self._confirmed: list[tuple[Any, Model, int]] = []
        self._backend = self._open([])

    def _open(
        self, restore: list[Any], groups: mp.KeyGroupRange | None = None
    ) -> KeyedStateBackend:
        self._opened += 1
        return mp.open_keyed_backend(
            self.backend_name,
            key_type=str,
            max_parallelism=GROUPS,
            key_group_range=groups,
            directory=Path(self._folder.name) / str(self._opened),
            clock=self._clock,
            restore=restore,
        )

    def _state(self, name: str, key: str, space: str) -> Any:
        self._backend.set_current_key(key)
        return self._backend.get_partitioned_state(_descriptors()[name], space)

    # ---------------------------------------------------------------- writes

    @rule(key=keys, space=spaces, value=st.none() | numbers)
    def update(self, key: str, space: str, value: int | None) -> None:
        """Set or clear a value."""
        self._state("values", key, space).update(value)
        self._model.values.pop((key, space), None)
        if value is not None:
            self._model.values[key, space] = value

    @rule(key=keys, space=spaces, value=numbers)
    def stamp(self, key: str, space: str, value: int) -> None:
        """Set a value that expires."""
        self._state("stamped", key, space).update(value)
        self._model.stamped[key, space] = (value, self._clock.now_ms)

    @rule(key=keys, space=spaces, more=st.lists(numbers, max_size=3))
    def extend(self, key: str, space: str, more: list[int]) -> None:
        """Add to a list."""
        self._state("lists", key, space).add_all(more)
        if more:
            self._model.lists.setdefault((key, space), []).extend(more)

    @rule(key=keys, space=spaces, entry=keys, value=st.none() | numbers)
    def put(self, key: str, space: str, entry: str, value: int | None) -> None:
        """Put or remove a map entry."""
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
        """Add to a sum."""
        self._state("sums", key, space).add(value)
        self._model.sums[key, space] = self._model.sums.get((key, space), 0) + value

    @rule(key=keys, name=st.sampled_from(("lists", "sums")))
    def merge(self, key: str, name: str) -> None:
        """Move a namespace into the other."""
        target, source = SPACES
        self._state(name, key, target).merge_namespaces(target, [source])
        held: dict[Any, Any] = getattr(self._model, name)
        moved = held.pop((key, source), None)
        if moved is not None:
            known = held.get((key, target))
            held[key, target] = moved if known is None else known + moved

    @rule(key=keys, space=spaces, name=st.sampled_from(("values", "lists", "maps", "sums")))
    def clear(self, key: str, space: str, name: str) -> None:
        """Empty a state of a key and namespace."""
        self._state(name, key, space).clear()
        getattr(self._model, name).pop((key, space), None)

    @rule(ms=st.integers(0, 2 * TTL_MS))
    def wait(self, ms: int) -> None:
        """Let time pass."""
        self._clock.advance(ms)

    @rule()
    def flush(self) -> None:
        """End a bundle."""
        self._backend.flush(None)

    # ---------------------------------------------------------------- snapshots

    def _snapshot(self) -> Any:
        for name in _descriptors():
            self._state(name, "a", "n")
        self._number += 1
        return self._backend.snapshot(self._number, self._storage).result().handle

    @rule()
    def confirm(self) -> None:
        """Take a snapshot that counts."""
        handle = self._snapshot()
        self._backend.notify_checkpoint_complete(self._number)
        self._confirmed.append((handle, copy.deepcopy(self._model), self._clock.now_ms))

    @rule(abort=st.booleans())
    def lose(self, abort: bool) -> None:  # noqa: FBT001 - hypothesis names it
        """Take a snapshot that never counts."""
        self._snapshot()
        if abort:
            self._backend.notify_checkpoint_aborted(self._number)

    @precondition(lambda self: self._confirmed)
    @rule(older=st.booleans())
    def crash(self, older: bool) -> None:  # noqa: FBT001 - hypothesis names it
        """Lose the backend, and restore the newest snapshot or the one before into another."""
        self._backend.close()
        if older and len(self._confirmed) > 1:
            self._confirmed.pop()
        handle, model, _ = self._confirmed[-1]
        self._model = copy.deepcopy(model)
        self._backend = self._open([handle])
        self._confirmed = [(handle, model, 0)]

    @precondition(lambda self: self._confirmed)
    @rule(cut=st.integers(0, GROUPS - 2))
    def rescale(self, cut: int) -> None:
        """Divide the newest snapshot among two backends, and join theirs into one again."""
        handle, model, _ = self._confirmed[-1]
        parts = []
        for groups in (mp.KeyGroupRange(0, cut), mp.KeyGroupRange(cut + 1, GROUPS - 1)):
            with self._open([handle], groups) as part:
                self._number += 1
                parts.append(part.snapshot(self._number, self._storage).result().handle)
        self._backend.close()
        self._model = copy.deepcopy(model)
        self._backend = self._open(parts)
        self._confirmed = []

    @rule()
    def savepoint(self) -> None:
        """Go through a savepoint."""
        for name in _descriptors():
            self._state(name, "a", "n")
        self._number += 1
        handle = self._backend.savepoint(self._number, self._storage).result().handle
        self._backend.close()
        self._backend = self._open([handle])
        self._confirmed = []

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def reads_agree(self) -> None:
        """Every state of every key and namespace is what the model says."""
        now, model = self._clock.now_ms, self._model
        stamped = model.live(now)
        for key in KEYS:
            for space in SPACES:
                at = (key, space)
                assert self._state("values", key, space).value() == model.values.get(at)
                assert self._state("lists", key, space).get() == model.lists.get(at, [])
                found = dict(self._state("maps", key, space).items())
                assert found == model.maps.get(at, {})
                assert self._state("sums", key, space).get() == model.sums.get(at)
                assert self._state("stamped", key, space).value() == stamped.get(at)

    @invariant()
    def keys_agree(self) -> None:
        """The keys that are listed are those that hold something, each once."""
        for name in ("values", "sums"):
            self._state(name, "a", "n")
            found = sorted(self._backend.keys_and_namespaces(name))
            assert found == sorted(getattr(self._model, name))

    def teardown(self) -> None:
        """Release everything."""
        self._backend.close()
        self._folder.cleanup()


def machine_of(backend: str) -> type[BackendMachine]:
    """The machine over a backend."""
    return type("BackendMachine", (BackendMachine,), {"backend_name": backend})
