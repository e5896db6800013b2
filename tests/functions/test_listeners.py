"""Functions that are notified of committed snapshots, and their own metrics, locally and on Spark."""

import itertools
import json
import operator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import millpond as mp
import numpy as np
import pytest
from millpond import errors, windows
from millpond.functions.metric_group import MetricGroup
from millpond.spark import key_by, subtask_metrics

from tests.spark.streaming import Files, run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class TwoPhases(mp.KeyedProcessFunction, mp.CheckpointedFunction, mp.CheckpointListener):
    """Two-phase sink: a snapshot writes the rows to a file, and the commit publishes it."""

    def __init__(self, folder):
        self.folder = str(folder)

    def initialize_state(self, context):
        self.pending = context.operator_state_store.get_list_state(
            mp.ListStateDescriptor("pending", tuple[int, str])
        )

    def open(self, context):
        self.rows = []
        self.subtask = context.get_index_of_this_subtask()
        self.counter = context.get_metric_group().counter("shown")

    def process_element(self, row, context):
        self.rows.append(f"{row.k} {row.n}")

    def snapshot_state(self, context):
        if self.rows:
            name = f"{context.checkpoint_id}-{self.subtask}"
            (Path(self.folder) / f"{name}.hidden").write_text("\n".join(self.rows))
            self.pending.add((context.checkpoint_id, name))
            self.rows = []

    def notify_checkpoint_complete(self, checkpoint_id):
        later = []
        for number, name in self.pending.get():
            hidden = Path(self.folder) / f"{name}.hidden"
            if number > checkpoint_id:
                later.append((number, name))
            elif hidden.exists():
                hidden.rename(hidden.with_suffix(".txt"))
                self.counter.inc()
        self.pending.update(later)


def shown(folder):
    """Return the rows in published files."""
    texts = [path.read_text() for path in Path(folder).glob("*.txt")]
    return sorted(line for text in texts for line in text.splitlines())


@BACKENDS
def test_a_sink_in_two_phases(tmp_path, backend):
    """Files are published after the snapshot, and once even if a restored sink is notified again."""
    with mp.testing.KeyedOperatorHarness(TwoPhases(tmp_path), key="k", backend=backend) as sink:
        sink.process({"k": "a", "n": 1})
        assert shown(tmp_path) == []
        handle = sink.snapshot()
        assert shown(tmp_path) == ["a 1"]
        assert sink.metrics == {"user.shown": 1}
        sink.process({"k": "a", "n": 2})
    with mp.testing.KeyedOperatorHarness(
        TwoPhases(tmp_path), key="k", backend=backend, restore=handle
    ) as sink:
        sink.process({"k": "a", "n": 3})
        sink.snapshot()
    assert shown(tmp_path) == ["a 1", "a 3"]


def test_a_local_run_ends_with_a_snapshot(tmp_path):
    """A listener is notified of a local run's snapshot; an error in it is the function's failure."""
    mp.local.run(TwoPhases(tmp_path), [{"k": "a", "n": 1}, {"k": "b", "n": 2}], key="k")
    assert shown(tmp_path) == ["a 1", "b 2"]

    class Failing(TwoPhases):
        def notify_checkpoint_complete(self, checkpoint_id):
            raise ValueError(checkpoint_id)

    with pytest.raises(errors.UserFunctionError, match=r"notify_checkpoint_complete failed"):
        mp.local.run(Failing(tmp_path), [{"k": "a", "n": 1}], key="k")


def test_a_sink_in_a_query(spark, job_conf, tmp_path):
    """A micro-batch's files are published in the next one, those of the last batch in the next run."""
    job_conf(state_backend="heap", parallelism=2)
    folder = tmp_path / "sink"
    folder.mkdir()
    files = Files(spark, tmp_path / "in")
    keys = [f"k{n}" for n in range(6)]

    def go():
        sink = key_by(files.stream(), "k").process(TwoPhases(folder), output="k string", uid="sink")
        run(sink, tmp_path)

    files.add(*((key, 1) for key in keys))
    files.add(("k0", 2))
    go()
    assert shown(folder) == [f"{key} 1" for key in keys]  # of the subtask without rows, too
    metrics = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert [each.metrics["user.shown"] for each in metrics] == [1, 1]
    files.add(("k0", 3))
    go()
    assert shown(folder) == sorted([*(f"{key} 1" for key in keys), "k0 2"])


class Measured(mp.KeyedProcessFunction):
    """Function that counts its rows."""

    def open(self, context):
        group = context.get_metric_group()
        self.small = group.add_group("sizes").counter("small")
        self.values = group.distribution("values")
        self.seen = 0
        group.gauge("seen", lambda: self.seen)

    def process_element(self, row, context):
        self.seen += 1
        self.values.update(row.n)
        if row.n < 3:
            self.small.inc()
        if row.n < 0:
            self.small.dec(2)


def test_metrics_of_a_function():
    """Counters, gauges and distributions have the requested names, with their groups."""
    with mp.testing.KeyedOperatorHarness(Measured(), key="k") as harness:
        assert harness.metrics == {"user.seen": 0, "user.sizes.small": 0}
        for n in (5, -1, 2):
            harness.process({"k": "a", "n": n})
        assert harness.metrics == {
            "user.seen": 3, "user.sizes.small": 0, "user.values.count": 3, "user.values.sum": 6,
            "user.values.min": -1, "user.values.max": 5,
        }  # fmt: skip


