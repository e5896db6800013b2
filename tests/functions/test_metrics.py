"""Metrics: samples, counts, reporters, and the driver's sums of a query's batches."""

import logging
import tempfile
from datetime import timedelta

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import errors
from millpond.plugins import get_registry
from millpond.spark import MetricsListener, key_by
from millpond.spi import Amount, ByteStore
from millpond_conformance.faults import Fault, FaultySerializer
from millpond_spark.metrics.batch_metrics import SubtaskMetrics, sum_metrics
from millpond_spark.worker.task import BatchMetrics

from tests.spark.streaming import RUNNING, Running, run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
EVERY = {
    "state.latency-track.enabled": True,
    "state.latency-track.sample-interval": 1,
    "state.size-track.enabled": True,
    "state.size-track.sample-interval": 1,
}


@pytest.fixture
def opened(tmp_path):
    """Opens a backend with a configuration."""
    backends = []

    def open_one(backend, options):
        made = mp.open_keyed_backend(
            backend,
            key_type=str,
            directory=tmp_path / backend,
            clock=mp.ManualClock(0),
            config=mp.Config(options),
        )
        backends.append(made)
        made.set_current_key("k")
        return made

    yield open_one
    for each in backends:
        each.close()


@BACKENDS
def test_every_call_is_sampled_with_interval_1(opened, backend):
    """Each call has a latency and, if it passes a value, the serialized size of the value."""
    backend = opened(backend, EVERY)
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", str))
    state.update("four")
    state.update(value="sixsix")
    assert state.value() == "sixsix"
    histograms = backend.metrics.histograms()
    assert histograms["v.update_ns"].count == 2
    assert histograms["v.update_bytes"].quantile(0.5) == 6
    assert histograms["v.update_bytes"].quantile(0.0) == 4
    assert histograms["v.value_bytes"].quantile(1.0) == 6
    assert backend.metrics.calls()["v.update"] == 2
    assert backend.metrics.quantiles()["v.value_ns.p99"] > 0


@pytest.mark.parametrize("interval", [1, 3, 100])
def test_calls_are_counted_whatever_the_interval(opened, interval):
    """The first and every n-th call is sampled, and all calls are counted."""
    options = {**EVERY, "state.latency-track.sample-interval": interval}
    options["state.size-track.enabled"] = False
    backend = opened("heap", options)
    state = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int))
    for number in range(250):
        state.put("a", number)
        assert backend.metrics.calls()["m.put"] == number + 1
    assert backend.metrics.histograms()["m.put_ns"].count == -(-250 // interval)
    assert "m.put_bytes" not in backend.metrics.histograms()


def test_sizes_alone(opened):
    """Without latencies, only the sizes of keys and values are tracked; accumulators have their stored size."""
    backend = opened("heap", {"state.size-track.enabled": True})
    items = backend.get_partitioned_state(mp.ListStateDescriptor("l", str))
    items.add_all(["a", "bb"])
    assert items.get() == ["a", "bb"]
    folded = backend.get_partitioned_state(mp.FoldingStateDescriptor("f", "", str.__add__, str))
    folded.add("x")
    histograms = backend.metrics.histograms()
    assert {name: each.quantile(1.0) for name, each in histograms.items()} == {
        "l.add_all_bytes": 3,
        "l.add_all_key_bytes": len(backend.key_codec.encode("k")),
        "l.get_bytes": 3,
        "l.get_key_bytes": len(backend.key_codec.encode("k")),
        "f.add_bytes": 1,
        "f.add_key_bytes": len(backend.key_codec.encode("k")),
    }


@BACKENDS
def test_sizes_of_addresses(opened, backend):
    """A key's size includes key, namespace and map key, also in iterations."""
    backend = opened(backend, EVERY)
    state = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, int), (1, "window"))
    state.put("short", 1)
    state.set_current_namespace((1, "w"))
    state.put("a much longer key", 2)
    begun = state.items()
    backend.set_current_key("another key")
    assert list(begun) == [("a much longer key", 2)]
    assert state.get(default=7, key="none") == 7
    backend.flush(None)
    view = backend.freeze()
    rows = [row for group in view.key_group_range for _, found in view.rows(group) for row in found]
    view.close()
    stored = sorted(len(key) - 1 for key, _ in rows)  # without the key group
    histograms = backend.metrics.histograms()
    assert histograms["m.put_key_bytes"].quantile(0.0) == stored[0]
    assert histograms["m.put_key_bytes"].quantile(1.0) == stored[1]
    assert histograms["m.items_next_key_bytes"].quantile(1.0) == stored[1]
    assert histograms["m.items_next_bytes"].count == 1
    assert "m.get_bytes" not in histograms


