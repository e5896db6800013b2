"""Functions over rows without keys: operator state, locally and on Spark."""

import uuid
from pathlib import Path

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import create_savepoint, key_by, operator
from millpond_cli.inspection.stored_operator import state_table

from tests.checkpoint.opened import open_stored
from tests.spark.streaming import Files, Running, output, run

BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
BUFFERED = mp.ListStateDescriptor("buffered", tuple[str, int])
PARTS = mp.ListStateDescriptor("parts", str)
LIMITS = mp.MapStateDescriptor("limits", str, int)


class BufferingSink(mp.ProcessFunction, mp.CheckpointedFunction):
    """Sink that writes a file per three rows; waiting rows are operator state."""

    def __init__(self, folder):
        self.folder = folder

    def initialize_state(self, context):
        self.state = context.operator_state_store.get_list_state(BUFFERED)
        self.waiting = list(self.state.get())

    def process_element(self, row, context):
        self.waiting.append((row.k, row.n))
        if len(self.waiting) >= 3:
            text = "".join(f"{k} {n}\n" for k, n in self.waiting)
            (Path(self.folder) / uuid.uuid4().hex).write_text(text)
            self.waiting = []

    def snapshot_state(self, context):
        self.state.update(self.waiting)


class Below(mp.BroadcastProcessFunction, mp.CheckpointedFunction):
    """Function that yields rows within the current limits, and the numbers of both kinds of lists."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self.split, self.union = store.get_list_state(BUFFERED), store.get_union_list_state(PARTS)
        self.restored = [*self.union.get()]

    def process_element(self, row, context):
        self.split.add((row.k, row.n))
        limits = context.get_broadcast_state(LIMITS)
        if row.n <= limits.get(row.k, 0):
            yield row.k, row.n

    def process_broadcast_element(self, row, context):
        context.get_broadcast_state(LIMITS).put(row.k, row.most)

    def snapshot_state(self, context):
        self.union.update(["part"])


def written(folder):
    """Return the rows in the sink's files, of which each has three."""
    files = [path.read_text().splitlines() for path in Path(folder).iterdir()]
    assert all(len(lines) == 3 for lines in files)
    return sorted((k, int(n)) for lines in files for k, n in map(str.split, lines))


def rows(count, start=0):
    return [{"k": "abc"[n % 3], "n": n} for n in range(start, start + count)]


@BACKENDS
@pytest.mark.parametrize("form", ["snapshot", "savepoint"])
def test_a_buffering_sink_keeps_what_waits(tmp_path, backend, form):
    """Waiting rows are divided at a rescale, from snapshots and savepoints."""
    sink = tmp_path / "sink"
    sink.mkdir()
    function = BufferingSink(str(sink))
    with mp.testing.KeyedOperatorHarness(function, backend=backend) as harness:
        for row in rows(5):
            harness.process(row)
        path = tmp_path / "saved"
        handle = harness.snapshot() if form == "snapshot" else harness.savepoint(path)
    assert written(sink) == [("a", 0), ("b", 1), ("c", 2)]
    waiting = []
    for subtask in range(2):
        with mp.testing.KeyedOperatorHarness(
            BufferingSink(str(sink)), backend=backend, restore=handle,
            subtask=subtask, parallelism=2,
        ) as harness:  # fmt: skip
            waiting.append(harness._operator._function.waiting)
    assert waiting == [[("a", 3)], [("b", 4)]]


@BACKENDS
def test_union_lists_and_broadcast_maps_go_to_all(backend):
    """Each new subtask gets the whole union list and map, and its part of a split list."""
    with mp.testing.KeyedOperatorHarness(Below(), backend=backend) as harness:
        harness.process_broadcast({"k": "a", "most": 1})
        for row in rows(4):
            harness.process(row)
        assert harness.output == [("a", 0)]
        handle = harness.snapshot()
    shares = []
    for subtask in range(3):
        with mp.testing.KeyedOperatorHarness(
            Below(), backend=backend, restore=handle, subtask=subtask, parallelism=3
        ) as harness:
            function = harness._operator._function
            assert function.restored == ["part"]
            shares.append(function.split.get())
            harness.process({"k": "a", "n": 1})
            assert harness.output == [("a", 1)]
    assert shares == [[("a", 0), ("b", 1)], [("c", 2)], [("a", 3)]]


