"""Generated programs in which one operation fails: nothing is lost, or the backend reports a failure."""

from __future__ import annotations

import copy
import random
from contextlib import ExitStack
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors
from millpond.clock import ManualClock
from millpond_conformance.clauses.test_failures import refuses_everything
from millpond_conformance.faults import Fault, FaultySerializer, InjectedError

KEYS, SPACES = ("a", "b", "ключ"), ("n", "m")
GROUPS = 4
CASES = [
    ("heap", "changelog"),
    ("heap", "full"),
    ("lmdb", "changelog"),
    ("lmdb", "full"),
    ("rocksdb", "changelog"),
    ("rocksdb", "incremental"),
]


def declared(fault=None):
    """Return a state of each kind, with mutable values, some with TTL."""

    def typed(plain):
        return plain if fault is None else FaultySerializer(plain, fault)

    ttl = mp.StateTtlConfig(timedelta(days=1))
    made = (
        mp.ValueStateDescriptor("value", typed(list[int])),
        mp.ValueStateDescriptor("stamped", typed(int)).enable_time_to_live(ttl),
        mp.ListStateDescriptor("list", typed(int)),
        mp.MapStateDescriptor("map", str, typed(int)),
        mp.ReducingStateDescriptor("sum", int.__add__, typed(int)),
    )
    return {each.name: each for each in made}


class Program:
    """A backend and its model; one fault happens at the place that the seed chooses."""

    def __init__(self, name, strategy, seed, folder):
        self.random = random.Random(f"{name} {strategy} {seed}")
        self.name, self.folder, self.opened = name, folder, 0
        self.clock = ManualClock(0)
        small = {"buffer.max-entries": self.random.choice((3, 10, 1000))}
        self.config = mp.Config({"state.snapshot.strategy": strategy, **small})
        self.storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
        self.fault, self.where = Fault(), ""
        self.model, self.confirmed = {"timers": set()}, (None, {"timers": set()})
        self.number = self.struck = 0
        self.backend = self.open([])

    def open(self, restore):
        """Return a backend in which each serializer, store write and listener may fail."""
        self.opened += 1
        backend = mp.open_keyed_backend(
            self.name,
            key_type=str,
            max_parallelism=GROUPS,
            directory=self.folder / str(self.opened),
            clock=self.clock,
            config=self.config,
            restore=restore,
        )
        store = getattr(backend, "store", None)
        if store is not None:
            plain = store.write

            def write(batch):
                self.strike("write")
                plain(batch)
                self.strike("written")

            store.write = write
        self.states = declared(_At(self, "serialize"))
        backend.add_change_listener(lambda _: self.strike("listen"))
        return backend

    def strike(self, where):
        """Fail if the fault is at this place."""
        if where == self.where:
            self.fault.pass_or_fail()

    def state(self, name, key, space):
        """Return a state for a key and namespace."""
        self.backend.set_current_key(key)
        return self.backend.get_partitioned_state(self.states[name], space)

    def change(self):
        """Make a change in the backend and in its model."""
        pick = self.random.choice
        key, space, number = pick(KEYS), pick(SPACES), self.random.randrange(100)
        name, at = pick((*self.states, "timers")), (key, space)
        model = copy.deepcopy(self.model)
        held = model.setdefault((name, *at), {"list": [], "map": {}}.get(name))
        if name == "timers":
            model.pop((name, *at))
            self.backend.set_current_key(key)
            timers = self.backend.timer_queue("event", str)
            if self.random.random() < 0.7:
                timers.register(number % 5, space)
                model["timers"].add((number % 5, key, space))
            else:
                timers.delete(number % 5, space)
                model["timers"].discard((number % 5, key, space))
        elif self.random.random() < 0.2:
            self.state(name, *at).clear()
            del model[name, *at]
        elif name in ("value", "stamped"):
            value = [number] if name == "value" else number
            self.state(name, *at).update(value)
            model[name, *at] = value
        elif name == "list":
            more = [number] * self.random.randrange(1, 4)
            self.state(name, *at).add_all(more)
            model[name, *at] = [*held, *more]
        elif name == "map":
            entry = f"e{number % 3}"
            if self.random.random() < 0.3:
                self.state(name, *at).remove(entry)
                held.pop(entry, None)
            else:
                self.state(name, *at).put(entry, number)
                held[entry] = number
        elif self.random.random() < 0.3:
            target, source = SPACES
            self.state("sum", key, target).merge_namespaces(target, [source])
            both = [model.get(("sum", key, each)) for each in SPACES]
            found = [each for each in both if each is not None]
            model.pop(("sum", key, source), None)
            model.pop(("sum", key, target), None)
            model.pop(("sum", *at), None)
            if found:
                model["sum", key, target] = sum(found)
        else:
            self.state("sum", *at).add(number)
            model["sum", *at] = (held or 0) + number
        self.model = model

    def seen(self, backend, states):
        """Return the content of a backend in the model's form, without timers."""
        found = {}
        for key in KEYS:
            backend.set_current_key(key)
            for space in SPACES:
                for name, descriptor in states.items():
                    state = backend.get_partitioned_state(descriptor, space)
                    if name in ("value", "stamped"):
                        found[name, key, space] = state.value()
                    elif name == "map":
                        found[name, key, space] = dict(state.items())
                    else:
                        found[name, key, space] = state.get()
        return {at: held for at, held in found.items() if held not in (None, [], {})}

    def agrees(self, backend=None, states=None):
        """Return whether everything that can be read agrees with the model."""
        seen = self.seen(backend or self.backend, states or self.states)
        return seen == {
            at: held
            for at, held in self.model.items()
            if at != "timers" and held not in (None, [], {})
        }

    def snapshot(self):
        """Take and confirm a snapshot, if it succeeds."""
        self.number += 1
        try:
            handle = self.backend.snapshot(self.number, self.storage).result().handle
        except InjectedError:
            if self.random.random() < 0.5 and not self.backend.current.failed:
                self.backend.notify_checkpoint_aborted(self.number)
            raise
        self.backend.notify_checkpoint_complete(self.number)
        self.confirmed = (handle, copy.deepcopy(self.model))

    def restart(self):
        """Drop the backend, and continue with the last confirmed snapshot."""
        self.backend.close()
        handle, model = self.confirmed
        self.model = copy.deepcopy(model)
        self.backend = self.open([handle] if handle is not None else [])

    def step(self):
        """Do one step; if it fails, the backend is unchanged or has failed permanently."""
        action = self.random.choices(
            (self.change, self.backend.flush, self.snapshot, self.backend.num_state_entries),
            (12, 2, 2, 1),
        )[0]
        try:
            action()
        except InjectedError:
            self.struck += 1
            if self.backend.current.failed:
                assert refuses_everything(self.backend)
                self.restart()
            assert self.agrees()

    def run(self):
        """Run to the end; then restore the last confirmed snapshot in another backend and compare."""
        for _ in range(4):
            self.where = self.random.choice(("serialize", "write", "written", "listen"))
            with self.fault.armed(self.random.randrange(1, 25)):
                for _ in range(self.random.randrange(5, 15)):
                    self.step()
            assert self.agrees()
            self.snapshot()
        with ExitStack() as stack:
            handle, _ = self.confirmed
            stack.callback(self.backend.close)
            groups = mp.KeyGroupRange(0, GROUPS - 1)
            elsewhere = mp.open_keyed_backend(
                self.name if self.config.state.snapshot.strategy == "incremental" else "heap",
                key_type=str,
                max_parallelism=GROUPS,
                key_group_range=groups,
                directory=self.folder / "elsewhere",
                clock=self.clock,
                restore=[handle],
            )
            stack.enter_context(elsewhere)
            assert self.agrees(elsewhere, declared())
            due = elsewhere.timer_queue("event", str).due(10)
            assert {(t.timestamp, t.key, t.namespace) for t in due} == self.model["timers"]


