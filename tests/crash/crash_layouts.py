"""A query that is rescaled, loses attempts, and deletes outdated files.

Each round is a micro-batch: a subtask with rows makes some attempts, of which the last one is
committed, and then deletes outdated files. Recording the round stands for Spark's commit. Whatever
happens in between, every retained checkpoint has its files, and the number of files is bounded.
"""

from __future__ import annotations

import json
import os
import random

import attrs
import millpond as mp
from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.snapshots.handles import KeyedStateHandle
from millpond.storage.checkpoint_storage import CheckpointStorage
from millpond_spark.driver.savepoints import committed_handles
from millpond_spark.plan.layout import Layout, current_layout, read_layout, write_layout
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker.backend_source import acquire_backend
from millpond_spark.worker.committed_state import CommittedState
from millpond_spark.worker.outdated_files import Subtask

from tests.crash.crash_model import ITEMS, TOTAL, contents
from tests.crash.crash_tasks import plan_of

QUERY = OperatorId("query", "totals")
GROUPS = 128
LAST = 24
QUIET = 8
"""Number of final rounds with the same layout, rows in all subtasks and one attempt."""
KEYS = [f"k{number}" for number in range(16)]


@attrs.frozen
class Course:
    """The events of a query by round; each seed gives other ones."""

    seed: int

    def _draw(self, *what):
        return random.Random(f"{self.seed} {what}")

    @property
    def retained(self):
        """Return the number of retained checkpoints."""
        return self._draw("retained").randint(1, 4)

    def parallelism(self, number):
        """Return the number of subtasks in a round."""
        changes = sorted(self._draw("changes").sample(range(2, LAST - QUIET), 3))
        era = sum(change <= number for change in changes)
        return self._draw("era", era).randint(1, 3)

    def is_idle(self, index, number):
        """Return whether a subtask has no row in a round."""
        return number <= LAST - QUIET and self._draw("idle", index, number).random() < 0.4

    def fails(self, number):
        """Return whether a batch fails first, under the previous layout."""
        return 1 < number <= LAST - QUIET and self._draw("fails", number).random() < 0.2

    def has_other_view(self, index, number):
        """Return whether a subtask starts from an attempt that was not committed."""
        return self._draw("view", index, number).random() < 0.3

    def attempts(self, index, number):
        """Return the number of attempts of a subtask in a round."""
        return 1 if number > LAST - QUIET else self._draw("try", index, number).choice((1, 1, 2, 3))


