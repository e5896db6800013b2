"""TTL by event time and per write: functions in the harness and in local runs, against a reference."""

import random
from datetime import timedelta
from operator import add

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millpond import errors

BACKENDS = ["heap", "rocksdb", "lmdb"]
KEYS = ("a", "b")
OWN = (1, 40, 250)


def ms(number):
    """Return a time to live, or None."""
    return None if number is None else timedelta(milliseconds=number)


def settings(ttl_ms, by_event, renews):
    """Return the TTL configuration of a program's states."""
    return mp.StateTtlConfig(
        ms(ttl_ms),
        mp.UpdateType.ON_READ_AND_WRITE if renews else mp.UpdateType.ON_CREATE_AND_WRITE,
        time=mp.TtlTime.EVENT_TIME if by_event else mp.TtlTime.PROCESSING_TIME,
    )


class Program(mp.KeyedProcessFunction):
    """Writes what each row demands, and yields the whole state of the key with each row and timer."""

    def __init__(self, ttl):
        self.ttl = ttl

    def open(self, context):
        made = [
            mp.ValueStateDescriptor("value", int),
            mp.ListStateDescriptor("list", int),
            mp.MapStateDescriptor("map", str, int),
            mp.SortedMapStateDescriptor("sorted", str, int),
            mp.ReducingStateDescriptor("sum", add, int),
        ]
        for each in made if self.ttl else ():
            each.enable_time_to_live(self.ttl)
        self.value = context.get_state(made[0])
        self.list = context.get_list_state(made[1])
        self.maps = context.get_map_state(made[2]), context.get_sorted_map_state(made[3])
        self.sum = context.get_reducing_state(made[4])

    def process_element(self, row, context):
        own = {} if row.own is None or self.ttl is None else {"ttl": ms(row.own)}
        if row.what == "value":
            self.value.update(row.number, **own)
        elif row.what == "list":
            self.list.add_all([row.number, -row.number], **own)
        elif row.what == "map":
            for each in self.maps:
                each.put(str(row.number % 3), row.number, **own)
        elif row.what == "sum":
            self.sum.add(row.number)
        elif row.what == "timer":
            context.timer_service().register_event_time_timer(row.number)
        elif row.what == "clock timer":
            context.timer_service().register_processing_time_timer(row.number)
        yield self.seen(context)

    def on_timer(self, timestamp, context):
        self.value.update(timestamp)
        yield self.seen(context)

    def seen(self, context):
        entries = [dict(sorted(each.items())) for each in self.maps]
        assert entries[0] == entries[1]
        return context.current_key, self.value.value(), self.list.get(), entries[0], self.sum.get()


