"""Steps that flush or replace a backend, and the class `Side` that has all steps."""

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
from typing_extensions import override

from millpond_conformance.opening import open_at, open_wrapped
from millpond_conformance.wide.coverage import Coverage
from millpond_conformance.wide.histories import Moment, SnapshotSteps
from millpond_conformance.wide.operators import OperatorModel
from millpond_conformance.wide.world import OWN_STRATEGY, TIMES, World


@cache
def _strategy(backend: str, wanted: str) -> str:
    """Return the name of the snapshot strategy to use, usually `wanted`.

    If `wanted` is `OWN_STRATEGY`, return a strategy that only this backend has. If it has none,
    return ``changelog``.
    """
    if wanted != OWN_STRATEGY:
        return wanted
    with (
        tempfile.TemporaryDirectory(prefix="millpond-wide-") as directory,
        mp.open_keyed_backend(backend, key_type=str, directory=directory) as opened,
    ):
        own = sorted({*opened.strategy_names()} - {"full", "changelog"})
    return own[0] if own else "changelog"


class Side(SnapshotSteps):
    """One of the backends of a program, with its model and with all steps as methods."""

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
        self.backend = self.opened([], number)
        self.attach()

    # ---------------------------------------------------------------- opening and closing

    def _directory(self) -> Path:
        self._opened += 1
        return self.folder / str(self._opened)

    @override
    def opened(self, restore: list[Any], limit: int, groups: Any = None) -> Any:
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

    def _replace(self, restore: list[Any], moment: Moment, limit: int) -> None:
        """Replace the backend by a new one, restored from the handles `restore`.

        Args:
            restore: the snapshots or savepoints.
            moment: the contents that the new backend must have.
            limit: a number that selects the size of its buffer.
        """
        self._forget()
        self.backend.close()
        self.models = copy.deepcopy(moment.models)
        self.timers = copy.deepcopy(moment.timers)
        self.backend = self.opened(restore, limit)
        self.operators = copy.deepcopy(moment.operators)
        self.attach(restore[0] if len(restore) == 1 else None)
        self.coverage.note("restore")

    def _forget(self) -> None:
        for each in self.open:
            close = getattr(each.entries, "close", None)
            if close is not None:
                close()
        self.open, self._running, self.dirty = [], None, 0

    def close(self) -> None:
        """Close the open iterations and the backend."""
        self._forget()
        self.backend.close()

    # ---------------------------------------------------------------- flushes and time

    def flush(self, named: int) -> None:
        """Flush the backend, with a version if `named` is 0."""
        self.backend.flush(f"version {self._checkpoint}" if named == 0 else None)
        self.dirty = 0
        self.flushed_under_way()

    def wait(self, ms: int) -> None:
        """Move the clock forwards."""
        self.clock.advance(ms)

    # ---------------------------------------------------------------- other backends

    def crash(self, older: int, limit: int) -> None:
        """Replace the backend by one that is restored from the newest confirmed snapshot.

        If `older` is true, restore the second newest confirmed snapshot instead.
        """
        if not self._kept:
            return
        if older and len(self._kept) > 1:
            del self._kept[-1:]
        handle, moment = self._kept[-1]
        self._replace([handle], moment, limit)
        self._kept = self._kept[-1:]

    def rescale(self, parts: int, first: int, second: int) -> None:
        """Restore the newest snapshot into several backends, each with some of the key groups.

        Let some timers fire there. Then replace the backend by one that is restored from the
        snapshots of all of these, in random order.

        Args:
            parts: the maximum number of cuts between key groups, minus one.
            first: a number that decides the cuts, the order and the size of the buffer.
            second: another number that decides the cuts.
        """
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
            with self.opened([handle], len(handles), groups) as part:
                for domain, held in enumerate(moment.timers):
                    for timer in self.queue(domain, part).due(TIMES[second % len(TIMES)]):
                        self._check_taken(held, timer)
                self._checkpoint += 1
                handles.append(part.snapshot(self._checkpoint, self._storage).result().handle)
        self._leave_out(moment.models)
        moment = attrs.evolve(moment, operators=OperatorModel())
        shuffled = random.Random(first).sample(handles, len(handles))  # noqa: S311 - a program
        self._replace(shuffled, moment, first)
        self._kept = []
        self.coverage.note("rescale")

    def savepoint(self) -> None:
        """Take a savepoint, and continue with a backend that is restored from it."""
        if self._running is not None:
            self.settle(0)
        moment = self._moment()
        self._checkpoint += 1
        handle = self.backend.savepoint(self._checkpoint, self._storage).result().handle
        self._replace([handle], moment, self._checkpoint)
        self._kept = []
        self.coverage.note("savepoint")

    def reopen(self, limit: int, unnamed: int) -> None:
        """Close the backend and reopen its directory.

        The reopened backend must have the version of the last flush, or be empty.

        Args:
            limit: a number that selects the size of its buffer.
            unnamed: if 0, changes are flushed without a version before the backend is closed. Then
                it must be empty.
        """
        version = f"v{self._checkpoint} of {self.number}"
        self.request_all()
        self.backend.flush(version)
        self.dirty = 0
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
        self.request_all()  # the directory alone does not have the types of its states
        self.operators = OperatorModel()
        self.attach()
        if self.backend.version is None:
            self.models = self.empty_models()
            self.timers = [set() for _ in self.timers]
        elif unnamed == 0:
            raise AssertionError(f"the directory claims {version!r}, but holds later changes")
        self._kept = []
        self.coverage.note("reopening")

    def _write_more(self) -> None:
        """Set a timer and flush it without a version, so that the directory has no version."""
        timer = (1 << 50, 0, 0)
        self._set(0, timer[1], timer[2], timer[0])
        self.backend.flush(None)

    # ---------------------------------------------------------------- many entries

    def fill(self, number: int, key: int, space: int, count: int, how: int) -> None:
        """Add many entries to a map or list, read them, and remove them again.

        Args:
            number: the state.
            key: the key.
            space: the namespace.
            count: the number of entries.
            how: for a map, whether to clear it (0), to flush after the writes (1), or to flush
                after the removals (2).
        """
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

    def finish(self) -> None:
        """Finish open iterations and snapshots, and compare all contents with the models.

        Compare before and after the keys are listed, because listing may flush the backend. Compare
        again after a restore of the newest snapshot.
        """
        while self.open:
            self.proceed(0)
        self.settle(2)
        self.compare()
        for number in range(len(self.models)):
            self.enumerate(number)
        self.compare()
        for domain in range(len(self.timers)):
            self.take_all(domain)
        if self._kept:
            self.crash(0, 0)
            self.compare()
