"""One backend of a program through its life: flushes, snapshots, restores, other directories."""

from __future__ import annotations

import copy
import random
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.opening import open_at, open_wrapped
from millpond_conformance.semantics import StateModel
from millpond_conformance.wide.cells import CellSteps
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.maps import MapSteps
from millpond_conformance.wide.timers import Timers, TimerSteps
from millpond_conformance.wide.world import OWN_STRATEGY, World

__all__ = ["Side"]


@attrs.frozen
class _Moment:
    """What was there when a snapshot was taken."""

    models: list[StateModel]
    timers: Timers


@cache
def _strategy(backend: str, wanted: str) -> str:
    """The snapshot strategy of a name, or one that the backend itself brings."""
    if wanted != OWN_STRATEGY:
        return wanted
    with (
        tempfile.TemporaryDirectory(prefix="millpond-wide-") as directory,
        mp.open_keyed_backend(backend, key_type=str, directory=directory) as opened,
    ):
        own = sorted({*opened.strategy_names()} - {"full", "changelog"})
    return own[0] if own else "changelog"


class Side(MapSteps, CellSteps, TimerSteps):
    """A backend of a program."""

    def __init__(
        self,
        backend: str,
        world: World,
        folder: Path,
        coverage: Coverage,
        wrapped: str,
        number: int,
    ) -> None:
        super().__init__(world, folder, coverage, number)
        self._name, self._wrapped = backend, wrapped
        self._strategy = _strategy(backend, world.strategy)
        self._opened = 0
        self._checkpoint = 0
        self._storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
        self._kept: list[tuple[Any, _Moment]] = []
        self._running: tuple[int, Any, _Moment] | None = None
        self.backend = self._open([], number)

    # ---------------------------------------------------------------- opening and closing

    def _directory(self) -> Path:
        self._opened += 1
        return self.folder / str(self._opened)

    def _open(self, restore: list[Any], limit: int, groups: Any = None) -> Any:
        return open_wrapped(
            self._name,
            self._wrapped,
            key_type=self.world.key_type,
            max_parallelism=self.world.groups,
            key_group_range=groups,
            directory=self._directory(),
            clock=self.clock,
            config=self.world.config(limit, self._strategy),
            restore=restore,
        )

    def _replace(self, restore: list[Any], moment: _Moment, limit: int) -> None:
        """Go on with another backend, restored from these."""
        self._forget()
        self.backend.close()
        self.models = copy.deepcopy(moment.models)
        self.timers = copy.deepcopy(moment.timers)
        self.backend = self._open(restore, limit)
        self.coverage.note("restore")

    def _forget(self) -> None:
        for each in self.open:
            close = getattr(each.entries, "close", None)
            if close is not None:
                close()
        self.open, self._running, self.dirty = [], None, 0

    def close(self) -> None:
        """Release everything."""
        self._forget()
        self.backend.close()

    # ---------------------------------------------------------------- flushes and time

    def flush(self, named: int) -> None:
        """End a bundle, with a version or without."""
        self.backend.flush(f"version {self._checkpoint}" if named == 0 else None)
        self.dirty = 0
        self.flushed_under_way()

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    # ---------------------------------------------------------------- snapshots

    def _moment(self) -> _Moment:
        """What a snapshot of now holds; every state is asked for, so that it is in it."""
        for number in range(len(self.models)):
            self.state(number, (0, 0))
        for domain in range(len(self.timers)):
            self.queue(domain)
        models = copy.deepcopy(self.models)
        self._leave_out(models)
        if self.dirty:
            self.coverage.note("snapshot of a dirty buffer")
        self.dirty = 0
        self.flushed_under_way()
        return _Moment(models, copy.deepcopy(self.timers))

    def _leave_out(self, models: list[StateModel]) -> None:
        """Drop what has expired and could still be read: a full snapshot does not hold it."""
        for model in models:
            if model.mode.shows:
                model.expire(self.clock.now_ms)

    def _take(self) -> tuple[int, Any, _Moment]:
        moment = self._moment()
        self._checkpoint += 1
        return self._checkpoint, self.backend.snapshot(self._checkpoint, self._storage), moment

    def snapshots(self, fates: tuple[str, ...], number: int, key: int, space: int) -> None:
        """Take snapshots in a row, each after a change: confirmed, aborted or never heard of."""
        if self._running is not None:
            self.settle(0)
        for count, fate in enumerate(fates):
            # Each changes another place, so that none makes up for what one before it has lost.
            key, space = (
                (key + 1) % len(self.world.keys),
                (space + key % 2) % len(self.world.spaces),
            )
            if count % 4 == 3:  # noqa: PLR2004 - each fourth snapshot tells of nothing else
                self._clear_one(number)
            elif self.kind(number) == "map":
                self.put(number, key, space, count, count)
            elif count % 3:
                self.write(number, key, space, count, 0)
            else:
                self.rewrite(number, key, space, count)
            checkpoint, future, moment = self._take()
            handle = future.result().handle
            if fate == "confirm":
                self.backend.notify_checkpoint_complete(checkpoint)
                self._kept.append((handle, moment))
                self.coverage.note("snapshots confirmed")
            elif fate == "abort":
                self.backend.notify_checkpoint_aborted(checkpoint)
                self.coverage.note("snapshots aborted")

    def _keep_one(self) -> None:
        """Take a snapshot that is confirmed at once."""
        if self._running is not None:
            self.settle(0)
        checkpoint, future, moment = self._take()
        self._kept.append((future.result().handle, moment))
        self.backend.notify_checkpoint_complete(checkpoint)

    def _clear_one(self, number: int) -> None:
        """Empty the first place of a state that holds something."""
        held = sorted(self.models[number].held)
        if held:
            self.clear(number, *held[0])
            self.coverage.note("removal between snapshots")

    def subsume(self) -> None:
        """Say that of the snapshots of this backend only the newest is needed."""
        if self._kept:
            self._keep_one()
            self.backend.notify_checkpoint_subsumed(self._kept[-2][0].checkpoint_id)
            del self._kept[:-1]
            self.coverage.note("snapshots subsumed")

    def begin(self) -> None:
        """Begin a snapshot, and go on working while it is written."""
        if self._running is None:
            self._running = self._take()

    def settle(self, how: int) -> None:
        """Confirm or abort the snapshot that was begun."""
        if self._running is None:
            return
        (checkpoint, future, moment), self._running = self._running, None
        handle = future.result().handle
        if self.dirty:
            self.coverage.note("work while a snapshot is written")
        if how:
            self.backend.notify_checkpoint_complete(checkpoint)
            self._kept.append((handle, moment))
        else:
            self.backend.notify_checkpoint_aborted(checkpoint)

    def crash(self, older: int, limit: int) -> None:
        """Lose the backend, and restore the newest snapshot or one before it."""
        if not self._kept:
            return
        if older and len(self._kept) > 1:
            del self._kept[-1:]
        handle, moment = self._kept[-1]
        self._replace([handle], moment, limit)
        self._kept = self._kept[-1:]

    def rescale(self, parts: int, first: int, second: int) -> None:
        """Divide the newest snapshot among backends, and join theirs, in any order."""
        if self.world.groups == 1:
            return
        if not self._kept:
            self._keep_one()
        handle, moment = self._kept[-1]
        top = self.world.groups - 1
        cuts = sorted({first % top, second % top, (first + second) % top})[: parts + 1]
        handles: list[Any] = []
        for before, last in pairwise([-1, *cuts, top]):
            groups = mp.KeyGroupRange(before + 1, last)
            with self._open([handle], len(handles), groups) as part:
                self._checkpoint += 1
                handles.append(part.snapshot(self._checkpoint, self._storage).result().handle)
        self._leave_out(moment.models)
        shuffled = random.Random(first).sample(handles, len(handles))  # noqa: S311 - a program
        self._replace(shuffled, moment, first)
        self._kept = []
        self.coverage.note("rescale")

    def savepoint(self) -> None:
        """Go through a savepoint."""
        if self._running is not None:
            self.settle(0)
        moment = self._moment()
        self._checkpoint += 1
        handle = self.backend.savepoint(self._checkpoint, self._storage).result().handle
        self._replace([handle], moment, self._checkpoint)
        self._kept = []
        self.coverage.note("savepoint")

    def reopen(self, limit: int, unnamed: int) -> None:
        """Close the backend and open its directory again: it is at its version, or empty."""
        version = f"v{self._checkpoint} of {self.number}"
        self._moment()
        self.backend.flush(version)
        directory = self.backend.parameters.directory
        if unnamed == 0:
            self._write_more()
        self._forget()
        self.backend.close()
        self.backend = open_at(
            self._name,
            directory,
            [version],
            self.clock,
            self.world.groups,
            self._wrapped,
            key_type=self.world.key_type,
            config=self.world.config(limit, self._strategy),
        )
        self.backend.strategy(self._strategy).start(None)
        if self.backend.version is None:
            self.models = self.empty_models()
            self.timers = [set() for _ in self.timers]
        elif unnamed == 0:
            raise AssertionError(f"the directory claims {version!r}, but holds later changes")
        self._kept = []
        self.coverage.note("reopening")

    def _write_more(self) -> None:
        """Change something and flush it under no name: the directory is at no version then."""
        timer = (1 << 50, 0, 0)
        self._set(0, timer[1], timer[2], timer[0])
        self.backend.flush(None)

    # ---------------------------------------------------------------- many entries

    def fill(self, number: int, key: int, space: int, count: int, how: int) -> None:
        """Put many entries, flush or not, read them, and remove all or all but a few."""
        at, spec = (key, space), self.world.states[number]
        if spec.kind == "map":
            self._fill_map(number, at, count, how)
        elif spec.kind == "list":
            state, model = self.state(number, at), self.models[number]
            state.add_all([spec.element(n) for n in range(count)])
            for n in range(count):
                model.write(at, n, self.clock.now_ms)
            self.coverage.note("more than 1,000 entries")
            self.read(number, key, space)
            self.clear(number, key, space)

    def _fill_map(self, number: int, at: tuple[int, int], count: int, how: int) -> None:
        key, space = at
        entries = range(10, 10 + count)
        spec, model = self.world.states[number], self.models[number]
        state = self.state(number, at)
        state.put_all({spec.map_key(n): spec.element(n) for n in entries})
        for n in entries:
            self._noted(number, at, n, n)
        self.coverage.note("more than 1,000 entries")
        if how == 1:
            self.flush(1)
        self.look(number, key, space, "items", 0)
        if how == 0:
            self.clear(number, key, space)
            self.look(number, key, space, "is_empty", 0)
            return
        for n in entries:
            self.state(number, at).remove(spec.map_key(n))
            model.remove(at, n)
        if how > 1:
            self.flush(1)
        self.forget_entries(number, at)
        self.look(number, key, space, "keys", 0)

    # ---------------------------------------------------------------- at the end

    def compare(self) -> None:
        """Compare everything that can be read, without a flush."""
        for number in range(len(self.models)):
            for key in range(len(self.world.keys)):
                for space in range(len(self.world.spaces)):
                    if self.kind(number) == "map":
                        self.look(number, key, space, "items", 0)
                    else:
                        self.read(number, key, space)
        for domain in range(len(self.timers)):
            self.earliest(domain)

    def finish(self) -> None:
        """Finish iterations, then compare everything: before a flush, after it, and restored."""
        while self.open:
            self.proceed(0)
        self.settle(1)
        self.compare()
        for number in range(len(self.models)):
            self.enumerate(number)
        self.compare()
        for domain in range(len(self.timers)):
            self.take_all(domain)
        if self._kept:
            self.crash(0, 0)
            self.compare()
