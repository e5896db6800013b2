"""Asynchronous functions: calls overlap, and state and output are as without overlap."""

import asyncio
import contextlib
import copy
import pickle
import threading
from datetime import timedelta

import attrs
import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.operator import async_operator

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
KEYS = ("a", "b", "c")


class PoisonError(Exception):
    """The error of a row or a call that is to fail."""


async def answer(ticks, result=None, error=None):
    """Return `result`, or raise `error`, after some steps of the event loop."""
    for _ in range(ticks):
        await asyncio.sleep(0)  # one step of the loop, without waiting
    if error is not None:
        raise error
    return result


# ---------------------------------------------------------------- generated programs

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-9, 9)),
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("walk"), st.integers(0, 4)),
        st.tuples(st.just("call"), st.integers(0, 4)),
        st.tuples(st.just("caught"), st.integers(0, 4)),
        st.tuples(st.just("timer"), st.integers(0, 12)),
        st.tuples(st.just("untimer"), st.integers(0, 12)),
        st.tuples(st.just("yield"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("badcall"), st.integers(0, 4)),
    ),
    max_size=6,
)
HARMLESS = STEPS.map(lambda steps: [each for each in steps if each[0] not in ("fail", "badcall")])


def rows(steps):
    row = st.tuples(st.sampled_from(KEYS), steps)
    return st.lists(row, max_size=12).map(
        lambda drawn: [{"k": k, "ms": at, "steps": each} for at, (k, each) in enumerate(drawn)]
    )


@attrs.define
class Model:
    """The state of one key in the reference."""

    total: int = 0
    seen: dict = attrs.field(factory=dict)
    timers: set = attrs.field(factory=set)


class Program(mp.KeyedAsyncFunction):
    """Runs the steps of each row; `on_timer` makes a call too."""

    def open(self, context):
        self.total = context.get_state(mp.ValueStateDescriptor("total", int, default=0))
        self.seen = context.get_map_state(mp.MapStateDescriptor("seen", int, int))

    def process_element(self, row, context):  # noqa: C901, PLR0912 - a case for each step
        timers = context.timer_service()
        for name, n in row.steps:
            if name == "add":
                self.total.update(self.total.value() + n)
            elif name == "put":
                self.seen[n] = self.total.value()
            elif name == "remove":
                self.seen.remove(n)
            elif name == "walk":
                for key, value in sorted(self.seen.items()):
                    got = yield answer(n, value + key)
                    self.seen[key] = got
            elif name == "call":
                got = yield answer(n, self.total.value() + 1)
                self.total.update(got)
            elif name == "caught":
                try:
                    yield answer(n, error=PoisonError("caught"))
                except PoisonError:
                    self.total.update(self.total.value() * 2)
            elif name == "timer":
                timers.register_event_time_timer(n)
            elif name == "untimer":
                timers.delete_event_time_timer(n)
            elif name == "yield":
                yield self.state(context)
            elif name == "fail":
                raise PoisonError("fail")
            else:
                yield answer(n, error=PoisonError("badcall"))
        yield self.state(context)

    def on_timer(self, timestamp, context):
        self.total.update(self.total.value() + 100)
        got = yield answer(timestamp % 4, timestamp)
        self.total.update(self.total.value() + got)
        context.timer_service().delete_event_time_timer(timestamp + 1)
        yield "timer", timestamp, self.state(context)

    def state(self, context):
        return context.current_key, self.total.value(), tuple(sorted(self.seen.items()))


def reference(given_rows, delay):  # noqa: C901, PLR0912 - a case for each step
    """Return the output and the keys of failed rows of a program that never overlaps rows."""
    models, out, failed = {key: Model() for key in KEYS}, [], []

    def shown(key):
        return key, models[key].total, tuple(sorted(models[key].seen.items()))

    def fire(limit):
        while True:
            due = sorted((t, k) for k, m in models.items() for t in m.timers if t <= limit)
            if not due:
                return
            when, key = due[0]
            models[key].timers.discard(when)
            models[key].total += 100 + when
            models[key].timers.discard(when + 1)
            out.append(("timer", when, shown(key)))

    for row in given_rows:
        key, before, made = row["k"], copy.deepcopy(models[row["k"]]), []
        model = models[key]
        for name, n in row["steps"]:
            if name == "add":
                model.total += n
            elif name == "put":
                model.seen[n] = model.total
            elif name == "remove":
                model.seen.pop(n, None)
            elif name == "walk":
                model.seen = {each: value + each for each, value in model.seen.items()}
            elif name == "call":
                model.total += 1
            elif name == "caught":
                model.total *= 2
            elif name == "timer":
                model.timers.add(n)
            elif name == "untimer":
                model.timers.discard(n)
            elif name == "yield":
                made.append(shown(key))
            else:
                models[key], made = before, None
                failed.append((key, row["ms"]))
                break
        if made is not None:
            out.extend([*made, shown(key)])
        if delay is not None:
            fire(row["ms"] - delay - 1)
    fire(1 << 62)
    return out, failed