def test_aggregates_have_the_size_of_what_is_stored(opened):
    """The stored size of an accumulator is tracked at each add and get."""

    class Gather(mp.AggregateFunction):
        def create_accumulator(self):
            return ""

        def add(self, value, accumulator):
            return accumulator + value

        def get_result(self, accumulator):
            return len(accumulator)

        def merge(self, a, b):
            return a + b

    backend = opened("heap", EVERY)
    descriptor = mp.AggregatingStateDescriptor("a", Gather(), str)
    state = backend.get_partitioned_state(descriptor, "window")
    assert state.get() is None
    state.add("four")
    state.set_current_namespace("other")
    state.add("sixsix")
    assert state.get() == 6
    histograms = backend.metrics.histograms()
    assert [histograms["a.add_bytes"].quantile(q) for q in (0.0, 1.0)] == [4, 6]
    assert histograms["a.get_bytes"].count == 1
    assert histograms["a.get_key_bytes"].count == 2


class Slow(FaultySerializer):
    """Type that advances the test's clock by 10 ms for each copy."""

    def __init__(self, now):
        super().__init__(list[int], Fault())
        self._now = now

    def copy(self, value):
        self._now[0] += 10_000_000
        return super().copy(value)


@BACKENDS
def test_iterations_are_measured_step_by_step(opened, backend, monkeypatch):
    """The time of an iteration is measured in its steps, not in the call that creates it."""
    now = [0]
    monkeypatch.setattr("time.perf_counter_ns", lambda: now[0])
    backend = opened(backend, {**EVERY, "state.size-track.enabled": False})
    state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, Slow(now)))
    state.put_all({number: [number] for number in range(4)})
    assert dict(state.items()) == {number: [number] for number in range(4)}
    assert (len(list(state.keys())), len(list(state.values()))) == (4, 4)
    histograms = backend.metrics.histograms()
    for way in ("items", "keys", "values"):
        steps = histograms[f"m.{way}_next_ns"]
        assert [steps.quantile(number / 5) for number in range(5)] == [0, *[10_000_000] * 4]
        assert histograms[f"m.{way}_init_ns"].quantile(1.0) == 0
        assert backend.metrics.calls()[f"m.{way}"] == 1
        assert backend.metrics.calls()[f"m.{way}_next"] == 5