def test_a_local_run_needs_no_key():
    """Without a key, rows keep their order, broadcast rows come first, and side outputs and times work."""
    late = mp.OutputTag("late")

    class Tagging(Below):
        def process_element(self, row, context):
            yield from super().process_element(row, context)
            if context.timestamp < context.timer_service().current_watermark():
                yield late, (row.k,)

    out = mp.local.run(
        Tagging(), rows(3) + rows(1), broadcast=[{"k": "b", "most": 9}, {"k": "c", "most": 9}],
        event_time="n", watermark_delay=0,
    )  # fmt: skip
    assert out == [("a", 0), ("b", 1), ("c", 2), ("a", 0)]
    assert out.side_output(late) == [("a",)]


def asked(ask):
    """Return a function whose first row calls a method of its context."""

    class Asking(mp.BroadcastProcessFunction):
        def open(self, context):
            self.context = context

        def process_element(self, row, context):
            ask(self.context, context)

        def process_broadcast_element(self, row, context):
            context.apply_to_keyed_state(mp.ValueStateDescriptor("seen", int), print)

    return Asking()


@pytest.mark.parametrize(
    "ask",
    [
        lambda runtime, _: runtime.get_state(mp.ValueStateDescriptor("seen", int)),
        lambda runtime, _: runtime.get_map_state(mp.MapStateDescriptor("seen", str, int)),
        lambda _, context: context.timer_service().register_event_time_timer(1),
    ],
)
def test_what_needs_a_key_is_refused(ask):
    """Keyed state and timers are refused with the operator and the cure."""
    with mp.testing.KeyedOperatorHarness(asked(ask)) as harness:
        with pytest.raises(
            errors.UserFunctionError, match=r"NoKeysError: Operator 'harness' has no .*key_by"
        ) as raised:
            harness.process({"k": "a"})
        assert raised.value.key == ""
        with pytest.raises(errors.UserFunctionError, match="has no keyed state 'seen'"):
            harness.process_broadcast({"k": "a"})


def test_keys_and_functions_belong_together():
    """A function without keys refuses a key, and a keyed function needs one; both errors say so."""
    with pytest.raises(errors.ArgumentValueError, match="Below is a function without keys"):
        mp.local.run(Below(), [], key="k")
    with pytest.raises(errors.ArgumentTypeError, match="Running is a keyed function"):
        mp.local.run(Running(), [])
    with (
        mp.testing.KeyedOperatorHarness(Running(), key="k") as harness,
        pytest.raises(errors.ArgumentTypeError, match="BroadcastProcessFunction"),
    ):
        harness.process_broadcast({})


@pytest.mark.spark
def test_on_spark_too(spark, job_conf):
    """On Spark the driver refuses a function of the wrong kind before the query runs."""
    df = spark.createDataFrame([("a", 1)], "k string, n bigint")
    with pytest.raises(
        errors.ConfigError, match="expected a ProcessFunction, an AsyncFunction or a Broadcast"
    ):
        operator(df).process(Running(), output="k string", uid="x")
    with pytest.raises(errors.ConfigError, match="expected a KeyedProcessFunction"):
        key_by(df, "k").process(BufferingSink("."), output="k string", uid="x")
    with pytest.raises(errors.ConfigError, match=r"connect.*BroadcastProcessFunction belong"):
        operator(df).process(Below(), output="k string", uid="x")


@pytest.mark.spark
def test_a_plain_batch(spark, job_conf):
    """Each row is processed once, in the requested order per subtask, nested and null rows too."""

    class Numbered(mp.ProcessFunction):
        def open(self, context):
            self.subtask, self.number = context.get_index_of_this_subtask(), 0
            self.factor = int(context.get_job_parameter("factor", 1))
            assert context.get_attempt_number() == 0

        def process_element(self, row, context):
            self.number += 1
            yield self.subtask, self.number, row.n, self.factor * row.m["x"], row.s and row.s.a

    job_conf(state_backend="lmdb", parallelism=2, parameters_factor=3)
    given = [(n, {"x": n}, (n, [n]) if n % 2 else None) for n in range(40)]
    schema = "n int, m map<string, int>, s struct<a: int, b: array<int>>"
    df = spark.createDataFrame(given, schema).coalesce(1)
    out = operator(df).process(
        Numbered(), output="subtask int, number int, n int, m int, s int", uid="x", order_by="n"
    )
    found = sorted(map(tuple, out.collect()))
    assert sorted(row[2:] for row in found) == [(n, 3 * n, n if n % 2 else None) for n in range(40)]
    for subtask in range(2):
        own = [row for row in found if row[0] == subtask]
        assert [row[1] for row in own] == list(range(1, len(own) + 1))
        assert [row[2] for row in own] == sorted(row[2] for row in own)
        assert len(own) > 5