class _At(Fault):
    """The program's fault at one place."""

    def __init__(self, program, where):
        super().__init__()
        self._program, self._where = program, where

    def pass_or_fail(self):
        self._program.strike(self._where)


def run_all(name, strategy, seeds, folder):
    """Run programs, and name the one that fails."""
    struck = 0
    for seed in seeds:
        program = Program(name, strategy, seed, folder / str(seed))
        try:
            program.run()
        except (AssertionError, errors.MillpondError) as error:
            error.add_note(f"program {seed} on {name} with {strategy}, fault at {program.where}")
            raise
        struck += program.struck
    return struck


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_one_failure_loses_nothing(name, strategy, tmp_path):
    """After any single failure the state is unchanged, or every call raises an error."""
    assert run_all(name, strategy, range(8), tmp_path) > 0


@pytest.mark.soak
@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_one_failure_loses_nothing_in_many_programs(name, strategy, tmp_path):
    """In a thousand programs, a single failure changes nothing, or every later call raises an error."""
    assert run_all(name, strategy, range(8, 1008), tmp_path) > 100


def test_a_full_lmdb_loses_nothing(tmp_path, monkeypatch):
    """If LMDB's map could not grow, the next snapshot contains the changes of the failed one."""
    config = mp.Config({"backend.lmdb.initial-map-size": 1 << 20})
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    descriptor = mp.ValueStateDescriptor("v", bytes)
    with mp.open_keyed_backend(
        "lmdb", key_type=int, directory=tmp_path / "local", config=config
    ) as backend:
        state = backend.get_partitioned_state(descriptor)
        handles = []
        for number in range(1, 4):
            for key in range(200):
                backend.set_current_key(key)
                state.update(bytes([number]) * 3000 * number)
            with monkeypatch.context() as full:
                full.setattr("millpond_lmdb.store.fits_address_space", lambda _: False)
                if number > 1:
                    with pytest.raises(errors.StoreFullError):
                        backend.snapshot(10 + number, storage)
                    assert state.value() == bytes([number]) * 3000 * number
            handles.append(backend.snapshot(number, storage).result().handle)
            backend.notify_checkpoint_complete(number)
    with mp.open_keyed_backend("heap", key_type=int, restore=[handles[-1]]) as restored:
        again = restored.get_partitioned_state(descriptor)
        for key in range(200):
            restored.set_current_key(key)
            assert again.value() == b"\3" * 9000