@pytest.mark.parametrize("number", [np.int8(100), np.float32(1.5), Decimal("2.5"), Fraction(1, 2)])
def test_metrics_are_pythons_numbers(number):
    """Counters, gauges and distributions report numbers of NumPy and others as int or float."""
    group = MetricGroup()
    counter, distribution = group.counter("counted"), group.distribution("spread")
    for _ in range(2):
        counter.inc(number)
        distribution.update(number)
    group.gauge("asked", lambda: number)
    found = json.loads(json.dumps(group.values()))
    once = float(number)
    assert (found["counted"], found["asked"]) == (2 * once, once)
    assert (found["spread.sum"], found["spread.max"]) == (2 * once, once)
    assert {type(value) for value in group.values().values()} <= {int, float}


def test_what_is_no_number_is_told_by_the_metrics_name():
    """A counter or distribution refuses a value that is not a number, and names the metric."""
    group = MetricGroup("user.")
    for call in (
        group.counter("odd").inc,
        group.counter("odd").dec,
        group.distribution("x").update,
    ):
        with pytest.raises(
            errors.ArgumentTypeError, match=r"metric 'user.(odd|x)': expected a num"
        ):
            call("1")


@pytest.mark.parametrize(
    ("gauge", "kind"), [(lambda: 1 / 0, ZeroDivisionError), (lambda: "x", errors.ArgumentTypeError)]
)
def test_a_gauge_that_fails_is_told_by_name(gauge, kind):
    """A failing gauge, and one that returns no number, is reported by name."""

    class Odd(Measured):
        def open(self, context):
            super().open(context)
            context.get_metric_group().add_group("sizes").gauge("odd", gauge)

    with (
        mp.testing.KeyedOperatorHarness(Odd(), key="k") as harness,
        pytest.raises(kind) as caught,
    ):
        _ = harness.metrics
    assert caught.value.__notes__ == ["The gauge 'user.sizes.odd' raised this."]


def generator(self, *given):
    yield given


async def coroutine(self, *given):
    pass


@pytest.mark.parametrize(("written", "word"), [(generator, "yield"), (coroutine, "async")])
@pytest.mark.parametrize(
    "method",
    ["open", "close", "initialize_state", "snapshot_state", "notify_checkpoint_complete"],
)
def test_a_yield_where_no_rows_are_given_is_refused(method, written, word):
    """A listener with a yield is refused, because its body would never run."""

    class Yielding(mp.KeyedProcessFunction, mp.CheckpointedFunction, mp.CheckpointListener):
        def process_element(self, row, context):
            yield row

        def initialize_state(self, context):
            pass

        def snapshot_state(self, context):
            pass

        def notify_checkpoint_complete(self, checkpoint_id):
            pass

    setattr(Yielding, method, written)
    said = rf"Yielding\.{method} failed .*nothing of it has run: leave the {word} out"

    def life():
        with mp.testing.KeyedOperatorHarness(Yielding(), key="k") as harness:
            harness.snapshot()

    with pytest.raises(errors.UserFunctionError, match=said):
        life()


def test_late_rows_that_are_dropped_are_counted():
    """``numLateRecordsDropped`` counts dropped late rows, but not those in a side output."""
    windowing = windows.window(windows.TumblingEventTimeWindows.of(10))
    tag = mp.OutputTag("late")
    for made, dropped in ((windowing, 1), (windowing.side_output_late_data(tag), 0)):
        function = made.reduce(operator.add, int, "n")
        with mp.testing.KeyedOperatorHarness(function, key="k") as harness:
            harness.process({"k": "a", "n": 1}, 5)
            harness.advance_watermark(20)
            harness.process({"k": "a", "n": 1}, 6)
            assert harness.metrics == {"numLateRecordsDropped": dropped}


def test_metrics_of_one_name_are_of_one_kind():
    """One name cannot be used for a counter, a gauge and a distribution, because one would hide another."""
    kinds = {
        "counter": lambda group: group.counter("seen"),
        "gauge": lambda group: group.gauge("seen", lambda: 1),
        "distribution": lambda group: group.distribution("seen"),
    }
    for first, second in itertools.permutations(kinds, 2):
        group = MetricGroup()
        for again in (first, first):
            kinds[again](group)
        with pytest.raises(errors.ArgumentValueError, match=f"no {first} has, got str 'seen'"):
            kinds[second](group)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda group: group.gauge("a.b", int), lambda group: group.add_group("a").counter("b")),
        (
            lambda group: group.add_group("a.b").distribution("c"),
            lambda group: group.add_group("a").add_group("b").counter("c"),
        ),
    ],
)
def test_two_metrics_that_are_reported_under_one_name(first, second):
    """A metric that would be reported under another metric's name is refused by that name."""
    for begun, late in ((first, second), (second, first)):
        group = MetricGroup("user.")
        begun(group)
        begun(group)
        with pytest.raises(errors.ArgumentValueError, match=r"has, got str 'user\.\w\.[\w.]+'"):
            late(group)


def test_one_reported_name_is_one_metric():
    """Groups that report a counter under the same name return the same counter."""
    group = MetricGroup()
    assert group.counter("a.b") is group.add_group("a").counter("b")


def test_metrics_of_a_query(spark, job_conf, tmp_path):
    """Own metrics appear next to Millpond's, by subtask, and the listener combines all subtasks."""
    from millpond_spark.metrics.batch_metrics import sum_metrics

    job_conf(state_backend="heap", parallelism=2)
    files = Files(spark, tmp_path / "in")
    files.add(*((f"k{n}", n) for n in range(8)))
    run(key_by(files.stream(), "k").process(Measured(), output="k string", uid="m"), tmp_path)
    subtasks = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    (total,) = sum_metrics(subtasks, 0, "query")
    found = {name: value for name, value in total.metrics.items() if name.startswith("user.")}
    assert found == {
        "user.seen": 8, "user.sizes.small": 3, "user.values.count": 8, "user.values.sum": 28,
        "user.values.min": 0, "user.values.max": 7,
    }  # fmt: skip
