"""Idle sources: after a time without rows, the watermark follows the clock."""

import random
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors, windows

SIZE = 10
LATE = mp.OutputTag("late")


def _counts():
    windowed = windows.window(windows.TumblingEventTimeWindows.of(SIZE))
    return windowed.side_output_late_data(LATE).reduce(lambda a, b: a + b, int, lambda row: 1)


class Reference:
    """Tumbling windows of one subtask, whose watermark follows the clock when there are no rows."""

    def __init__(self, timeout, clock):
        self.timeout, self.clock = timeout, clock
        self.watermark = self.highest = mp.MIN_TIMESTAMP
        self.last = None
        self.open, self.fired, self.late = {}, [], []

    def row(self, key, time):
        self.last, self.highest = self.clock, max(self.highest, time)
        start = time // SIZE * SIZE
        if start + SIZE - 1 <= self.watermark:
            self.late.append((key, time))
        else:
            self.open[key, start] = self.open.get((key, start), 0) + 1

    def raise_watermark(self, time):
        self.watermark = max(self.watermark, time)
        due = sorted((start, key) for key, start in self.open if start + SIZE - 1 <= self.watermark)
        for start, key in due:
            self.fired.append((key, start, start + SIZE, self.open.pop((key, start))))

    def set_clock(self, clock):
        self.clock = clock
        if self.last is not None and clock - self.last >= self.timeout:
            self.raise_watermark(self.highest + clock - self.last - self.timeout)


def _steps(draw, reference):
    """Yield random steps: rows that are often late, watermarks, and pauses of the clock."""
    clock, time = 1_000, 0
    for _ in range(60):
        kind = draw.choice(("row", "row", "clock", "clock", "watermark"))
        if kind == "row":
            time += draw.randrange(-4, 12)
            yield kind, draw.choice("ab"), time
        elif kind == "watermark":
            yield kind, time - draw.randrange(20)
        else:
            clock += draw.choice((1, 3, 8, 20, 35))
            yield kind, clock


@pytest.mark.parametrize("seed", range(20))
def test_generated_programs(seed):
    """Windows fire and rows are late exactly as in a plain reference, on each backend."""
    draw = random.Random(seed)
    timeout = draw.choice((1, 7, 20))
    reference = Reference(timeout, 1_000)
    with mp.testing.KeyedOperatorHarness(
        _counts(),
        key="k",
        backend=("heap", "rocksdb", "lmdb")[seed % 3],
        clock_ms=1_000,
        idle_timeout=timedelta(milliseconds=timeout),
    ) as harness:
        for step in _steps(draw, reference):
            match step:
                case "row", key, time:
                    harness.process({"k": key, "t": time}, time)
                    reference.row(key, time)
                case "watermark", time:
                    harness.advance_watermark(time)
                    reference.raise_watermark(time)
                case "clock", clock:
                    harness.advance_processing_time(clock)
                    reference.set_clock(clock)
            assert sorted(harness.output) == sorted(reference.fired)
        assert [(row.k, row.t) for row in harness.output.side_output(LATE)] == reference.late
        assert reference.fired


class Watermarks(mp.KeyedProcessFunction):
    """Function that yields the watermark before each row."""

    def process_element(self, row, context):
        yield context.timer_service().current_watermark()


def _paused(clock, pauses):
    """Yield a row after each pause of the clock."""
    for number, pause in enumerate(pauses):
        clock.advance(pause)
        yield {"k": "a", "t": 100 + number}


def test_a_local_run_follows_its_clock():
    """In a local run the watermark moves before the next row, and never goes back."""
    clock = mp.ManualClock(0)
    found = mp.local.run(
        Watermarks(),
        _paused(clock, (50, 4, 10, 25, 1)),
        key="k",
        event_time="t",
        clock=clock,
        idle_timeout=10,
    )
    assert found == [mp.MIN_TIMESTAMP, mp.MIN_TIMESTAMP, 101, 102 + 15, 102 + 15]