@pytest.mark.parametrize("interval", [1, 3, 100])
def test_steps_are_counted_whatever_the_interval(opened, interval):
    """The first and every n-th step of all iterations is sampled, and all steps are counted."""
    options = {**EVERY, "state.latency-track.sample-interval": interval}
    options["state.size-track.enabled"] = False
    backend = opened("heap", options)
    state = backend.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
    state.put_all({number: number for number in range(9)})
    for _ in range(7):
        assert len(state) == 9
    assert backend.metrics.calls()["m.items_next"] == 70
    assert backend.metrics.histograms()["m.items_next_ns"].count == -(-70 // interval)


@BACKENDS
def test_metrics_change_no_behaviour(opened, backend):
    """A wrapped state with TTL expires, iterates and refuses values as without metrics."""
    backend = opened(backend, EVERY)
    ttl = mp.StateTtlConfig(timedelta(milliseconds=5))
    state = backend.get_partitioned_state(
        mp.MapStateDescriptor("m", str, int).enable_time_to_live(ttl)
    )
    state["a"] = 1
    assert (state.get("a"), state.get("b", default=7), len(state)) == (1, 7, 1)
    with pytest.raises(errors.StateTypeError):
        state.put("a", "one")
    backend.parameters.clock.set(5)
    assert state.is_empty()


def test_byte_stores_count_reads_and_writes(opened):
    """A second access in a bundle is served by the buffer, and a flush writes each row once."""
    backend = opened("lmdb", {})
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
    for _ in range(5):
        state.update((state.value() or 0) + 1)
    backend.flush(None)
    assert backend.counters() == {"expired_removed": 0, "store_reads": 1, "store_writes": 1}
    assert opened("heap", {}).counters() == {"expired_removed": 0}


def test_native_gauges(opened):
    """RocksDB and LMDB report memory and files; heap has no native gauges."""
    assert opened("rocksdb", {}).native_metrics()["block_cache_bytes"] >= 0
    lmdb = opened("lmdb", {}).native_metrics()
    assert lmdb["map_bytes"] >= lmdb["live_bytes"] > 0
    assert opened("heap", {}).native_metrics() == {}


LABELS = {"operator": "totals", "subtask": "1"}


def test_the_log_gets_a_line_for_each_report(caplog):
    """A line has the labels and the metrics, sorted by name."""
    config = mp.Config({"metrics.reporters": "log"})
    with caplog.at_level(logging.INFO, "millpond.metrics"):
        get_registry().report(config, {"rows_out": 3, "rows_in": 2}, LABELS)
    assert "operator=totals subtask=1: rows_in=2 rows_out=3" in caplog.text


def test_an_unknown_reporter_is_refused():
    """The error names the known reporters."""
    with pytest.raises(errors.ConfigError, match="log, opentelemetry"):
        get_registry().report(mp.Config({"metrics.reporters": "fax"}), {}, LABELS)


def test_opentelemetry():
    """Metrics arrive as gauges, with the labels as attributes."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    config = mp.Config({"metrics.reporters": "opentelemetry"})
    get_registry().report(config, {"rows_in": 4}, LABELS)
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    (metric,) = scope.metrics
    (point,) = metric.data.data_points
    assert (metric.name, point.value, dict(point.attributes)) == ("millpond.rows_in", 4, LABELS)


@pytest.mark.spark
def test_a_listener_sums_the_subtasks_of_each_batch(spark, job_conf, files, tmp_path):
    """Rows, reads and samples of all subtasks reach the driver, batch by batch."""
    job_conf(
        state_backend="rocksdb",
        parallelism=2,
        metrics_native="true",
        **{"state_latency-track_enabled": "true", "state_latency-track_sample-interval": "1"},
    )
    files.add(*((key, 1) for key in "abcdefgh"))
    files.add(*((key, 1) for key in "abcd" * 2))
    seen = []
    listener = MetricsListener(spark, seen.append)
    spark.streams.addListener(listener)
    try:
        stream = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="metered")
        run(stream, tmp_path)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    first, second = (next(each for each in seen if each.batch_id == batch) for batch in (0, 1))
    assert (first.operator_uid, first.subtasks, first.metrics["rows_in"]) == ("metered", 2, 8)
    assert second.metrics["rows_in"] == 8
    assert second.metrics["store_writes"] == 8
    # Two value states: each row reads both twice, and each key is fetched once per state.
    assert second.metrics["sum.value"] == 16
    assert second.metrics["cache_hits"] == 8 * 2 * 2 - 4 * 2
    assert second.metrics["native_live_bytes"] >= 0


def test_sums_of_a_functions_metrics():
    """Counters of any name are summed; a distribution keeps its minimum and maximum."""

    def reported(groups, n):
        counts = {"user.waited_ms": n, "user.max": n, "user.a.min": n}
        spread = {"user.d.count": 1, "user.d.sum": n, "user.d.min": n, "user.d.max": n}
        return SubtaskMetrics("u", groups, groups, 1, {**counts, **spread, "open_ms": n})

    (found,) = sum_metrics([reported(0, 100), reported(1, 200)], 0, "query")
    assert found.metrics == {
        "user.waited_ms": 300,
        "user.max": 300,
        "user.a.min": 300,
        "user.d.count": 2,
        "user.d.sum": 300,
        "user.d.min": 100,
        "user.d.max": 200,
        "open_ms": 200,
    }


def test_a_state_that_is_called_user(opened):
    """Metrics of a state called `user` do not replace the function's own metrics."""
    backend = opened("heap", EVERY)
    batch = BatchMetrics()
    batch.begin(backend)
    backend.get_partitioned_state(mp.ValueStateDescriptor("user", str)).update("ann")
    batch.add(**{"user.update": 7})
    result = backend.snapshot(1, mp.checkpoint_storage("memory:called-user")).result()
    found = batch.finish(backend, result, "new", native=False)
    assert (found["user.update"], found["state.user.update"]) == (7, 1)
    assert found["state.user.update_bytes.max"] == 3


@pytest.mark.spark
def test_a_listener_that_comes_late(spark, job_conf, files, tmp_path):
    """A listener that is added after the start gets the metrics of later batches."""
    job_conf(state_backend="heap", parallelism=1)
    files.add(("a", 1))
    seen = []
    listener = MetricsListener(spark, seen.append)
    stream = key_by(files.stream(), "k").process(Running(), output=RUNNING, uid="metered")
    writer = stream.writeStream.format("memory").queryName("late")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        spark.streams.addListener(listener)
        files.add(("a", 1), ("b", 1))
        query.processAllAvailable()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        query.stop()
        spark.streams.removeListener(listener)
    assert [each.metrics["rows_in"] for each in seen if each.batch_id == 1] == [2]


# ---------------------------------------------------------------- sizes of states


class Sized(mp.KeyedProcessFunction):
    """Function with a state of each shape, which its rows fill and empty."""

    def open(self, context):
        self.value = context.get_state(mp.ValueStateDescriptor("value", int))
        self.map = context.get_map_state(mp.MapStateDescriptor("map", int, int))
        self.list = context.get_list_state(mp.ListStateDescriptor("list", int))
        self.spaced = context.get_namespaced_state(mp.ValueStateDescriptor("spaced", int), 0, int)

    def process_element(self, row, context):
        if row.clears:
            self.value.clear()
            self.map.remove(row.n)
            self.list.clear()
            return
        self.value.update(row.n)
        self.map.put(row.n, row.n)
        self.list.add(row.n)
        self.spaced.set_current_namespace(row.n)
        self.spaced.update(row.n)
        context.timer_service().register_event_time_timer(row.n)


def expected_sizes(rows):
    """Return the numbers of keys and entries by state, by a plain count."""
    value, entries, lists, spaced = set(), set(), set(), set()
    for row in rows:
        if row["clears"]:
            value.discard(row["k"])
            entries.discard((row["k"], row["n"]))
            lists.discard(row["k"])
        else:
            value.add(row["k"])
            entries.add((row["k"], row["n"]))
            lists.add(row["k"])
            spaced.add((row["k"], row["n"]))
    maps = {key for key, _ in entries}
    return {
        "value": (len(value), len(value)),
        "map": (len(maps), len(entries)),
        "list": (len(lists), len(lists)),
        "spaced": (len(spaced), len(spaced)),
    }


@BACKENDS
@settings(max_examples=20, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=30
    ),
    restored=st.booleans(),
)
def test_sizes_of_states(backend, drawn, restored):
    """Exact sizes are those of a plain count; estimates exist for the same states."""
    rows = [{"k": k, "n": n, "clears": clears} for k, n, clears in drawn]
    with mp.testing.KeyedOperatorHarness(Sized(), key="k", backend=backend) as harness:
        for row in rows:
            harness.process(row)
        handle = harness.snapshot()
        sizes = harness._backend.state_sizes()
    if restored and handle is not None:
        with mp.open_keyed_backend(
            backend, key_type=str, directory=tempfile.mkdtemp(), restore=[handle]
        ) as again:
            sizes = again.state_sizes()
    for state, (keys, entries) in expected_sizes(rows).items():
        size = sizes[state]
        assert size.entries is not None
        if size.entries.is_exact:
            assert size.entries.number == entries
        if size.keys is not None and size.keys.is_exact:
            assert size.keys.number == keys
        assert (size.keys is None) == (state == "map" and (backend != "heap" or restored))
        exact = {"heap": True, "lmdb": state != "list", "rocksdb": False}[backend]
        assert size.entries.is_exact == exact
        assert (size.bytes is None) == (backend == "heap")
    assert set(sizes) == set(expected_sizes(rows))


