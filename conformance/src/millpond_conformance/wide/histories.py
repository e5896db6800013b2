"""Steps on snapshots: long histories of deltas with every outcome, and their restore elsewhere."""

from __future__ import annotations

import copy
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.semantics import TTL_MS, StateModel
from millpond_conformance.wide.bulk import BulkSteps
from millpond_conformance.wide.cells import CellSteps, stamps_of
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.maps import MapSteps
from millpond_conformance.wide.operators import OperatorModel, OperatorSteps
from millpond_conformance.wide.steps import Event, Step
from millpond_conformance.wide.timers import Timers, TimerSteps
from millpond_conformance.wide.world import World

_LONG = 10
"""The number of confirmed snapshots in a row that count as a long history."""


@attrs.frozen
class Moment:
    """The contents of a backend when a snapshot was taken."""

    models: list[StateModel]
    timers: Timers
    operators: OperatorModel


class SnapshotSteps(MapSteps, CellSteps, BulkSteps, TimerSteps, OperatorSteps):
    """Steps on snapshots."""

    def __init__(self, world: World, folder: Path, coverage: Coverage, number: int) -> None:
        super().__init__(world, folder, coverage, number)
        self._checkpoint = 0
        self._storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
        self._kept: list[tuple[Any, Moment]] = []
        self._running: tuple[int, Any, Moment] | None = None

    def opened(self, restore: list[Any], limit: int, groups: Any = None) -> Any:
        """Open a backend in a new directory, restored from handles."""
        raise NotImplementedError

    def _moment(self) -> Moment:
        """Return the contents for a snapshot; in half of the cases, request every state first."""
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
        """Request every state and timer queue."""
        for number in range(len(self.models)):
            self.state(number, (0, 0))
        for domain in range(len(self.timers)):
            self.queue(domain)

    def _leave_out(self, models: list[StateModel]) -> None:
        """Drop expired entries from the model, because a full snapshot omits them."""
        for model in models:
            if model.mode.shows:
                model.expire(self.clock.now_ms)

    def _take(self) -> tuple[int, Any, Moment]:
        moment = self._moment()
        self._checkpoint += 1
        return self._checkpoint, self.backend.snapshot(self._checkpoint, self._storage), moment

    def history(self, events: tuple[Event, ...], checked: int) -> None:
        """Take several snapshots, each after changes; restore one and the last one elsewhere.

        Args:
            events: for each snapshot its outcome, whether changes happen while it is written, and
                the next changes.
            checked: the confirmed snapshot that is restored elsewhere.
        """
        self.settle(checked % 4)
        confirmed: list[tuple[Any, Moment]] = []
        for fate, overlapped, changes in events:
            checkpoint, future, moment = self._take()
            if overlapped:
                self._change(changes)
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
        """Restore a snapshot into another backend, compare everything, and let entries expire."""
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
        """Return two future expiry times, each with the time right before it."""
        held = [each for m in self.models if m.mode.expires for each in m.held.values()]
        stamps = {stamp for content in held for stamp in stamps_of(content)}
        moments = sorted(when + TTL_MS for when in stamps if when + TTL_MS > self.clock.now_ms)
        chosen = dict.fromkeys([*moments[:1], *moments[-1:]])
        return sorted({when + step for when in chosen for step in (-1, 0)} - {self.clock.now_ms})

    def _keep_one(self) -> None:
        """Take a snapshot and confirm it immediately."""
        if self._running is not None:
            self.settle(0)
        checkpoint, future, moment = self._take()
        self._kept.append((future.result().handle, moment))
        self.backend.notify_checkpoint_complete(checkpoint)

    def clear_held(self, number: int) -> None:
        """Empty the first filled place of a state."""
        held = sorted(self.models[number].held)
        if held:
            self.clear(number, *held[0])
            self.coverage.note("removal between snapshots")

    def subsume(self) -> None:
        """Report that only the newest snapshot of this backend is needed."""
        if self._kept:
            self._keep_one()
            self.backend.notify_checkpoint_subsumed(self._checkpoint - 1)
            del self._kept[:-1]
            self.coverage.note("snapshots subsumed")

    def begin(self) -> None:
        """Begin a snapshot, and change the state while it is written."""
        if self._running is None:
            self._running = self._take()

    def settle(self, how: int) -> None:
        """Confirm, abort or cancel the begun snapshot; if it is lost, check the next one."""
        if self._running is None:
            return
        (checkpoint, future, moment), self._running = self._running, None
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
        """Compare everything that can be read, without flushing."""
        for number in range(len(self.models)):
            for key in range(len(self.world.keys)):
                self.see(number, key)
        for domain in range(len(self.timers)):
            self.earliest(domain)
        self.compare_operators()