def configured(function, **attributes):
    """Return an instance of a function class with these attributes."""
    made = function()
    vars(made).update(attributes)
    return made


SETTINGS = {
    "capacity": st.sampled_from([1, 2, 100]),
    "ordered": st.booleans(),
    "delay": st.sampled_from([None, 0, 3]),
}


def sorted_timers(out):
    """Return the output with timers of equal times in the order of their keys."""
    return [row for row in out if row[0] != "timer"], sorted(r for r in out if r[0] == "timer")


def check(found, expected, *, ordered):
    """Assert that two outputs are equal: rows in order if `ordered`, else in order for each key."""
    (found, timers), (expected, expected_timers) = map(sorted_timers, (found, expected))
    assert timers == expected_timers
    if ordered:
        assert found == expected
    for key in KEYS:
        assert [r for r in found if r[0] == key] == [r for r in expected if r[0] == key]
    assert len(found) == len(expected)


@BACKENDS
@settings(max_examples=40, deadline=None)
@given(drawn=rows(HARMLESS), **SETTINGS)
def test_programs(backend, drawn, capacity, ordered, delay):
    """State, timers and output of each key are those of a reference without overlap."""
    function = configured(Program, capacity=capacity, ordered=ordered)
    found = mp.local.run(
        function,
        drawn,
        key="k",
        key_type=str,
        backend=backend,
        event_time="ms",
        watermark_delay=delay,
    )
    check(found, reference(drawn, delay)[0], ordered=ordered)


@BACKENDS
@settings(max_examples=40, deadline=None)
@given(drawn=rows(STEPS), **SETTINGS)
def test_programs_with_dead_letters(backend, drawn, capacity, ordered, delay):
    """A failed row leaves no trace of its changes before and after its calls."""
    function = configured(Program, capacity=capacity, ordered=ordered)
    found = mp.local.run(
        function, drawn, key="k", key_type=str, backend=backend, event_time="ms",
        watermark_delay=delay, on_error="side_output",
    )  # fmt: skip
    expected, failed = reference(drawn, delay)
    check(found, expected, ordered=ordered)
    letters = [(each.key, each.row.ms) for each in found.side_output(mp.DEAD_LETTERS)]
    assert letters == failed if ordered else sorted(letters) == sorted(failed)


@settings(max_examples=25, deadline=None)
@given(drawn=rows(HARMLESS), cut=st.integers(0, 12), capacity=SETTINGS["capacity"])
def test_programs_with_a_restore(drawn, cut, capacity):
    """A snapshot contains complete rows; another backend and two subtasks continue from it."""
    function = configured(Program, capacity=capacity)
    given_rows = {"key": "k", "max_parallelism": 4}
    with mp.testing.KeyedOperatorHarness(function, **given_rows) as harness:
        for row in drawn[:cut]:
            harness.process(row, row["ms"])
        handle, found = harness.snapshot(), list(harness.output)
    for subtask in range(2):
        with mp.testing.KeyedOperatorHarness(
            configured(Program), **given_rows, backend="lmdb", subtask=subtask, parallelism=2,
            restore=[handle],
        ) as harness:  # fmt: skip
            for row in drawn[cut:]:
                group = mp.assign_to_key_group(row["k"], 4)
                if group in mp.key_group_range(4, 2, subtask):
                    harness.process(row, row["ms"])
            harness.advance_watermark(1 << 62)
            found += harness.output
    check(found, reference(drawn, None)[0], ordered=False)


# ---------------------------------------------------------------- overlap


