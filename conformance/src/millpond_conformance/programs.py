"""Random programs of reads, writes, merges and iterations, compared with a model."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.comparing import assert_same
from millpond_conformance.semantics import EVENT_MODES, KINDS, MODES, StateModel, descriptor_of

KEYS = ("a", "b")
SPACES = ("n", "m", "o")
ENTRIES = ("x", "y", "z", "w")
MERGING = ("list", "reducing", "aggregating")
AT_ONCE = 3
"""The maximum number of open iterations."""


def own_ttl(ttl_ms: int | None) -> dict[str, timedelta]:
    """Return the argument `ttl` of a write; it is left out if `ttl_ms` is None."""
    return {} if ttl_ms is None else {"ttl": timedelta(milliseconds=ttl_ms)}


@attrs.define
class _Iteration:
    """An open iteration over a map.

    Attributes:
        at: the key and the namespace of the map.
        entries: the iterator.
        unseen: the entries that the iteration has not returned yet; None before its first step.
    """

    at: tuple[str, str]
    entries: Any
    unseen: set[str] | None = None


class SemanticsProgram:
    """A program of random steps on a backend. The results of the steps are compared with a model.

    Args:
        seed: the seed of all random choices.
        open_backend: a function that gets a list of handles and opens a backend restored from them.
        clock: the clock of all backends.
        storage: the storage of snapshots; if it is None, no snapshots are taken.
        keys: the keys to use.
    """

    def __init__(
        self,
        seed: int,
        open_backend: Callable[[list[Any]], Any],
        clock: mp.ManualClock,
        storage: Any,
        keys: tuple[str, ...] = KEYS,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a program, no secret
        self._open, self._clock, self._storage, self._keys = open_backend, clock, storage, keys
        self._backend = open_backend([])
        self._watermark = self._random.choice((0, 5000))
        self._backend.advance_watermark(self._watermark)
        modes = MODES + EVENT_MODES
        self._models = {kind: StateModel(kind, self._random.choice(modes)) for kind in KINDS}
        self._iterations: list[_Iteration] = []
        self._snapshots: list[tuple[Any, Any]] = []

    @classmethod
    def run_all(cls, seeds: range, *arguments: Any) -> None:
        """Run one program for each of `seeds`; if a program fails, the error names the seed."""
        for seed in seeds:
            try:
                cls(seed, *arguments).run()
            except AssertionError as error:
                error.add_note(f"the program of seed {seed}")
                raise

    def run(self, steps: int = 60) -> None:
        """Run `steps` random steps, finish open iterations, and compare all contents.

        Then restore each snapshot, and compare its contents as well.
        """
        weighted = {
            self._write: 6,
            self._clear: 1,
            self._read: 4,
            self._merge: 3,
            self._map: 8,
            self._iterate: 6,
            self._wait: 3,
            self._backend.flush: 3,
            self._snapshot: 1,
        }
        for action in self._random.choices([*weighted], [*weighted.values()], k=steps):
            action()
        while self._iterations:
            self._step(self._iterations[-1])
        self._compare(self._backend, self._models)
        for future, models in self._snapshots:
            restored = self._open([future.result().handle])
            restored.advance_watermark(self._watermark)
            self._compare(restored, models)
            restored.close()
        self._backend.close()

    def _snapshot(self) -> None:
        if self._storage is None:
            return
        for kind in KINDS:
            self._state(kind, (self._keys[0], "n"))
        number = len(self._snapshots) + 1
        future = self._backend.snapshot(number, self._storage)
        models = copy.deepcopy(self._models)
        for model in models.values():
            model.expire(self._now(model))
        self._snapshots.append((future, models))

    def _state(self, kind: str, at: tuple[str, str], backend: Any = None) -> Any:
        key, space = at
        backend = backend or self._backend
        backend.set_current_key(key)
        model = self._models[kind]
        return backend.get_partitioned_state(descriptor_of(kind, model.mode), space)

    def _place(self) -> tuple[str, str]:
        return self._random.choice(self._keys), self._random.choice(SPACES)

    def _now(self, model: StateModel) -> int:
        return self._watermark if model.mode.by_event else self._clock.now_ms

    def _wait(self) -> None:
        ms = self._random.choice((0, 1, 100, 300, 500, 800))
        self._clock.advance(ms)
        self._watermark += self._random.choice((0, 1, ms))
        self._backend.advance_watermark(self._watermark)

    def _own_ttl(self, model: StateModel) -> int | None:
        """Return a TTL for one write, or None for the TTL of the state."""
        drawn = self._random.choice((None, None, None, 1, 300, 999, 1500))
        return drawn if model.mode.expires else None

    def _write(self) -> None:
        kind, at = self._random.choice([kind for kind in KINDS if kind != "map"]), self._place()
        number, state = self._random.randrange(100), self._state(kind, at)
        model, ttl_ms = self._models[kind], None
        if kind in ("value", "list"):
            ttl_ms = self._own_ttl(model)
            write = state.update if kind == "value" else state.add
            write([number], **own_ttl(ttl_ms))
        else:
            state.add([number] if kind == "reducing" else number)
        model.write(at, number, self._now(model), ttl_ms)

    def _clear(self) -> None:
        kind, at = self._random.choice(KINDS), self._place()
        if kind != "map" or all(each.at != at for each in self._iterations):
            self._state(kind, at).clear()
            self._models[kind].held.pop(at, None)

    def _read(self) -> None:
        kind, at = self._random.choice([kind for kind in KINDS if kind != "map"]), self._place()
        self._check_read(self._backend, self._models, kind, at)

    def _check_read(self, backend: Any, models: Any, kind: str, at: tuple[str, str]) -> None:
        state = self._state(kind, at, backend)
        found = state.value() if kind == "value" else state.get()
        expected = models[kind].read(at, self._now(models[kind]))
        assert_same(found, expected, (kind, models[kind].mode, at))
        if isinstance(found, list):
            found.clear()  # the result belongs to the caller

    def _merge(self) -> None:
        kind, key = self._random.choice(MERGING), self._random.choice(self._keys)
        target = self._random.choice(SPACES)
        sources = self._random.choices(SPACES, k=self._random.randrange(4))
        self._state(kind, (key, SPACES[0])).merge_namespaces(target, sources)
        self._models[kind].merge(key, target, sources, self._now(self._models[kind]))

    # ---------------------------------------------------------------- maps

    def _map(self) -> None:
        at, model = self._place(), self._models["map"]
        state, now = self._state("map", at), self._now(model)
        entry, number = self._random.choice(ENTRIES), self._random.randrange(100)
        action = self._random.choice(("put", "put", "put", "get", "contains", "remove", "empty"))
        if action == "put":
            under_way = any(each.at == at for each in self._iterations)
            if under_way and not model.lives(at, entry, now):
                return  # an iteration may or may not return an entry that is put during it
            ttl_ms = self._own_ttl(model)
            state.put(entry, [number], **own_ttl(ttl_ms))
            model.put(at, entry, number, now, ttl_ms)
        elif action == "get":
            assert_same(state.get(entry), model.get(at, entry, now), (model.mode, at))
        elif action == "contains":
            assert (entry in state) == (model.get(at, entry, now) is not None), (model.mode, at)
        elif action == "remove":
            state.remove(entry)
            model.remove(at, entry)
        else:
            assert state.is_empty() == model.is_empty(at, now), (model.mode, at)

    def _iterate(self) -> None:
        """Begin an iteration over a map, or continue an open iteration.

        Another key may be current when the iteration continues.
        """
        at = self._place()
        if len(self._iterations) < AT_ONCE and all(each.at != at for each in self._iterations):
            self._iterations.append(_Iteration(at, self._state("map", at).items()))
        elif self._iterations:
            self._step(self._random.choice(self._iterations))

    def _step(self, iteration: _Iteration) -> None:
        model = self._models["map"]
        now = self._now(model)
        if iteration.unseen is None:
            iteration.unseen = set(model.held.get(iteration.at, {}))
        found = next(iteration.entries, None)
        if found is None:
            self._iterations.remove(iteration)
            model.rest(iteration.at, iteration.unseen, now)
            return
        entry, value = found
        iteration.unseen.remove(entry)
        expected = model.get(iteration.at, entry, now)
        assert_same(value, expected, (model.mode, iteration.at, entry))

    # ---------------------------------------------------------------- at the end

    def _compare(self, backend: Any, models: dict[str, StateModel]) -> None:
        for kind, model in models.items():
            self._state(kind, (self._keys[0], "n"), backend)
            # Every readable entry must be listed. Other entries in the model may be missing: a full
            # snapshot leaves out expired entries, and the model learns only at the end of an
            # iteration which entries the iteration has removed.
            readable = {at for at in model.held if self._can_be_read(model, at)}
            listed = set(backend.keys_and_namespaces(kind))
            assert readable <= listed <= set(model.held), (kind, model.mode)
        for key in self._keys:
            for space in SPACES:
                for kind in KINDS:
                    if kind != "map":
                        self._check_read(backend, models, kind, (key, space))
                self._check_map(backend, models["map"], (key, space))

    def _can_be_read(self, model: StateModel, at: tuple[str, str]) -> bool:
        copied, now = copy.deepcopy(model), self._now(model)
        if model.kind == "map":
            return not copied.is_empty(at, now)
        return bool(copied.read(at, now))

    def _check_map(self, backend: Any, model: StateModel, at: tuple[str, str]) -> None:
        state, now = self._state("map", at, backend), self._now(model)
        assert state.is_empty() == model.is_empty(at, now), (model.mode, at)
        unseen = set(model.held.get(at, {}))
        for entry, value in state.items():
            unseen.remove(entry)
            assert_same(value, model.get(at, entry, now), (model.mode, at, entry))
        model.rest(at, unseen, now)