def test_rows_without_event_time_end_a_pause():
    """A row without an event time is a row, but does not begin a watermark."""
    with mp.testing.KeyedOperatorHarness(Watermarks(), key="k", idle_timeout=10) as harness:
        harness.process({"k": "a"})
        harness.advance_processing_time(50)
        harness.process({"k": "a"}, timestamp=7)
        harness.advance_processing_time(55)
        harness.process({"k": "a"})
        harness.advance_processing_time(60)
        harness.process({"k": "a"})
        harness.advance_processing_time(70)
        harness.process({"k": "a"})
    assert harness.output == [mp.MIN_TIMESTAMP] * 4 + [7]


def test_an_idle_watermark_has_64_bits():
    """The watermark of an idle subtask stops at the greatest timestamp."""
    with mp.testing.KeyedOperatorHarness(Watermarks(), key="k", idle_timeout=10) as harness:
        harness.process({"k": "a"}, timestamp=mp.MAX_TIMESTAMP - 5)
        harness.advance_processing_time(50)
        harness.process({"k": "a"})
    assert harness.output == [mp.MIN_TIMESTAMP, mp.MAX_TIMESTAMP]


class Frames(mp.VectorizedProcessFunction):
    """Vectorized function that sets a timer at the time of each row."""

    def process_batch(self, rows, context):
        for key, group in context.groups():
            for time in group["t"].to_pylist():
                context.timer_service(key).register_event_time_timer(time)

    def on_timer(self, timestamp, context):
        yield {"k": context.current_key, "t": timestamp}


def test_frames_of_a_vectorized_function():
    """A frame counts as input at its highest event time."""
    with mp.testing.KeyedOperatorHarness(Frames(), key="k", idle_timeout=5) as harness:
        harness.process_batch([{"k": "a", "t": 3}, {"k": "b", "t": 1}], [3, 1])
        harness.advance_processing_time(4)
        assert not harness.output
        harness.advance_processing_time(5)
    assert [(row["k"], row["t"]) for row in harness.output] == [("b", 1), ("a", 3)]


@pytest.mark.parametrize(
    ("given", "words"),
    [(0, "0 ms is not positive"), (timedelta(seconds=-5), "-5000 ms is not positive")],
)
def test_refused_timeouts(given, words):
    """A timeout must be a positive length of time."""
    with pytest.raises(errors.ConfigError, match=words) as caught:
        mp.local.run(Watermarks(), [], key="k", idle_timeout=given)
    assert caught.value.key == "idle_timeout"


@pytest.mark.parametrize("given", ["5 s", 0.5, True])
def test_timeouts_of_a_wrong_type(given):
    """A timeout of another type is refused by its name."""
    with pytest.raises(errors.ArgumentTypeError, match="idle_timeout"):
        mp.testing.KeyedOperatorHarness(Watermarks(), key="k", idle_timeout=given)


def _lost_in_a_chain(first, second):
    """Return the number of late rows in a chain of windows with these idle timeouts.

    The rows come every ms for 100 ms, and then there is none for 100 ms.
    """
    clock, read = 1_000, 0
    with (
        mp.testing.KeyedOperatorHarness(
            _counts(), key="k", clock_ms=clock, idle_timeout=first
        ) as before,
        mp.testing.KeyedOperatorHarness(
            _counts(), key="k", clock_ms=clock, idle_timeout=second
        ) as behind,
    ):
        for clock in range(1_000, 2_000):
            before.advance_processing_time(clock)
            if clock // 100 % 2:
                before.process({"k": "a"}, clock)
                before.advance_watermark(clock - 1)
            results = list(before.output)[read:]
            read += len(results)
            if not results:
                behind.advance_processing_time(clock)
            for key, _, end, _ in results:
                behind.process({"k": key}, end - 1)
        return len(behind.output.side_output(LATE))


def test_a_shorter_timeout_behind_an_operator():
    """Rows that an idle operator yields are late only if the timeout behind it is shorter."""
    assert _lost_in_a_chain(40, 20)
    assert not _lost_in_a_chain(40, 40)
    assert not _lost_in_a_chain(20, 40)