class Together(mp.KeyedAsyncFunction):
    """Function whose calls end only if `expected` calls run at the same time."""

    def __init__(self, expected, **attributes):
        self.expected, self.running, self.most = expected, 0, 0
        vars(self).update(attributes)

    async def async_open(self):
        self.barrier = asyncio.Barrier(self.expected)

    def process_element(self, row, context):
        yield self.call()
        yield row.n

    async def call(self):
        self.running += 1
        self.most = max(self.most, self.running)
        await self.barrier.wait()
        self.running -= 1


def numbered(count, keys=1 << 30):
    return [{"k": n % keys, "n": n} for n in range(count)]


def test_calls_overlap():
    """`capacity` calls run at the same time, and no more."""
    function = Together(5, capacity=5)
    assert mp.local.run(function, numbered(20), key="k") == list(range(20))
    assert function.most == 5


def test_calls_of_a_key_do_not_overlap():
    """Rows of other keys overtake the rows that wait for their key, however many there are."""
    function = Together(2, capacity=2)
    many = [{"k": 0, "n": n} for n in range(50)] + [{"k": 1, "n": n} for n in range(50, 100)]
    assert mp.local.run(function, many, key="k") == list(range(100))
    assert function.most == 2


def test_without_keys_all_calls_overlap():
    """A function without keys may await several calls, and overrides process_element for it."""

    class Plain(mp.AsyncFunction):
        async def async_open(self):
            self.barrier = asyncio.Barrier(4)

        async def async_invoke(self, row):
            await self.barrier.wait()
            return [row.n]

        def process_element(self, row, context):
            yield "before"
            yield from super().process_element(row, context)

    found = mp.local.run(Plain(), numbered(4))
    assert found == ["before", 0, "before", 1, "before", 2, "before", 3]


@pytest.mark.parametrize("ordered", [True, False])
def test_order(ordered):
    """With `ordered` a quick row waits for the slow rows before it; without, it comes first."""

    class Reversed(mp.AsyncFunction):
        async def async_invoke(self, row):
            return await answer(30 - 3 * row.n, [row.n])

    found = mp.local.run(configured(Reversed, ordered=ordered), numbered(9))
    assert found == sorted(found, reverse=not ordered)
    assert len(found) == 9


