"""Steps on snapshots: long sequences with every outcome, and restores into other backends."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import millpond as mp
from millpond.snapshots.snapshot_task import SnapshotTask

from millpond_conformance.semantics import TTL_MS, StateModel
from millpond_conformance.wide.bulk import BulkSteps
from millpond_conformance.wide.cells import stamps_of
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.maps import MapSteps
from millpond_conformance.wide.operators import OperatorModel, OperatorSteps
from millpond_conformance.wide.steps import Event, Step
from millpond_conformance.wide.timers import Timers, TimerSteps
from millpond_conformance.wide.world import World

_LONG = 10
"""A history is long if it has at least this number of consecutive confirmed snapshots."""

_PATIENCE = 0.2
"""The longest time in seconds that a snapshot is delayed. A store may wait for it to grow."""


@contextmanager
def _held_back(gate: threading.Event) -> Iterator[None]:
    """Let snapshots that begin in the ``with`` block wait until the event `gate` is set."""
    run, caller = SnapshotTask.run, threading.current_thread()

    def run_late(task: Any, *work: Any) -> None:
        if threading.current_thread() is not caller:
            gate.wait(_PATIENCE)
        run(task, *work)

    SnapshotTask.run = run_late  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        SnapshotTask.run = run  # type: ignore[method-assign]


@attrs.frozen
class Moment:
    """The expected contents of a backend at the time of a snapshot.

    Attributes:
        models: the models of the keyed states.
        timers: the timers that are set.
        operators: the model of the operator states.
    """

    models: list[StateModel]
    timers: Timers
    operators: OperatorModel


class SnapshotSteps(MapSteps, BulkSteps, TimerSteps, OperatorSteps):
    """Steps on snapshots."""

    def __init__(self, world: World, folder: Path, coverage: Coverage, number: int) -> None:
        super().__init__(world, folder, coverage, number)
        self._checkpoint = 0
        self._storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
        self._kept: list[tuple[Any, Moment]] = []
        self._running: tuple[int, Any, Moment] | None = None
        self._gate = threading.Event()

    def opened(self, restore: list[Any], limit: int, groups: Any = None) -> Any:
        """Open a backend in a new directory.

        Args:
            restore: the handles from which the backend is restored.
            limit: a number that selects the size of the buffer.
            groups: the key groups of the backend; all by default.
        """
        raise NotImplementedError

    def _moment(self) -> Moment:
        """Return the expected contents of a snapshot that is taken now.

        In half of the cases, request every state of the backend first.
        """
        if self._checkpoint % 2:
            self.request_all()
        models = copy.deepcopy(self.models)
        self._leave_out(models)
        if self.dirty:
            self.coverage.note("snapshot of a dirty buffer")
        self.dirty = 0
        self.flushed_under_way()
        return Moment(models, copy.deepcopy(self.timers), copy.deepcopy(self.operators))

    def request_all(self) -> None:
        """Request every state and every timer queue from the backend."""
        for number in range(len(self.models)):
            self.state(number, (0, 0))
        for domain in range(len(self.timers)):
            self.queue(domain)

    def _leave_out(self, models: list[StateModel]) -> None:
        """Remove expired entries that are still visible, because a full snapshot omits them."""
        for model in models:
            if model.mode.shows:
                model.expire(self.clock.now_ms)

    def _take(self, *, held: bool = False) -> tuple[int, Any, Moment]:
        """Begin a snapshot. If `held` is true, delay most snapshots until `_gate` is set."""
        moment = self._moment()
        self._checkpoint += 1
        self._gate = threading.Event()
        if not held or self._checkpoint % 3 == 0:
            self._gate.set()
        with _held_back(self._gate):
            future = self.backend.snapshot(self._checkpoint, self._storage)
        return self._checkpoint, future, moment

    def history(self, events: tuple[Event, ...], checked: int) -> None:
        """Take several snapshots with changes between them; restore two into other backends.

        The two are the confirmed snapshot `checked` and the last one.

        Args:
            events: for each snapshot its outcome, whether the next changes happen while it is
                written, and these changes.
            checked: the index of a confirmed snapshot.
        """
        self.settle(checked % 4)
        confirmed: list[tuple[Any, Moment]] = []
        for fate, overlapped, changes in events:
            checkpoint, future, moment = self._take(held=overlapped)
            if overlapped:
                self._change(changes)
                self._gate.set()
            if fate == "cancel":
                self._cancel(future)
            else:
                handle = future.result().handle
            if fate == "confirm":
                self.backend.notify_checkpoint_complete(checkpoint)
                confirmed.append((handle, moment))
                self.coverage.note("snapshots confirmed")
            elif fate != "lose":
                self.backend.notify_checkpoint_aborted(checkpoint)
                self.coverage.note("snapshots aborted")
            if not overlapped:
                self._change(changes)
        self._kept += confirmed
        self._keep_one()
        if len(confirmed) >= _LONG:
            self.coverage.note("more than 10 deltas in a row")
        for handle, moment in (*confirmed[checked : checked + 1], self._kept[-1]):
            self.verify(handle, moment)

    def _cancel(self, future: Any) -> None:
        future.cancel()
        with suppress(CancelledError):
            future.result()
        self.coverage.note("snapshots cancelled")

    def _change(self, changes: tuple[Step, ...]) -> None:
        for name, *arguments in changes:
            getattr(self, name)(*arguments)

    def verify(self, handle: Any, moment: Moment) -> None:
        """Restore a snapshot into another backend, and compare all contents with `moment`.

        Then let entries expire, and compare again. The backend of this side does not change.
        """
        mine = self.backend, self.models, self.timers, self.operators, self.open, self.dirty
        clock, self.clock = self.clock, mp.ManualClock(self.clock.now_ms)
        self.models, self.timers, self.operators = copy.deepcopy(
            (moment.models, moment.timers, moment.operators)
        )
        self.open, self.backend = [], self.opened([handle], self._checkpoint)
        try:
            self.attach(handle)
            self.compare()
            for when in self._expiries():
                self.clock.set(when)
                self.compare()
            for domain in range(len(self.timers)):
                self.take_all(domain)
        finally:
            self.backend.close()
            self.backend, self.models, self.timers, self.operators, self.open, self.dirty = mine
            self.clock = clock
        self.coverage.note("snapshot restored elsewhere")

    def _expiries(self) -> list[int]:
        """Return the times of the next and the last expiry, and 1 ms before each of them."""
        held = [each for m in self.models if m.mode.expires for each in m.held.values()]
        stamps = {stamp for content in held for stamp in stamps_of(content)}
        moments = sorted(when + TTL_MS for when in stamps if when + TTL_MS > self.clock.now_ms)
        chosen = dict.fromkeys([*moments[:1], *moments[-1:]])
        return sorted({when + step for when in chosen for step in (-1, 0)} - {self.clock.now_ms})

    def _keep_one(self) -> None:
        """Take a snapshot, confirm it immediately, and keep it for later restores."""
        if self._running is not None:
            self.settle(0)
        checkpoint, future, moment = self._take()
        self._kept.append((future.result().handle, moment))
        self.backend.notify_checkpoint_complete(checkpoint)

    def clear_held(self, number: int) -> None:
        """Clear the state at the first key and namespace at which it has contents."""
        held = sorted(self.models[number].held)
        if held:
            self.clear(number, *held[0])
            self.coverage.note("removal between snapshots")

    def subsume(self) -> None:
        """Notify the backend that all snapshots before its newest one are no longer needed."""
        if self._kept:
            self._keep_one()
            self.backend.notify_checkpoint_subsumed(self._checkpoint - 1)
            del self._kept[:-1]
            self.coverage.note("snapshots subsumed")

    def begin(self) -> None:
        """Begin a snapshot. Later steps may change the state while it is written."""
        if self._running is None:
            self._running = self._take(held=True)

    def settle(self, how: int) -> None:
        """End the snapshot that `begin` has started.

        If it is aborted or cancelled, take another snapshot, and check that one.

        Args:
            how: 0 to abort, 1 to cancel and abort, higher numbers to confirm.
        """
        if self._running is None:
            return
        (checkpoint, future, moment), self._running = self._running, None
        self._gate.set()
        if self.dirty:
            self.coverage.note("work while a snapshot is written")
        if how > 1:
            handle = future.result().handle
            self.backend.notify_checkpoint_complete(checkpoint)
            self._kept.append((handle, moment))
            return
        if how == 1:
            self._cancel(future)
        self.backend.notify_checkpoint_aborted(checkpoint)
        self._keep_one()
        self.verify(*self._kept[-1])

    def compare(self) -> None:
        """Compare everything that can be read with the models, without a flush."""
        for number in range(len(self.models)):
            for key in range(len(self.world.keys)):
                self.see(number, key)
        for domain in range(len(self.timers)):
            self.earliest(domain)
        self.compare_operators()