class Reference:
    """The rules of event time and of own times to live, for one key at a time, in plain Python.

    An entry is a list of a number, its time, and its own time of expiry or None.
    """

    def __init__(self):
        self.ttl = None
        self.now = None  # the watermark, or the time of a timer; None before the first watermark
        self.clock = 0
        self.held = {key: {"value": [], "list": [], "map": {}, "sum": []} for key in KEYS}
        self.timers, self.clock_timers = set(), set()
        self.output = []

    def configure(self, ttl_ms, by_event, renews):
        """Apply the settings of a start; entries without times get that of the start."""
        before, self.ttl = self.ttl, (ttl_ms, by_event, renews) if ttl_ms else None
        if before is None or not before[1]:
            self.now = None  # only states that expire by it keep the watermark
        for key in KEYS:
            if before and not self.ttl:
                self._drop_expired(key, before)
            for entry in self.entries(key):
                if self.ttl and not before:
                    entry[1:] = [self.stamp(None), None]

    def entries(self, key):
        held = self.held[key]
        return [*held["value"], *held["list"], *held["map"].values(), *held["sum"]]

    def stamp(self, row_time):
        """Return the time of an entry that is written now."""
        if self.ttl and not self.ttl[1]:
            return self.clock
        known = [time for time in (self.now, row_time) if time is not None]
        return max(known, default=self.clock)

    def live(self, entry, ttl):
        ttl_ms, by_event, _ = ttl
        now = self.now if by_event else self.clock
        end = entry[1] + ttl_ms if entry[2] is None else entry[2]
        return now is None or end > now

    def _drop_expired(self, key, ttl):
        held = self.held[key]
        for kind in ("value", "list", "sum"):
            held[kind] = [each for each in held[kind] if self.live(each, ttl)]
        held["map"] = {k: each for k, each in held["map"].items() if self.live(each, ttl)}

    def see(self, key, row_time):
        """Record a key's contents as a function sees them."""
        if self.ttl:
            self._drop_expired(key, self.ttl)
            for entry in self.entries(key) if self.ttl[2] else ():
                if entry[2] is None:
                    entry[1] = max(entry[1], self.stamp(row_time))
        held = self.held[key]
        value = held["value"][0][0] if held["value"] else None
        total = held["sum"][0][0] if held["sum"] else None
        entries = {k: held["map"][k][0] for k in sorted(held["map"])}
        self.output.append((key, value, [each[0] for each in held["list"]], entries, total))

    def row(self, row, row_time):
        key, number, held = row["key"], row["number"], self.held[row["key"]]
        stamp = self.stamp(row_time)
        own = None if row["own"] is None or not self.ttl else stamp + row["own"]
        if row["what"] == "value":
            held["value"] = [[number, stamp, own]]
        elif row["what"] == "list":
            held["list"] += [[number, stamp, own], [-number, stamp, own]]
        elif row["what"] == "map":
            held["map"][str(number % 3)] = [number, stamp, own]
        elif row["what"] == "sum":
            before = [each for each in held["sum"] if not self.ttl or self.live(each, self.ttl)]
            if self.ttl and self.ttl[1]:
                stamp = max([stamp, *(each[1] for each in before)])
            held["sum"] = [[number + sum(each[0] for each in before), stamp, None]]
        elif row["what"] == "timer":
            self.timers.add((number, key))
        elif row["what"] == "clock timer":
            self.clock_timers.add((number, key))
        self.see(key, row_time)

    def fire(self, at, key, row_time):
        self.held[key]["value"] = [[at, self.stamp(row_time), None]]
        self.see(key, row_time)

    def advance(self, watermark, timers_from):
        """Raise the watermark. Timers see the state at their own time."""
        if timers_from is not None and watermark <= timers_from:
            return timers_from
        for at, key in sorted(each for each in self.timers if each[0] <= watermark):
            self.timers.discard((at, key))
            self.now = at if self.now is None else max(self.now, at)
            self.fire(at, key, at)
        self.now = watermark if self.now is None else max(self.now, watermark)
        return watermark

    def tick(self, clock):
        self.clock = clock
        for at, key in sorted(each for each in self.clock_timers if each[0] < clock):
            self.clock_timers.discard((at, key))
            self.fire(at, key, None)


def draw_row(rng, top):
    """Return a random row, and its event time or None."""
    what = rng.choice(
        ("value", "list", "map", "map", "sum", "timer", "clock timer", "read", "read")
    )
    number = rng.randrange(top - 100, top + 300) if "timer" in what else rng.randrange(1, 100)
    key = rng.choice(KEYS)
    if "timer" in what:  # the order of timers of one time is not defined
        number += KEYS.index(key) - number % 2
    row = {
        "key": key,
        "what": what,
        "number": number,
        "own": rng.choice((None, None, *OWN)),
    }
    return row, rng.choice((None, rng.randrange(top - 150, top + 150), top))


@pytest.mark.parametrize("seed", range(60))
def test_programs_follow_the_reference(seed):
    """Rows, timers, restores on other backends and with other settings follow the reference."""
    rng, model = random.Random(seed), Reference()
    top, timers_from, handle = 1000, None, None
    for _ in range(rng.choice((1, 2, 4))):
        ttl_ms = rng.choice((None, 100, 100, 300))
        how = ttl_ms, rng.random() < 0.8, rng.random() < 0.3
        model.configure(*how)
        seen = len(model.output)
        with mp.testing.KeyedOperatorHarness(
            Program(settings(*how) if ttl_ms else None),
            key="key",
            backend=rng.choice(BACKENDS),
            restore=handle,
            clock_ms=model.clock,
            config=mp.Config({"state.snapshot.strategy": rng.choice(("full", "changelog"))}),
        ) as harness:
            timers_from = None  # the watermark of timers begins again
            for _ in range(25):
                step = rng.random()
                top += rng.choice((0, 5, 60))
                if step < 0.65:
                    row, time = draw_row(rng, top)
                    harness.process(row, time)
                    model.row(row, time)
                elif step < 0.85:
                    watermark = top - rng.choice((0, 100))
                    harness.advance_watermark(watermark)
                    timers_from = model.advance(watermark, timers_from)
                elif step < 0.95:
                    clock = model.clock + rng.choice((1, 50, 150))
                    harness.advance_processing_time(clock)
                    model.tick(clock)
                else:
                    harness.snapshot()
                assert harness.output == model.output[seen:]
            # Whether an expired entry that is never read comes back with a longer TTL, is not defined.
            for key in KEYS:
                row = {"key": key, "what": "read", "number": 0, "own": None}
                harness.process(row)
                model.row(row, None)
            assert harness.output == model.output[seen:]
            handle = harness.snapshot()