def test_results_that_are_no_generator():
    """process_element may return None or a list; calls in a list are awaited."""
    done = []

    async def record(n):
        done.append(n)

    class Listed(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            return None if row.n == 1 else [row.n, record(row.n), -row.n]

    assert mp.local.run(Listed(), numbered(3), key="k") == [0, 0, 2, -2]
    assert done == [0, 2]


@pytest.mark.parametrize("keys", [1, 1 << 30])
def test_few_rows_are_held(monkeypatch, keys):
    """The input is read only as fast as rows are finished, also if all rows have one key."""
    monkeypatch.setattr(async_operator, "_HELD_ROWS", 7)
    finished, most = [], []

    class Counted(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            yield answer(3)
            finished.append(row.n)

    def source():
        for n in range(40):
            most.append(n - len(finished))
            yield {"k": n % keys, "n": n}

    assert mp.local.run(Counted(), source(), key="k") == []
    assert max(most) == 7


def test_a_call_keeps_its_own_context():
    """Coroutines see key and time of their row, though other rows were processed meanwhile."""

    class Late(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            yield (yield self.call(context))

        async def call(self, context):
            await answer(5)
            return context.current_key, context.timestamp

    found = mp.local.run(Late(), numbered(6), key="k", event_time="n")
    assert found == [(n, n) for n in range(6)]


# ---------------------------------------------------------------- timers and the watermark


def test_timers_overlap_and_delete_each_other():
    """Due timers of several keys overlap; a timer that an earlier one deletes does not fire."""

    class Timed(Together):
        def process_element(self, row, context):
            for at in (5, 6, 7):
                context.timer_service().register_event_time_timer(at)

        def on_timer(self, timestamp, context):
            yield self.call()
            context.timer_service().delete_event_time_timer(6)
            yield context.current_key, timestamp, context.time_domain

    function = Timed(3)
    found = mp.local.run(function, numbered(3), key="k")
    domain = mp.TimeDomain.EVENT_TIME
    assert sorted(found, key=lambda row: row[:2]) == [
        (k, at, domain) for k in range(3) for at in (5, 7)
    ]
    assert [row[1] for row in found] == [5, 5, 5, 7, 7, 7]
    assert function.most == 3


def test_processing_time_timers_wait_for_rows():
    """A timer that is due fires after the open calls of earlier rows."""
    clock = mp.ManualClock(0)

    class Timed(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            context.timer_service().register_processing_time_timer(1)
            yield answer(3)
            clock.advance(1)
            yield "row", row.n

        def on_timer(self, timestamp, context):
            yield "timer", context.current_key

    found = mp.local.run(configured(Timed, capacity=2), numbered(4), key="k", clock=clock)
    assert sorted(found) == sorted(
        [("row", n) for n in range(4)] + [("timer", n) for n in range(4)]
    )
    assert all(found.index(("row", n)) < found.index(("timer", n)) for n in range(4))


@pytest.mark.parametrize("by_event", [True, False])
def test_a_timer_sets_a_due_timer_after_its_last_call(by_event):
    """A due timer that another one sets after its call fires too, also if none are left."""

    class Chain(mp.KeyedAsyncFunction):
        def set(self, context, timestamp):
            timers = context.timer_service()
            if by_event:
                timers.register_event_time_timer(timestamp)
            else:
                timers.register_processing_time_timer(timestamp)

        def process_element(self, row, context):
            self.set(context, 5)
            yield answer(1)

        def on_timer(self, timestamp, context):
            yield answer(1)
            yield timestamp
            if timestamp < 8:
                self.set(context, timestamp + 1)
            self.set(context, 12)

    with mp.testing.KeyedOperatorHarness(Chain(), key="k", key_type=int) as harness:
        harness.process({"k": 1})
        if by_event:
            harness.advance_watermark(10)
        else:
            harness.advance_processing_time(11)
        assert harness.output == [5, 6, 7, 8]


def test_event_time_ttl_of_overlapping_timers():
    """Later timers of other keys do not make entries of a key expire."""
    soon = mp.StateTtlConfig(timedelta(milliseconds=20), time=mp.TtlTime.EVENT_TIME)

    class Expiring(mp.KeyedAsyncFunction):
        def open(self, context):
            value = mp.ValueStateDescriptor("value", int).enable_time_to_live(soon)
            self.value = context.get_state(value)

        def process_element(self, row, context):
            self.value.update(row.n)
            context.timer_service().register_event_time_timer(5 if row.n == 0 else 100)

        def on_timer(self, timestamp, context):
            yield answer(3)
            if timestamp == 5:
                context.timer_service().register_event_time_timer(10)
            yield timestamp, self.value.value()

    with mp.testing.KeyedOperatorHarness(Expiring(), key="k", key_type=int) as harness:
        for row in numbered(2):
            harness.process(row, timestamp=0)
        harness.advance_watermark(200)
        assert harness.output == [(5, 0), (10, 0), (100, None)]


def test_a_row_deletes_a_due_timer_after_its_call():
    """A due timer does not fire if a row, whose call still runs, deletes it or sets it again."""
    clock = mp.ManualClock(0)

    class Deleting(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            timers = context.timer_service()
            timers.register_processing_time_timer(1)
            if row.n == 2:
                clock.advance(10)
            yield answer(3)
            if context.current_key:
                timers.delete_processing_time_timer(1)
            else:
                timers.register_processing_time_timer(1)
            yield "row", row.n

        def on_timer(self, timestamp, context):
            yield "timer", context.current_key

    found = mp.local.run(Deleting(), numbered(4), key="k", clock=clock)
    assert sorted(found) == [*(("row", n) for n in range(4)), ("timer", 0)]


def test_the_watermark_does_not_overtake_rows():
    """After its call a row sees the watermark that was current when it came."""

    class Marks(mp.KeyedAsyncFunction):
        def process_element(self, row, context):
            before = context.timer_service().current_watermark()
            yield answer(9)
            yield before, context.timer_service().current_watermark()

    found = mp.local.run(Marks(), numbered(5), key="k", event_time="n", watermark_delay=0)
    assert all(before == after for before, after in found)


# ---------------------------------------------------------------- errors


class Fragile(mp.KeyedAsyncFunction):
    """Function whose call raises `error` for the row 1, and never ends for row 2."""

    def __init__(self, error, **attributes):
        self.error, self.cancelled, self.unwound = error, [], []
        vars(self).update(attributes)

    def open(self, context):
        self.count = context.get_state(mp.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row, context):
        self.count.update(self.count.value() + 1)
        try:
            yield self.call(row.n)
        finally:
            self.unwound.append(row.n)
        yield row.n, self.count.value()

    async def call(self, n):
        if n == 1:
            await answer(2, error=self.error)
        if n == 2:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.append(n)

    async def async_close(self):
        self.closed = True


def test_a_failed_call_fails_the_job():
    """The error names operator, key, row and line; other calls are cancelled, rows unwound."""
    function = Fragile(PoisonError("no answer"))
    with pytest.raises(errors.UserFunctionError) as failure:
        mp.local.run(function, numbered(4), key="k", uid="fragile")
    error = failure.value
    assert (error.operator_uid, error.key, error.method) == (
        "fragile",
        "1",
        "Fragile.process_element",
    )
    assert error.reason == "PoisonError: no answer"
    assert "n=1" in error.row
    assert error.file == __file__
    assert isinstance(error.__cause__, PoisonError)
    assert function.cancelled == [2]
    assert 2 in function.unwound
    assert function.closed


def test_the_error_of_a_call_has_no_other_context():
    """The traceback of a dead letter shows the exception of the call only."""

    class Failing(mp.AsyncFunction):
        async def async_invoke(self, row):
            raise PoisonError("no")

    found = mp.local.run(Failing(), numbered(1), on_error="side_output")
    (letter,) = found.side_output(mp.DEAD_LETTERS)
    assert "RuntimeError" not in letter.traceback
    assert letter.traceback.rstrip().endswith("PoisonError: no")


def test_a_timeout_fails_the_job():
    """A call that takes too long is cancelled, and the error names the timeout."""
    function = Fragile(None, timeout=timedelta(milliseconds=1))
    match = r"key 2, row .*n=2.*CallTimeoutError: the call took longer than 0.001 s"
    with pytest.raises(errors.UserFunctionError, match=match):
        mp.local.run(function, numbered(4), key="k")
    assert function.cancelled == [2]


@BACKENDS
def test_dead_letters(backend):
    """Rows whose call fails or takes too long are dead letters, and other rows are finished."""
    function = Fragile(PoisonError("no answer"), timeout=timedelta(milliseconds=1))
    found = mp.local.run(function, numbered(8, 4), key="k", backend=backend, on_error="side_output")
    # Row 6 has the key of row 2, whose change of the state was undone.
    assert found == [(0, 1), (3, 1), (4, 2), (5, 1), (6, 1), (7, 2)]
    letters = found.side_output(mp.DEAD_LETTERS)
    assert [letter.row.n for letter in letters] == [1, 2]
    assert [letter.error.partition(":")[0] for letter in letters] == [
        "PoisonError",
        "CallTimeoutError",
    ]
    assert __file__ in letters[0].traceback


def test_retries():
    """A loop around the `yield` repeats a call, with a pause in between."""

    class Retrying(mp.AsyncFunction):
        attempts = 0

        async def async_invoke(self, row):
            self.attempts += 1
            return await answer(1, [row.n], PoisonError() if self.attempts < 3 else None)

        def process_element(self, row, context):
            rows = None
            while rows is None:
                try:
                    rows = yield self.async_invoke(row)
                except PoisonError:
                    yield asyncio.sleep(0)  # the pause; it does not wait in this test
            yield rows

    assert mp.local.run(Retrying(), numbered(1)) == [[0]]


def test_the_timeout_begins_with_the_call(monkeypatch):
    """Slow code of other rows before a call begins does not count."""
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: Slow.now)

    class Slow(mp.KeyedAsyncFunction):
        now = 0
        timeout = timedelta(seconds=3)

        def process_element(self, row, context):
            Slow.now += 2
            yield answer(3)
            yield row.n

    assert mp.local.run(Slow(), numbered(4), key="k") == [0, 1, 2, 3]


def test_dead_letters_refuse_changes_of_other_state():
    """Changes that could not be undone without harm to other rows are refused."""

    class Reaching(mp.KeyedAsyncFunction):
        def open(self, context):
            self.total = context.get_state(mp.ValueStateDescriptor("total", int))

        def process_element(self, row, context):
            self.total.at(5).update(1)
            yield row.n

    class Limited(mp.AsyncFunction, mp.CheckpointedFunction):
        def initialize_state(self, context):
            limits = mp.MapStateDescriptor("limits", int, int)
            self.limits = context.operator_state_store.get_broadcast_state(limits)

        def snapshot_state(self, context):
            pass

        async def async_invoke(self, row):
            return [row.n]

        def process_element(self, row, context):
            self.limits[row.n] = 1
            yield from super().process_element(row, context)

    assert mp.local.run(Reaching(), numbered(3), key="k") == [0, 1, 2]
    with pytest.raises(errors.ConfigError, match="keyed state of its row's key"):
        mp.local.run(Reaching(), numbered(3), key="k", on_error="side_output")
    assert mp.local.run(Limited(), numbered(3)) == [0, 1, 2]
    with pytest.raises(errors.ConfigError, match="on_error"):
        mp.local.run(Limited(), numbered(3), on_error="side_output")


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()])
def test_a_call_that_exits_or_is_cancelled(error):
    """sys.exit() in a call is an error of the row; a call that cancels itself too."""
    function = Fragile(error, timeout=timedelta(seconds=5))
    with pytest.raises(errors.UserFunctionError, match="SystemExit|the call was cancelled"):
        mp.local.run(function, numbered(2), key="k")


def test_an_interrupt_passes():
    """A KeyboardInterrupt in a call ends the run unchanged, and the function is closed."""
    function = Fragile(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        mp.local.run(function, numbered(2), key="k")
    assert function.closed


@pytest.mark.parametrize("name", ["state", "timer", "operator state"])
@pytest.mark.parametrize("on_error", ["fail", "side_output"])
def test_coroutines_cannot_use_state(name, on_error):
    """State and timers in a coroutine are refused, because another key may be current."""
    limits = mp.MapStateDescriptor("limits", str, int)

    class Reaching(mp.KeyedAsyncFunction, mp.CheckpointedFunction):
        def initialize_state(self, context):
            self.limits = context.operator_state_store.get_broadcast_state(limits)

        def snapshot_state(self, context):
            pass

        def open(self, context):
            self.total = context.get_state(mp.ValueStateDescriptor("total", int))

        def process_element(self, row, context):
            yield self.call(context)

        async def call(self, context):
            if name == "state":
                self.total.value()
            elif name == "timer":
                context.timer_service().register_event_time_timer(1)
            else:
                self.limits.put("a", 1)

    with pytest.raises(
        errors.UserFunctionError, match=r"StateInCallError: A coroutine.*before or after"
    ):
        mp.local.run(Reaching(), numbered(2), key="k", on_error=on_error)


def test_an_async_method_is_refused():
    """process_element is synchronous: the error says how to write it."""

    class Wrong(mp.KeyedAsyncFunction):
        async def process_element(self, row, context):
            return [row]

    with pytest.raises(errors.UserFunctionError, match="define the method without async"):
        mp.local.run(Wrong(), numbered(1), key="k")


def test_a_wrong_result_names_async_invoke():
    """async_invoke must return a list of rows, not one row."""

    class Wrong(mp.AsyncFunction):
        async def async_invoke(self, row):
            return "text"

    with pytest.raises(errors.UserFunctionError, match=r"yield each row.*Wrong.async_invoke"):
        mp.local.run(Wrong(), numbered(1))


def test_async_invoke_must_be_a_coroutine_function():
    """async_invoke must be neither an asynchronous generator nor without async."""

    class Generator(mp.AsyncFunction):
        async def async_invoke(self, row):
            yield row.n

    class Synchronous(mp.AsyncFunction):
        def async_invoke(self, row):
            return [row.n]

    for kind in (Generator, Synchronous):
        with pytest.raises(errors.UserFunctionError, match=r"async def.*from .*async_invoke"):
            mp.local.run(kind(), numbered(1))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("capacity", 0), ("capacity", True), ("capacity", "5"), ("timeout", 5), ("ordered", None),
     ("timeout", timedelta(0)), ("timeout", timedelta(seconds=-1))],
)  # fmt: skip
def test_wrong_settings(attribute, value):
    """Wrong settings are refused when the class is defined, or when an instance is used."""
    kinds = (errors.ArgumentTypeError, errors.ArgumentValueError)
    with pytest.raises(kinds, match=rf"Wrong.{attribute}: expected"):
        type("Wrong", (Together,), {attribute: value})
    with pytest.raises(kinds, match=rf"Together.{attribute}: expected"):
        mp.local.run(Together(1, **{attribute: value}), numbered(1), key="k")


def test_settings_in_fields_and_properties():
    """Fields of attrs and properties can be settings; their values are checked in instances."""

    @attrs.define
    class Fields(mp.AsyncFunction):
        capacity: int = 7
        timeout: timedelta = attrs.field(factory=lambda: timedelta(seconds=9))

        async def async_invoke(self, row):
            return [(self.capacity, self.timeout.seconds)]

    class Properties(Together):
        @property
        def ordered(self):
            return 5

    assert mp.local.run(Fields(capacity=2), numbered(1)) == [(2, 9)]
    with pytest.raises(errors.ArgumentValueError, match=r"Fields.capacity: expected"):
        mp.local.run(Fields(capacity=0), numbered(1))
    with pytest.raises(errors.ArgumentTypeError, match=r"Properties.ordered: expected"):
        mp.local.run(Properties(1), numbered(1), key="k")


def test_the_errors_travel():
    """The errors can be pickled, and a CallTimeoutError is a TimeoutError."""
    error = pickle.loads(pickle.dumps(errors.CallTimeoutError(2.5)))
    assert isinstance(error, TimeoutError)
    assert "longer than 2.5 s" in str(error)
    assert "'limits'" in str(pickle.loads(pickle.dumps(errors.StateInCallError("limits"))))


# ---------------------------------------------------------------- life


class Threaded(mp.AsyncFunction):
    """Function that calls a blocking function in a thread, and leaves a task behind."""

    async def async_invoke(self, row):
        self.left = asyncio.create_task(asyncio.Event().wait())
        return [await asyncio.to_thread(threading.current_thread().name.format)]


def test_nothing_is_left_behind():
    """After the run there are no threads and no tasks of it; a process runs many such runs."""
    before = threading.enumerate()
    for _ in range(5):
        function = Threaded()
        assert len(mp.local.run(function, numbered(8))) == 8
        assert function.left.cancelled()
        assert threading.enumerate() == before


def test_within_a_running_event_loop():
    """A run works in a coroutine or a notebook, whose thread runs another event loop."""

    async def main():
        found = mp.local.run(Together(2, capacity=2), numbered(6), key="k")
        with contextlib.suppress(errors.UserFunctionError):
            mp.local.run(Fragile(PoisonError()), numbered(4), key="k")
        await asyncio.sleep(0)  # one step of the outer loop, which must still run
        return found

    before = threading.enumerate()
    assert asyncio.run(main()) == list(range(6))
    assert threading.enumerate() == before


def test_a_failed_open_closes_the_loop():
    """If open or async_open fails, the function is closed, and no event loop remains."""

    class Failing(Together):
        closed = 0

        def open(self, context):
            if self.expected == 1:
                raise PoisonError("open")

        async def async_open(self):
            raise PoisonError("async_open")

        async def async_close(self):
            Failing.closed += 1

    for expected, method in ((1, "open"), (2, "async_open")):
        with pytest.raises(errors.UserFunctionError, match=rf"Failing.{method} failed"):
            mp.local.run(Failing(expected), numbered(1), key="k")
    assert Failing.closed == 1


def test_a_failed_close():
    """An exception of async_close fails the run, and close is still called."""
    closed = []

    class Failing(Together):
        async def async_close(self):
            raise PoisonError("async_close")

        def close(self):
            closed.append(True)

    with pytest.raises(errors.UserFunctionError, match=r"Failing.async_close failed"):
        mp.local.run(Failing(1), numbered(1), key="k")
    assert closed == [True]


def test_the_harness_waits_for_calls():
    """Each `process` of the harness returns when the row is finished."""
    with mp.testing.KeyedOperatorHarness(Together(1), key="k", key_type=int) as harness:
        for row in numbered(3):
            harness.process(row)
            assert harness.output[-1] == row["n"]
