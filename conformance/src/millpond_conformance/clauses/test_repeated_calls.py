"""Clauses: repeated calls leave nothing behind."""

import shutil
import tempfile
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import timedelta
from itertools import count

import millpond as mp
import pytest
from millpond.errors import MillpondError, StateTypeError

from millpond_conformance.census import grown
from millpond_conformance.fixtures import BackendOpener

TTL = mp.StateTtlConfig(timedelta(milliseconds=10))
TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)
SCORES = mp.MapStateDescriptor("scores", str, int)
SUM = mp.ReducingStateDescriptor("sum", int.__add__, int)
FADING = mp.MapStateDescriptor("fading", str, int).enable_time_to_live(TTL)
EVENT = mp.TimeDomain.EVENT_TIME.value
BOUNDED = {"checkpoint.retained": 1, "state.snapshot.base-ratio": 1.0}
"""Options: one retained snapshot, and a new base once the deltas are larger than the base."""
SPACES = ("one", "two", "three")


class Repeated:
    """A backend with a method for each of its operations, which can be called repeatedly.

    Every call changes a few entries, so that there is something to write. The number of entries
    remains the same.
    """

    def __init__(self, backend, clock, folder):
        self.backend, self.clock, self.folder = backend, clock, folder
        self.storage = mp.checkpoint_storage(folder.as_uri())
        self.broken = mp.checkpoint_storage("memory:broken?max-file-bytes=10")
        self.numbers = count(1)
        self.change()

    def change(self):
        """Write to each kind of state, and set a timer."""
        number = next(self.numbers)
        for key in ("a", "b"):
            self.backend.set_current_key(key)
            self.backend.get_partitioned_state(TOTAL).update(number)
            self.backend.get_partitioned_state(ITEMS).update([number])
            self.backend.get_partitioned_state(SCORES).put_all({"x": number, "y": number})
            self.backend.get_partitioned_state(FADING).put("x", number)
        self.backend.timer_queue(EVENT).register(1, mp.VOID_NAMESPACE)
        return number

    def operations(self):
        """Return the methods by name."""
        names = [name for name in dir(self) if name.startswith("call_")]
        return {name.removeprefix("call_"): getattr(self, name) for name in names}

    def call_flush(self):
        """Change entries, and flush."""
        self.change()
        self.backend.flush()

    def call_named_flush(self):
        """Change entries, and flush with a version name."""
        self.backend.flush(f"version {self.change()}")

    def call_read(self):
        """Read each kind of state."""
        self.backend.flush()
        self.backend.get_partitioned_state(TOTAL).value()
        self.backend.get_partitioned_state(ITEMS).get()
        list(self.backend.get_partitioned_state(SCORES).items())
        self.backend.get_partitioned_state(TOTAL).get_many(["a", "b"])

    def call_abandoned_iterations(self):
        """Begin iterations and end none."""
        self.backend.flush()
        for entries in (
            self.backend.get_partitioned_state(SCORES).items(),
            self.backend.keys("total"),
        ):
            next(iter(entries))

    def call_enumeration(self):
        """List keys and namespaces, and apply a function to all keys."""
        list(self.backend.keys_and_namespaces("total"))
        self.backend.num_state_entries()
        self.backend.apply_to_all_keys(TOTAL, lambda _, state: state.value())

    def call_merge(self):
        """Merge two filled namespaces into a third."""
        for number, space in enumerate(SPACES):
            state = self.backend.get_partitioned_state(SUM, space)
            state.add(number)
        state.merge_namespaces(SPACES[0], SPACES[1:])
        state.set_current_namespace(SPACES[0])
        state.clear()

    def call_timers(self):
        """Set timers, and remove the due timers."""
        self.change()
        list(self.backend.timer_queue(EVENT).due(1 << 40))

    def call_clean_up(self):
        """Let entries expire, and flush until the clean-up has removed them."""
        self.change()
        self.clock.advance(20)
        self.backend.flush()
        self.backend.flush()

    def call_refused_write(self):
        """Write a value of another type, which is refused."""
        with suppress(StateTypeError):
            self.backend.get_partitioned_state(TOTAL).update("no number")

    def call_snapshot(self):
        """Take a snapshot, confirm it, and report that all earlier snapshots are obsolete."""
        number = self.change()
        self.backend.snapshot(number, self.storage).result()
        self.backend.notify_checkpoint_complete(number)
        self.backend.notify_checkpoint_subsumed(number - 1)

    def call_aborted_snapshot(self):
        """Take a snapshot, and report that it is aborted."""
        number = self.change()
        self.backend.snapshot(number, self.storage).result()
        self.backend.notify_checkpoint_aborted(number)

    def call_cancelled_snapshot(self):
        """Take a snapshot that is cancelled while it is written."""
        number = self.change()
        future = self.backend.snapshot(number, self.storage)
        future.cancel()
        with suppress(CancelledError):
            future.result()
        self.backend.notify_checkpoint_aborted(number)

    def call_failed_snapshot(self):
        """Take a snapshot that fails because of its storage."""
        with suppress(MillpondError):
            self.backend.snapshot(self.change(), self.broken).result()

    def call_savepoint(self):
        """Take a savepoint, and delete its files as a user may do."""
        handle = self.backend.savepoint(self.change(), self.storage).result().handle
        shutil.rmtree(self.folder / handle.folder)


@pytest.mark.clause("R26")
def test_repeated_calls_leave_nothing(
    open_backend: BackendOpener, backend_name, clock, tmp_path, monkeypatch
):
    """Repeated calls of an operation leave no additional threads, file descriptors or files.

    This applies to flushes, reads, merges, timers, savepoints and restores. It also applies to
    snapshots by each strategy that succeed, fail, or are aborted or cancelled.
    """
    folders = {name: tmp_path / name for name in ("snapshots", "temporary", "working")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders["temporary"]))
    strategies = sorted({*open_backend().strategy_names()} - {"savepoint"})
    for place, strategy in enumerate(strategies):
        config = mp.Config({"state.snapshot.strategy": strategy, **BOUNDED})
        directory = folders["working"] / strategy
        backend = open_backend(config=config, clock=clock, directory=directory)
        repeated = Repeated(backend, clock, folders["snapshots"])
        for name, call in repeated.operations().items():
            if place == 0 or "snapshot" in name:
                assert grown(call, [*folders.values()]) == {}, (name, strategy)
    handle = backend.snapshot(1 << 30, repeated.storage).result().handle
    directories = (folders["working"] / f"restored {number}" for number in count())

    def restore():
        directory = next(directories)
        with mp.open_keyed_backend(
            backend_name, key_type=str, directory=directory, restore=[handle]
        ) as restored:
            restored.get_partitioned_state(TOTAL)
        shutil.rmtree(directory)

    assert grown(restore, [*folders.values()]) == {}