class Recent(mp.KeyedProcessFunction):
    """Remembers each row for 100 ms of event time, and yields the remembered rows."""

    def open(self, context):
        recent = mp.ListStateDescriptor("recent", int).enable_time_to_live(
            settings(100, True, False)
        )
        self.recent = context.get_list_state(recent)

    def process_element(self, row, context):
        self.recent.add(row.ms)
        yield self.recent.get()

    def on_timer(self, timestamp, context):
        yield self.recent.get()


ROWS = [{"k": "a", "ms": at} for at in (0, 90, 100, 150, 260, 200)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_local_run_expires_by_the_watermark(backend):
    """In a local run the watermark of the rows decides, and not the time of the run."""
    found = mp.local.run(
        Recent(), ROWS, key="k", event_time="ms", watermark_delay=0, backend=backend
    )
    assert found == [
        [0],
        [0, 90],
        [0, 90, 100],
        [0, 90, 100, 150],
        [90, 100, 150, 260],
        [260, 200],
    ]


def test_a_row_finds_older_entries_until_the_watermark_has_passed():
    """The watermark before the row decides, and not the event time of the row."""
    rows = [{"k": "a", "ms": at} for at in (0, 500, 501)]
    found = mp.local.run(Recent(), rows, key="k", event_time="ms", watermark_delay=0)
    assert found == [[0], [0, 500], [500, 501]]


def test_without_a_watermark_nothing_expires():
    """Without a watermark rows find everything; a timer finds the state at its own time."""

    class Kept(Recent):
        def process_element(self, row, context):
            context.timer_service().register_event_time_timer(10**12)
            yield from super().process_element(row, context)

    found = mp.local.run(Kept(), ROWS[:2], key="k", event_time="ms")
    assert found == [[0], [0, 90], []]
    found = mp.local.run(Recent(), ROWS, key="k", event_time="ms")
    assert found[-1] == [0, 90, 100, 150, 260, 200]


class ByFrame(mp.VectorizedProcessFunction):
    """Counts the rows of each key in frames, with TTL by event time."""

    def open(self, context):
        count = mp.ValueStateDescriptor("count", int).enable_time_to_live(
            settings(100, True, False)
        )
        self.count = context.get_state(count)

    def process_batch(self, rows, context):
        keys = context.keys
        before = self.count.get_many(keys)
        self.count.update_many(keys, [1 + (n or 0) for n in before.to_pylist()])
        return pa.table({"count": before})


def test_frames_write_at_their_latest_event_time():
    """A vectorized function writes entries with the latest event time of the frame."""
    with mp.testing.KeyedOperatorHarness(ByFrame(), key="k") as harness:
        harness.process_batch([{"k": "a"}, {"k": "b"}], [0, 50])
        harness.advance_watermark(149)
        harness.process_batch([{"k": "a"}], [10])
        harness.advance_watermark(150)
        harness.process_batch([{"k": "a"}, {"k": "b"}], [10, 20])
        assert [row["count"] for row in harness.output] == [None, None, 1, 2, None]


class Rules(mp.KeyedBroadcastProcessFunction):
    """Broadcast rows write an entry of each known key."""

    def open(self, context):
        self.descriptor = mp.ValueStateDescriptor("v", int)
        self.descriptor.enable_time_to_live(settings(100, True, False))
        self.state = context.get_state(self.descriptor)

    def process_element(self, row, context):
        if self.state.value() is None:
            self.state.update(0)
        yield self.state.value()

    def process_broadcast_element(self, row, context):
        context.apply_to_keyed_state(self.descriptor, lambda key, state: state.update(row.value))


def test_broadcast_rows_write_at_their_own_event_time():
    """An entry that a broadcast row writes has the event time of this row."""
    with mp.testing.KeyedOperatorHarness(Rules(), key="k") as harness:
        harness.process({"k": "a"}, 0)
        harness.process_broadcast({"value": 7}, 40)
        harness.process({"k": "b"}, 10)
        harness.advance_watermark(139)
        harness.process({"k": "a"}, 10)
        harness.advance_watermark(140)
        harness.process({"k": "a"}, 10)
        assert harness.output == [0, 0, 7, 0]


def test_a_failed_row_leaves_no_own_ttl():
    """A dead letter restores the earlier entry with its own time to live."""

    class Failing(mp.KeyedProcessFunction):
        def open(self, context):
            value = mp.ValueStateDescriptor("v", int).enable_time_to_live(
                settings(100, True, False)
            )
            self.value = context.get_state(value)

        def process_element(self, row, context):
            yield self.value.value()
            if row.own:
                self.value.update(row.own, ttl=ms(row.own))
            if row.fails:
                raise ValueError(row)

    with mp.testing.KeyedOperatorHarness(Failing(), key="k", on_error="side_output") as harness:
        harness.process({"k": "a", "own": 5, "fails": False}, 0)
        harness.process({"k": "a", "own": 500, "fails": True}, 0)
        harness.advance_watermark(4)
        harness.process({"k": "a", "own": 0, "fails": False}, 0)
        harness.advance_watermark(5)
        harness.process({"k": "a", "own": 0, "fails": False}, 0)
        assert harness.output == [None, 5, None]


def states(ttl=None):
    """Return a value, a list and a map state of a backend by hand."""
    backend = mp.open_keyed_backend("heap", key_type=str)
    made = [
        mp.ValueStateDescriptor("v", int),
        mp.ListStateDescriptor("l", int),
        mp.MapStateDescriptor("m", str, int),
    ]
    for each in made if ttl else ():
        each.enable_time_to_live(ttl)
    backend.set_current_key("a")
    return [backend.get_partitioned_state(each) for each in made]


WRITES = [
    lambda states, ttl: states[0].update(1, ttl=ttl),
    lambda states, ttl: states[1].add(1, ttl=ttl),
    lambda states, ttl: states[1].add_all([1], ttl=ttl),
    lambda states, ttl: states[1].update([1], ttl=ttl),
    lambda states, ttl: states[2].put("a", 1, ttl=ttl),
    lambda states, ttl: states[2].put_all({"a": 1}, ttl=ttl),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("disabled", [False, True])
def test_a_state_without_ttl_refuses_one(write, disabled):
    """A write with `ttl` to a state without TTL changes nothing, and the error says what to do."""
    update_type = mp.UpdateType.DISABLED
    made = states(mp.StateTtlConfig(ms(9), update_type=update_type)) if disabled else states()
    cure = "call enable_time_to_live on its descriptor, with another update type than DISABLED"
    with pytest.raises(errors.ConfigError, match=cure):
        write(made, ms(5))
    write(made, None)
    assert made[0].value() or made[1].get() or dict(made[2])


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("ttl", [5, timedelta(0), timedelta(microseconds=1500), -ms(1), "1 h"])
def test_a_wrong_own_ttl_changes_nothing(write, ttl):
    """An own TTL is a timedelta of at least one whole millisecond."""
    made = states(settings(100, False, False))
    with pytest.raises(errors.ConfigError, match="ttl"):
        write(made, ttl)
    assert made[0].value() is None
    assert made[1].get() == []
    assert made[2].is_empty()


def test_operator_state_has_no_own_ttl():
    """Operator state has no TTL, so its writes refuse one."""
    with mp.open_operator_backend() as backend:
        items = backend.get_list_state(mp.ListStateDescriptor("l", int))
        rules = backend.get_broadcast_state(mp.MapStateDescriptor("m", str, int))
        for call in (
            lambda: items.add(1, ttl=ms(5)),
            lambda: items.add_all([1], ttl=ms(5)),
            lambda: items.update([1], ttl=ms(5)),
            lambda: rules.put("a", 1, ttl=ms(5)),
            lambda: rules.put_all({"a": 1}, ttl=ms(5)),
        ):
            with pytest.raises(errors.UnsupportedCapabilityError):
                call()
        assert items.get() == []
        assert dict(rules.items()) == {}


def test_an_endless_ttl_with_short_entries():
    """In a state whose TTL is endless, only entries with their own TTL expire."""
    clock = mp.ManualClock(10**12)
    endless = mp.StateTtlConfig(timedelta.max)
    with mp.open_keyed_backend("heap", key_type=str, clock=clock) as backend:
        backend.set_current_key("a")
        descriptor = mp.MapStateDescriptor("m", str, int).enable_time_to_live(endless)
        state = backend.get_partitioned_state(descriptor)
        state["kept"] = 1
        state.put("short", 2, ttl=ms(5))
        state.put("endless", 3, ttl=timedelta.max)
        backend.flush()
        clock.advance(5)
        backend.flush()
        assert backend.num_state_entries() == 2
        assert set(state) == {"kept", "endless"}


def test_a_savepoint_shows_the_times(tmp_path):
    """The column `ttl_timestamp` has the event time of an entry, or the own expiry minus 2**62."""
    with mp.testing.KeyedOperatorHarness(Recent(), key="k") as harness:
        harness.process({"k": "a", "ms": 7}, 7)
        harness._operator._function.recent.add(8, ttl=ms(30))
        harness.savepoint(tmp_path / "saved")
    (file,) = (tmp_path / "saved").rglob("*.parquet")
    assert pq.read_table(file).column("ttl_timestamp").to_pylist() == [[7, 7 + 30 - 2**62]]
    with mp.testing.KeyedOperatorHarness(Recent(), key="k", restore=tmp_path / "saved") as again:
        again.advance_watermark(36)
        again.process({"k": "a", "ms": 9}, 9)
        again.advance_watermark(37)
        again.process({"k": "a", "ms": 9}, 9)
        assert again.output == [[7, 8, 9], [7, 9, 9]]


def test_a_made_savepoint_has_the_processing_time_until_it_is_edited(tmp_path):
    """Entries of a SavepointWriter have the time of the clock; an edited time counts instead."""
    path, row = tmp_path / "made", {"k": "a", "recent": [7], "ms": 9}
    recent = mp.ListStateDescriptor("recent", int).enable_time_to_live(settings(100, True, False))
    mp.SavepointWriter.new_savepoint().with_operator("harness", [row], recent, key="k").write(path)
    for edited, expected in ((False, [7, 9]), (True, [9])):
        if edited:
            (file,) = path.rglob("*.parquet")
            table = pq.read_table(file)
            place = table.column_names.index("ttl_timestamp")
            times = pa.array([[900]], table.schema.field(place).type)
            pq.write_table(table.set_column(place, table.schema.field(place), times), file)
            mp.seal_savepoint(path)
        with mp.testing.KeyedOperatorHarness(Recent(), key="k", restore=path) as harness:
            harness.advance_watermark(1000)
            harness.process(row, 1000)
            assert harness.output == [expected]


@pytest.mark.parametrize("restored", BACKENDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rescale_takes_the_highest_watermark(backend, restored):
    """After a rescale, entries expire by the highest watermark of the old subtasks, and do not return."""
    keys = {mp.assign_to_key_group(key, 128, str) // 64: key for key in "abcdefgh"}
    handles = []
    for subtask, watermark in ((0, 150), (1, 60)):
        with mp.testing.KeyedOperatorHarness(
            Recent(), key="k", backend=backend, subtask=subtask, parallelism=2
        ) as harness:
            harness.process({"k": keys[subtask], "ms": 20}, 20)
            harness.process({"k": keys[subtask], "ms": 90}, 90)
            harness.advance_watermark(watermark)
            handles.append(harness.snapshot())
    with mp.testing.KeyedOperatorHarness(
        Recent(), key="k", backend=restored, restore=handles
    ) as harness:
        for key in keys.values():
            harness.process({"k": key, "ms": 100}, 100)
        assert harness.output == [[90, 100], [90, 100]]
        harness.advance_watermark(190)
        harness.process({"k": keys[0], "ms": 191}, 191)
        assert harness.output[-1] == [100, 191]
