"""Windows of user-defined types: their namespaces, timers and merges use that type."""

from dataclasses import dataclass, field
from decimal import Decimal
from operator import add
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from millpond import errors, windows

from core.tests.windows.shifts import Shift
from tests.windows.stretches import STRETCHES, Coarse
from tests.windows.window_parts import Mean

BACKENDS = ["heap", "rocksdb", "lmdb"]


class Shifts(windows.WindowAssigner):
    """Assigner of a window for each kind of row and ten ms."""

    is_event_time = True
    window_type = Shift

    def assign_windows(self, element, timestamp):
        return [Shift(element["kind"], timestamp // 10 * 10 + 10)]


@attrs.frozen
class Span:
    """Window of positions that rows cover, and its end."""

    first: int
    last: int
    until: int

    def max_timestamp(self):
        return self.until - 1

    def intersects(self, other):
        return self.first <= other.last and other.first <= self.last

    def cover(self, other):
        both = (self, other)
        return Span(
            min(each.first for each in both),
            max(each.last for each in both),
            max(each.until for each in both),
        )


class Spans(windows.WindowAssigner):
    """Assigner whose windows merge if their positions overlap."""

    is_event_time = True
    is_merging = True
    window_type = Span

    def assign_windows(self, element, timestamp):
        return [Span(element["at"], element["at"] + 1, timestamp + 100)]


def row(ms, **columns):
    """Return a row of a key."""
    return {"k": "a", "ms": ms, **columns}


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_of_a_named_tuple(backend):
    """Rows of the same time are in the windows of their kinds; the plain function yields the windows' parts."""
    function = windows.window(Shifts()).reduce(add, int, "n")
    rows = [
        row(1, kind="x", n=1),
        row(2, kind="y", n=2),
        row(9, kind="x", n=4),
        row(12, kind="x", n=8),
    ]
    out = mp.local.run(function, rows, key="k", event_time="ms", backend=backend)
    assert sorted(out) == [("a", "x", 10, 5), ("a", "x", 20, 8), ("a", "y", 10, 2)]


class Numbered(windows.ProcessWindowFunction):
    """Window function that yields the number of its key's fired windows."""

    fired = mp.ReducingStateDescriptor("fired", add, int)

    def process(self, key, context, total):
        fired = context.global_state(self.fired)
        fired.add(1)
        yield context.window.kind, fired.get(), total


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_share_a_state_of_the_key(backend):
    """All windows of a key share its global state, also after a restart."""

    def opened(restore=None):
        function = windows.window(Shifts()).reduce(add, int, "n", Numbered())
        return mp.testing.KeyedOperatorHarness(function, key="k", backend=backend, restore=restore)

    with opened() as harness:
        harness.process(row(1, kind="x", n=1), 1)
        harness.advance_watermark(10)
        assert list(harness.output) == [("x", 1, 1)]
        snapshot = harness.snapshot()
    with opened(snapshot) as harness:
        harness.process(row(12, kind="y", n=2), 12)
        harness.advance_watermark(20)
        assert list(harness.output) == [("y", 2, 2)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_merging_windows_are_restored(backend):
    """Two windows are merged when a third overlaps both, also after a restart."""

    def window_row(key, window, total):
        yield window, total

    def opened(restore=None):
        function = windows.window(Spans()).reduce(add, int, "n", window_row)
        return mp.testing.KeyedOperatorHarness(function, key="k", backend=backend, restore=restore)

    with opened() as harness:
        harness.process(row(0, at=1, n=1), 0)
        harness.process(row(0, at=3, n=2), 0)
        snapshot = harness.snapshot()
    with opened(snapshot) as harness:
        harness.process(row(5, at=2, n=4), 5)
        harness.advance_watermark(200)
        assert list(harness.output) == [(Span(1, 4, 105), 7)]


def test_a_window_of_another_type_is_refused():
    """A window of another type than declared is refused; the error names both."""

    class Lying(Shifts):
        def assign_windows(self, element, timestamp):
            return [windows.TimeWindow(0, 10)]

    function = windows.window(Lying()).reduce(add, int, "n")
    with pytest.raises(errors.UserFunctionError, match="kind"):
        mp.local.run(function, [row(1, kind="x", n=1)], key="k", event_time="ms")


class Price(NamedTuple):
    """Window of the rows of a price; prices with other digits are different windows."""

    until: int
    of: Decimal

    def max_timestamp(self):
        return self.until - 1


@dataclass(frozen=True)
class Place:
    """Window of the rows of a place; `==` compares only the times."""

    until: int
    of: str = field(compare=False)

    def max_timestamp(self):
        return self.until - 1


class Written(NamedTuple):
    """Window of the rows of some bytes."""

    until: int
    of: bytes

    def max_timestamp(self):
        return self.until - 1


ALIKE = {
    Price: (Decimal(1), Decimal("1.0"), Decimal("1.00")),
    Place: ("x", "y", "z"),
    Written: (b"x", bytearray(b"y"), bytearray(b"z")),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ALIKE)
def test_windows_that_python_takes_for_equal_stay_apart(kind, backend):
    """Windows that are equal in Python but not by their bytes fire separately, and leave nothing."""

    class Assigner(windows.WindowAssigner):
        is_event_time = True
        window_type = kind

        def assign_windows(self, element, timestamp):
            return [kind(10, element["of"])]

    function = windows.window(Assigner()).reduce(add, int, "n", lambda key, window, n: [n])
    with mp.testing.KeyedOperatorHarness(function, key="k", backend=backend) as harness:
        for number, of in enumerate((*ALIKE[kind], ALIKE[kind][0])):
            harness.process(row(1, of=of, n=1 << number), 1)
        harness.advance_watermark(100)
        assert sorted(harness.output) == [2, 4, 9]
        assert harness._backend.num_state_entries() == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", STRETCHES)
@pytest.mark.parametrize(
    ("moments", "wanted"),
    [
        ((1, 3, 12, 16), [(1, 8, 2), (12, 21, 2)]),
        ((1, 8, 4), [(1, 13, 3)]),
        ((1, 1), [(1, 6, 2)]),
        ((5, 1, 3), [(1, 10, 3)]),
    ],
)
def test_merging_windows_are_the_same_by_their_bytes(kind, backend, moments, wanted):
    """Windows are merged, fired and dropped by their bytes, whatever `==` says, with an evictor too."""

    class Assigner(windows.WindowAssigner):
        is_event_time = is_merging = True
        window_type = kind

        def assign_windows(self, element, timestamp):
            return [kind(timestamp, timestamp + 5)]

    def window_row(key, window, total):
        return [(window.start, window.end, total)]

    made = windows.window(Assigner())
    evicting = made.evictor(windows.CountEvictor.of(9))
    types = {"accumulator_type": tuple[int, int], "element_type": int, "value": "n"}

    def counted(key, window, mean):
        return window_row(key, window, mean[1])

    for function in (
        made.reduce(add, int, "n", window_row),
        evicting.aggregate(Mean(), window_function=counted, **types),
    ):
        with mp.testing.KeyedOperatorHarness(function, key="k", backend=backend) as harness:
            for moment in moments:
                harness.process(row(moment, n=1), moment)
            harness.advance_watermark(100)
            assert list(harness.output) == wanted
            assert harness._backend.num_state_entries() == 0


def test_evicting_windows_have_each_an_aggregate_by_their_bytes():
    """Evicting windows that are equal in Python have separate aggregates."""

    class Assigner(windows.WindowAssigner):
        is_event_time = True
        window_type = Coarse

        def assign_windows(self, element, timestamp):
            return [Coarse(0, 10 * element["n"])]

    made = windows.window(Assigner()).trigger(windows.CountTrigger.of(1))
    function = made.evictor(windows.CountEvictor.of(2)).aggregate(
        Mean(),
        tuple[int, int],
        lambda key, window, mean: [mean[1]],
        element_type=int,
        value="n",
    )
    rows = [row(1, n=n) for n in (1, 2, 1, 2, 1, 2)]
    assert mp.local.run(function, rows, key="k", event_time="ms") == [1, 2, 2, 4, 2, 4]


def test_a_thousand_windows_of_a_key_fire():
    """A thousand open windows of a key all fire."""
    function = windows.window(windows.TumblingEventTimeWindows.of(1)).reduce(add, int, "n")
    rows = [row(ms, n=1) for ms in (*range(2500), 3)]
    out = mp.local.run(function, rows, key="k", event_time="ms")
    assert sorted(out) == [("a", ms, ms + 1, 2 if ms == 3 else 1) for ms in range(2500)]