@pytest.mark.spark
def test_a_query_is_rescaled(spark, job_conf, tmp_path):
    """A sink loses no row at a restart with other subtasks, and the savepoint has the waiting rows."""
    sink = tmp_path / "sink"
    sink.mkdir()
    files = Files(spark, tmp_path / "in")
    for number, parallelism in enumerate((3, 2)):
        job_conf(state_backend="rocksdb", parallelism=parallelism)
        files.add(*((row["k"], row["n"]) for row in rows(7, 10 * number)))
        sunk = operator(files.stream()).process(
            BufferingSink(str(sink)), output="nothing int", uid="sink"
        )
        run(sunk, tmp_path)
    assert output(spark, tmp_path) == []
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    (stored,) = open_stored(tmp_path / "saved")
    table = state_table(stored, "buffered").to_pylist()
    waiting = [tuple(row["value"].values()) for row in table]
    given = [(row["k"], row["n"]) for number in range(2) for row in rows(7, 10 * number)]
    assert sorted([*written(sink), *waiting]) == sorted(given)


@pytest.mark.spark
def test_rules_reach_all_subtasks(spark, job_conf, tmp_path):
    """A micro-batch's broadcast rows come before its rows, and apply to later batches."""
    job_conf(state_backend="heap", parallelism=2)
    files, limits = (
        Files(spark, tmp_path / "in"),
        Files(spark, tmp_path / "l", "k string, most int"),
    )
    for most in (3, 8):
        files.add(*((row["k"], row["n"]) for row in rows(9)))
        limits.add(("a", most))
    joined = operator(files.stream()).connect(limits.stream())
    run(joined.process(Below(), output="k string, n bigint", uid="below"), tmp_path)
    assert output(spark, tmp_path) == [("a", n) for n in (0, 0, 3, 3, 6)]


class FailsToOpen(mp.KeyedProcessFunction):
    """Function that acquires a resource and then fails in `open`."""

    def open(self, context):
        self.closed = []
        raise OSError("the model is not there")

    def process_element(self, row, context):
        return []

    def close(self):
        self.closed.append(True)


def test_close_is_called_where_open_fails():
    """If `open` fails, `close` releases its resources, and the first error remains."""
    function = FailsToOpen()
    with (
        pytest.raises(mp.errors.UserFunctionError, match="the model is not there"),
        mp.testing.KeyedOperatorHarness(function, key="k"),
    ):
        pass
    assert function.closed == [True]


class FailsToClose(mp.KeyedProcessFunction):
    """Function that fails in `close`."""

    def process_element(self, row, context):
        return []

    def close(self):
        raise OSError("too late")


def test_a_failing_close_does_not_hide_a_tests_own_error():
    """If a test fails within a harness, its own error is raised, with that of `close` as a note."""
    with (
        pytest.raises(AssertionError, match="the first") as caught,
        mp.testing.KeyedOperatorHarness(FailsToClose(), key="k"),
    ):
        raise AssertionError("the first")
    assert any("too late" in note for note in caught.value.__notes__)
    with (
        pytest.raises(mp.errors.UserFunctionError, match="too late"),
        mp.testing.KeyedOperatorHarness(FailsToClose(), key="k"),
    ):
        pass


class WritesLate(mp.KeyedProcessFunction):
    """Function that uses state in `close`."""

    def __init__(self, use):
        self.use = use

    def open(self, context):
        self.context = context
        self.sum = context.get_state(mp.ValueStateDescriptor("sum", int))

    def process_element(self, row, context):
        self.sum.update(row.n)

    def close(self):
        self.use(self)


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize(
    "use",
    [
        lambda function: function.sum.update(7),
        lambda function: function.sum.value(),
        lambda function: function.sum.at("a").update(7),
        lambda function: function.sum.update_many(["a"], [7]),
        lambda function: function.context.get_state(mp.ValueStateDescriptor("more", int)),
    ],
)
def test_close_has_no_state(backend, use):
    """`close` runs after the last snapshot, so state that it wrote would be lost; it is refused."""
    with (
        pytest.raises(mp.errors.UserFunctionError, match=r"WritesLate\.close.*is closed"),
        mp.testing.KeyedOperatorHarness(WritesLate(use), key="k", backend=backend) as harness,
    ):
        harness.process({"k": "a", "n": 1})