@pytest.mark.parametrize("backend", ["rocksdb", "lmdb"])
def test_estimates_of_many_entries(opened, backend):
    """After plain writes, RocksDB's estimate is the number of entries; bytes grow with the state."""
    made = opened(backend, {})
    state = made.get_partitioned_state(mp.ValueStateDescriptor("v", str))
    for key in range(5000):
        made.set_current_key(str(key))
        state.update("x" * 100)
    made.flush()
    size = made.state_sizes()["v"]
    assert (size.entries.number, size.entries.is_exact) == (5000, backend == "lmdb")
    assert backend == "rocksdb" or size.bytes.number > 5000 * 100


def test_many_entries_on_heap(opened):
    """With many dictionaries the number is an estimate, which is close if keys are alike."""
    made = opened("heap", {})
    state = made.get_partitioned_state(mp.MapStateDescriptor("m", int, int))
    for key in range(3000):
        made.set_current_key(str(key))
        state.put_all({n: n for n in range(1 + key % 3)})
    size = made.state_sizes()["m"]
    assert size.keys == Amount(3000)
    assert not size.entries.is_exact
    assert abs(size.entries.number - 6000) < 300
    assert size.figures("m") == {"m.keys": 3000, "m.entries_estimate": size.entries.number}


def test_a_backend_without_sizes(opened):
    """A store that does not tell the size of a family reports none, and the job runs on."""
    made = opened("lmdb", {})
    made.get_partitioned_state(mp.ValueStateDescriptor("v", str))
    made.store.family_size = lambda family: ByteStore.family_size(made.store, family)
    assert made.state_sizes() == {}
