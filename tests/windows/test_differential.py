"""Windows, triggers and timers, compared with a port of Flink's operator by random programs."""

import copy
import tempfile
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import millpond as mp
import pytest
from millpond.backend import timer_queue
from millpond.errors import UserFunctionError
from millpond.functions.row_conversion import as_row

from core.tests.windows import bounds
from tests.windows.flink_windows import EVENT, PROCESSING
from tests.windows.window_defects import DEFECTS
from tests.windows.window_programs import GROUPS, group_of, program

MOSTLY_HEAP = (*("heap",) * 10, "rocksdb", "lmdb")


def times_of(window):
    return window.start, window.end


class Subject:
    """Millpond's side of a program: one harness per subtask, all at the same time."""

    def __init__(self, made, folder):
        self.made, self.folder = made, folder
        self.clock = self.saved = 0
        self.opened = ExitStack()
        self.start(None, 1)

    def start(self, handles, parallelism):
        self.opened.close()
        self.harnesses = [
            self.opened.enter_context(
                mp.testing.KeyedOperatorHarness(
                    copy.deepcopy(self.made.function),
                    key="k",
                    backend=self.made.backend,
                    max_parallelism=GROUPS,
                    subtask=index,
                    parallelism=parallelism,
                    restore=handles,
                    clock_ms=self.clock,
                )
            )
            for index in range(parallelism)
        ]

    def subtask_of(self, key):
        return group_of(key) * len(self.harnesses) // GROUPS

    def step(self, kind, *rest):
        """Do a step; return the output of each subtask."""
        if kind == "row":
            key, n, moment = rest
            self.harnesses[self.subtask_of(key)].process({"k": key, "n": n}, moment)
        elif kind == "restore":
            self.restore(*rest)
        else:
            self.clock = max(self.clock, rest[0] if kind == "clock" else 0)
            for each in self.harnesses:
                advance = (
                    each.advance_processing_time if kind == "clock" else each.advance_watermark
                )
                advance(*rest)
        return self.yielded()

    def yielded(self):
        outputs = [list(each.output) for each in self.harnesses]
        for each in self.harnesses:
            each.output.clear()
        return outputs

    def rows_at_once(self, rows):
        """Process several rows per subtask as a worker does; return the output of each."""
        for index, each in enumerate(self.harnesses):
            mine = [row for row in rows if self.subtask_of(row[0]) == index]
            keyed = ((k, group_of(k), as_row({"k": k, "n": n}), t) for k, n, t in mine)
            each._operator.process_all(keyed, each.output)
        return self.yielded()

    def restore(self, form, parallelism):
        handles = []
        for each in self.harnesses:
            self.saved += 1
            path = self.folder / str(self.saved)
            handles.append(each.snapshot() if form == "snapshot" else each.savepoint(path))
        self.start(handles, parallelism)

    def entries(self):
        return sum(each._backend.num_state_entries() for each in self.harnesses)

    def timers(self, domain):
        """Return all set timers as time, key and window."""
        found = set()
        for each in self.harnesses:
            queue = each._backend.timer_queue(domain, self.made.window_type)
            rows = queue._rows.until((1 << 63) - 1)
            timers = [queue._timer(queue._timestamp(row), row) for row in rows]
            found |= {(each.timestamp, each.key, times_of(each.namespace)) for each in timers}
        return found


def expected(reference, kind, *rest):
    """Do a step on the port; return its output."""
    timers = reference.timers
    if kind == "row":
        key, n, moment = rest
        reference.process_element(key, {"k": key, "n": n}, moment)
    elif kind == "watermark":
        timers.advance_watermark(rest[0], reference.on_timer)
    elif kind == "clock":
        timers.advance_processing_time(max(rest[0], timers.now), reference.on_timer)
    else:
        timers.restored()
    output, reference.output = reference.output, []
    return output


def played(made, subject, *, at_once):
    """Yield the steps, each with both sides' output; of several rows at once, only the last one."""
    for kind, group in groupby(made.steps, key=itemgetter(0)):
        steps = list(group)
        if at_once and kind == "row":
            wanted = [row for step in steps for row in expected(made.reference, *step)]
            yield steps[-1], subject.rows_at_once([step[1:] for step in steps]), wanted
            continue
        for step in steps:
            yield step, subject.step(*step), expected(made.reference, *step)


def compare(made, folder, *, at_once):
    """Run both sides; raise an AssertionError with the program if they differ."""
    subject, reference = Subject(made, folder), made.reference
    with subject.opened:
        for number, (step, found, wanted) in enumerate(played(made, subject, at_once=at_once)):
            about = f"{made.about}\nstep {number} of {made.steps}"
            for index, output in enumerate(found):
                mine = [row for row in wanted if subject.subtask_of(row[0]) == index]
                assert output == mine, about
            if step[0] == "restore" or step is made.steps[-1]:
                assert subject.entries() == reference.entries(), about
                for domain in (EVENT, PROCESSING):
                    left = {
                        (time, key, tuple(at)) for time, key, at in reference.timers.queues[domain]
                    }
                    assert subject.timers(domain) == left, about
        if not made.everlasting:
            assert subject.entries() == 0, made.about
            assert not subject.timers(EVENT) | subject.timers(PROCESSING), made.about


def run(seeds, backends):
    for seed in seeds:
        with bounds.within_bounds(f"seed {seed}"), tempfile.TemporaryDirectory() as folder:
            compare(program(seed, backends), Path(folder), at_once=seed % 2)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_windows_are_those_of_flink(part):
    """Programs give the same output in the same order, and leave the same state and timers."""
    run(range(100 * part, 100 * part + 100), MOSTLY_HEAP)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_windows_are_those_of_flink(part):
    """10,000 programs give the same output, state and timers as the port of Flink."""
    run(range(1000 + 1000 * part, 2000 + 1000 * part), MOSTLY_HEAP)


@pytest.mark.sample(8)
@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(monkeypatch, defect):
    """The first three hundred programs find each planted defect; a hanging one is ended."""
    monkeypatch.setattr(*DEFECTS[defect])
    monkeypatch.setattr(bounds, "SECONDS", 4)
    monkeypatch.setattr(timer_queue, "_LONGEST_CHAIN", 10_000)
    found = (AssertionError, pytest.fail.Exception, UserFunctionError)
    with pytest.raises(found, match="seed|EndlessTimersError"):
        run(range(300), ("heap",))