@attrs.define
class Query:
    """A query, its committed rounds, and its expected state as a dictionary."""

    case: object
    root: object
    storage: CheckpointStorage
    course: Course
    views: dict = attrs.field(factory=dict)
    """The attempts of each subtask's last round, because an executor may know another one than Spark."""

    @property
    def config(self):
        """The configuration of the query."""
        return mp.Config({**self.case.settings, "checkpoint.retained": self.course.retained})

    @property
    def rounds(self):
        """The committed rounds."""
        notes = self.root / "rounds"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [json.loads(line) for line in lines]

    def commit(self, layout, pointers, truth):
        """Record a round as committed."""
        rows = list(map(attrs.astuple, pointers))
        with (self.root / "rounds").open("a") as file:
            note = {"layout": layout.number, "pointers": rows, "truth": truth}
            file.write(json.dumps(note) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def settled(self, done, last):
        """Return the layout of the next round, which the driver writes if the parallelism has changed."""
        current, wanted = current_layout(self.storage, QUERY), self.course.parallelism(done + 1)
        if current is not None and current.parallelism == wanted:
            return current
        sources = ()
        if last:
            before = read_layout(self.storage, QUERY, last["layout"])
            pointers = [Pointer(*row) for row in last["pointers"]]
            sources = committed_handles(pointers, before, self.storage, RestoreConfig())
        number = 0 if current is None else current.number + 1
        layout = Layout(number, wanted, GROUPS, tuple(sources), settled_after=done - 1)
        write_layout(self.storage, QUERY, layout)
        return read_layout(self.storage, QUERY, number)

    def start_of(self, layout, index, pointers):
        """Return the pointer of a subtask, and the snapshots that it starts from."""
        groups = layout.key_groups(index)
        mine = [p for p in pointers if (p.layout, p.key_group_range) == (layout.number, groups)]
        if not mine:
            sources = tuple(layout.starting_points(index, None, RestoreConfig()))
            return None, CommittedState(layout.number, None, sources)
        handle = KeyedStateHandle.from_json(mine[0].handle, self.storage)
        return mine[0], CommittedState(layout.number, handle)

    @property
    def retained(self):
        """Yield layout, expected state and handles of each retained checkpoint."""
        for note in self.rounds[-self.course.retained :]:
            layout = read_layout(self.storage, QUERY, note["layout"])
            pointers = [Pointer(*row) for row in note["pointers"]]
            starts = [self.start_of(layout, at, pointers)[1] for at in range(layout.parallelism)]
            yield layout, note["truth"], [[s.handle] if s.handle else s.sources for s in starts]

    def require_state(self):
        """Fail unless each retained checkpoint is restored exactly."""
        for layout, truth, starts in self.retained:
            found = {}
            for index, restore in enumerate(starts):
                with mp.open_keyed_backend(
                    self.case.backend, key_type=str, key_group_range=layout.key_groups(index),
                    directory=self.root / "look", restore=restore, config=self.config,
                ) as backend:  # fmt: skip
                    totals, items = contents(backend)
                    found |= {key: [total, items[key]] for key, total in totals.items()}
            if found != truth:
                raise AssertionError(f"a checkpoint of layout {layout.number} is not exact")

    def require_files(self):
        """Fail unless the files of each retained checkpoint exist."""
        present = set(self.storage.list(""))
        for _, _, starts in self.retained:
            for handle in (handle for restore in starts for handle in restore):
                if missing := handle.needed_paths - present:
                    raise AssertionError(f"deleted, though it is needed: {sorted(missing)}")

    def require_bounded(self):
        """Fail if files of earlier layouts or old attempts remain at the end."""
        paths = self.storage.list("")
        layouts = [path for path in paths if path.endswith(".json")]
        if len(layouts) != 1:
            raise AssertionError(f"layouts are left over: {layouts}")
        names = [path.rpartition("/")[2].partition("-") for path in paths]
        named = frozenset().union(*(
            handle.all_paths for *_, starts in self.retained for each in starts for handle in each
        ))  # fmt: skip
        old = {
            path
            for path, (number, *_) in zip(paths, names, strict=True)
            if number.isdigit() and int(number) <= LAST - QUIET and path not in named
        }
        if old:
            raise AssertionError(f"files of lost attempts are left over: {sorted(old)}")

    def run(self, *, armed=False):
        """Check the committed state, and continue to the last round."""
        os.environ["SPARK_LOCAL_DIRS"] = str(self.root / "local")
        self.require_state()
        plan = attrs.evolve(plan_of(self.case), config=self.config)
        last = (self.rounds or [None])[-1]
        for number in range(len(self.rounds) + 1, LAST + 1):
            if last and self.course.fails(number):
                self.batch(plan, current_layout(self.storage, QUERY), number, last, armed=armed)
            layout = self.settled(number - 1, last)
            self.commit(layout, *self.batch(plan, layout, number, last, armed=armed))
            last = self.rounds[-1]
        self.require_state()
        self.require_bounded()

    def batch(self, plan, layout, number, last, *, armed):
        """Run a round's subtasks; return the pointers and the state."""
        pointers = [Pointer(*row) for row in last["pointers"]] if last else []
        truth, retained = dict(last["truth"]) if last else {}, self.course.retained
        for index in range(layout.parallelism):
            if not self.course.is_idle(index, number):
                self.storage.armed = armed and number > 4
                subtask = Subtask(self.storage, QUERY, layout, index, number, retained)
                pointers, found = self.one_subtask(plan, subtask, pointers)
                truth |= found
                self.storage.armed = False
                self.require_files()
        return pointers, truth

    def one_subtask(self, plan, subtask, pointers):
        """Run a subtask's part of a round; return its pointers and the state of its keys."""
        layout, number = subtask.layout, subtask.checkpoint_id
        groups = layout.key_groups(subtask.index)
        pointer, start = self.start_of(layout, subtask.index, pointers)
        # RocksDB compacts each attempt's files at other times, so only one sequence of them is complete.
        is_same = self.case.strategy != "incremental"
        if pointer and is_same and self.course.has_other_view(subtask.index, number):
            views = self.views.get((layout.number, groups, pointer.checkpoint_id), [start.handle])
            start = attrs.evolve(start, handle=views[0])
        made = self.views[layout.number, groups, number] = []
        for _ in range(self.course.attempts(subtask.index, number)):
            handle, found = self.attempt(plan, start, groups, number)
            made.append(handle)
        if pointer is None:
            subtask.record_first_snapshot()
        else:
            subtask.delete_outdated(pointer.checkpoint_id, start.handle)
        written = Pointer(
            QUERY.uid, handle.version, number, groups.start, groups.end, handle.to_json(), "{}",
            layout.number,
        )  # fmt: skip
        kept = [p for p in pointers if (p.layout, p.key_group_range) != (layout.number, groups)]
        return [*kept, written], found

    def attempt(self, plan, start, groups, number):
        """Make an attempt of a subtask; return its handle and the state of its keys."""
        with acquire_backend(plan, QUERY.query, "run", groups, start, 0) as acquired:
            backend, found = acquired.backend, {}
            total, items = (backend.get_partitioned_state(each) for each in (TOTAL, ITEMS))
            for key in KEYS:
                if mp.assign_to_key_group(key, GROUPS) in groups:
                    backend.set_current_key(key)
                    total.update(number)
                    items.add(number)
                    found[key] = [number, items.get()]
            handle = backend.snapshot(number, self.storage).result().handle
            acquired.succeeded = True
        return handle, found
