"""Functions with operator state: in the harness, in savepoints and tools, and on Spark."""

import json
from typing import ClassVar

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.functions.checkpointed import RawKeyedOutput, RawOperatorOutput
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.spark import create_savepoint, key_by, subtask_metrics
from millpond_cli.inspection.stored_operator import state_table
from millpond_cli.main import commands

from tests.checkpoint.opened import open_stored
from tests.spark.streaming import output, run

BUFFERED = mp.ListStateDescriptor("buffered", tuple[str, int])
RULES = mp.MapStateDescriptor("rules", str, int)


class Buffering(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that yields rows in groups of three; waiting rows are operator state."""

    def initialize_state(self, context):
        self.restored = context.is_restored
        self.state = context.operator_state_store.get_list_state(BUFFERED)
        self.rules = context.operator_state_store.get_broadcast_state(RULES)
        self.waiting = self.state.get()

    def open(self, context):
        self.seen = context.get_state(mp.ValueStateDescriptor("seen", int, default=0))

    def process_element(self, row, context):
        self.seen.update(self.seen.value() + 1)
        self.rules.put(row.k, row.n)
        self.waiting.append((row.k, row.n))
        if len(self.waiting) >= 3:
            yield from self.waiting
            self.waiting = []

    def snapshot_state(self, context):
        self.state.update(self.waiting)


class Releasing(Buffering):
    """The function `Buffering`, which clears its buffer and a gauge's value when it is closed."""

    def open(self, context):
        super().open(context)
        context.get_metric_group().gauge("waiting", lambda: len(self.waiting))

    def close(self):
        self.waiting = None


class Last(mp.KeyedProcessFunction, mp.ListCheckpointed):
    """Function that keeps all rows in its own list."""

    element_type: ClassVar = int

    def __init__(self):
        self.rows = []

    def restore_state(self, elements):
        self.rows = elements

    def process_element(self, row, context):
        self.rows.append(row.n)
        yield sorted(self.rows)

    def snapshot_state(self, checkpoint_id):
        return self.rows


def harness(function=None, **options):
    return mp.testing.KeyedOperatorHarness(function or Buffering(), key="k", **options)


BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


@BACKENDS
@pytest.mark.parametrize("strategy", ["full", "changelog", "savepoint"])
def test_a_buffer_survives(tmp_path, backend, strategy):
    """Operator state is part of each kind of snapshot, next to keyed state."""
    config = mp.Config({"state.snapshot.strategy": strategy})
    with harness(backend=backend, config=config) as first:
        for row in ({"k": "a", "n": 1}, {"k": "b", "n": 2}):
            first.process(row)
        assert first.output == []
        handle = first.savepoint(tmp_path) if strategy == "savepoint" else first.snapshot()
    with harness(backend=backend, restore=handle) as second:
        second.process({"k": "a", "n": 3})
        assert second.output == [("a", 1), ("b", 2), ("a", 3)]


def test_what_did_not_change_is_not_written_again():
    """A snapshot refers to operator state that is unchanged since the last confirmed snapshot."""
    with harness() as operator:
        operator.process({"k": "a", "n": 1})
        first = operator.snapshot()
        second = operator.snapshot()
        operator.process({"k": "b", "n": 2})
        third = operator.snapshot()
    assert first.operator_state == second.operator_state
    assert third.operator_state != second.operator_state
    assert third.operator_state[0].file.path in third.paths


def test_the_list_shortcut():
    """The list of a `ListCheckpointed` function is restored, and divided at a rescale."""
    with harness(Last()) as operator:
        for n in range(4):
            operator.process({"k": "a", "n": n})
        handle = operator.snapshot()
    shares = []
    for subtask in range(2):
        with harness(Last(), restore=handle, subtask=subtask, parallelism=2) as operator:
            key = next(k for k in "abcdef" if mp.assign_to_key_group(k, 128) // 64 == subtask)
            operator.process({"k": key, "n": 10 * subtask + 10})
            shares.append(operator.output[0])
    assert shares == [[0, 1, 10], [2, 3, 20]]


def test_savepoint_tables_can_be_read_edited_and_rekeyed(tmp_path):
    """Operator state is a Parquet table by subtask; an edited one can be sealed and restored."""
    path = tmp_path / "first"
    with harness() as operator:
        operator.process({"k": "a", "n": 1})
        operator.savepoint(path)
    rows = pq.read_table(path / "operator" / "buffered" / "operator.parquet")
    assert rows.to_pylist() == [{"subtask": 0, "value": {"_1": "a", "_2": 1}}]
    rules = path / "operator" / "rules" / "operator.parquet"
    table = pq.read_table(rules).to_pylist()
    assert table == [{"subtask": 0, "map_key": "a", "value": 1}]
    edited = pq.read_table(rules).set_column(2, "value", [[7]])
    pq.write_table(edited, rules)
    with pytest.raises(errors.CorruptSnapshotError, match="seal_savepoint"):
        harness(restore=path)
    mp.seal_savepoint(path)
    mp.rekey_savepoint(path, tmp_path / "second", 256)
    with harness(restore=tmp_path / "second", max_parallelism=256) as operator:
        assert dict(operator._operator._function.rules.items()) == {"a": 7}
        operator.process({"k": "b", "n": 2})
        operator.process({"k": "b", "n": 3})
        assert operator.output == [("a", 1), ("b", 2), ("b", 3)]


@pytest.mark.parametrize("named", [0, 1])
def test_a_savepoint_has_the_broadcast_state_that_one_subtask_lacks(tmp_path, named):
    """All subtasks get the copy with entries, whichever subtask an older savepoint names."""
    handles = []
    for subtask in range(2):
        with harness(subtask=subtask, parallelism=2) as operator:
            if subtask == 1:
                operator.process({"k": "b", "n": 7})
            handles.append(operator.snapshot())
    path = tmp_path / "saved"
    registry = get_registry()
    collect_savepoint({"buffering": handles}, registry.savepoint(path), registry)
    rules = path / "buffering" / "rules" / "operator.parquet"
    table = pq.read_table(rules)
    assert table.to_pylist() == [{"subtask": 0, "map_key": "b", "value": 7}]
    pq.write_table(
        table.set_column(0, table.field("subtask"), [pa.array([named], pa.int32())]), rules
    )
    mp.seal_savepoint(path)
    mp.rekey_savepoint(path, tmp_path / "again", 128)
    for place, parallelism in ((path, 2), (path, 3), (tmp_path / "again", 2)):
        for subtask in range(parallelism):
            with harness(restore=place, subtask=subtask, parallelism=parallelism) as operator:
                assert dict(operator._operator._function.rules.items()) == {"b": 7}


class Texts(Last):
    """The function `Last` with a list of strings."""

    element_type: ClassVar = str


@pytest.mark.parametrize("limit", ["max-file-bytes", "max-unpacked-bytes"])
def test_the_configured_limits_bound_operator_state(tmp_path, limit):
    """The options `restore.*` also limit the operator state in a savepoint's tables."""
    with harness(Texts()) as operator:
        operator.process({"k": "a", "n": "x" * 100_000})
        operator.savepoint(tmp_path / "saved")
    config = mp.Config({f"restore.{limit}": 1})
    with pytest.raises(errors.CorruptSnapshotError, match=f"restore.{limit}"):
        harness(Texts(), restore=tmp_path / "saved", config=config)


class Raw(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that writes raw bytes: rows by key group, and single letters as partitions."""

    def initialize_state(self, context):
        self.by_group = dict(context.raw_keyed_inputs())
        self.letters = context.raw_operator_inputs()

    def process_element(self, row, context):
        group = mp.assign_to_key_group(row.k, 128)
        self.by_group[group] = self.by_group.get(group, b"") + row.k.encode()
        self.letters.append(row.k.encode())

    def snapshot_state(self, context):
        for group, data in self.by_group.items():
            context.raw_keyed_output.start_new_key_group(group)
            context.raw_keyed_output.write(data[:1])
            context.raw_keyed_output.write(data[1:])
        for letter in self.letters:
            context.raw_operator_output.start_new_partition()
            context.raw_operator_output.write(letter)


@pytest.mark.parametrize("form", ["snapshot", "savepoint"])
def test_raw_bytes_of_a_function(tmp_path, form):
    """Raw keyed bytes follow their key groups at a rescale; raw partitions are divided."""
    with harness(Raw()) as operator:
        for key in "abcdef":
            operator.process({"k": key, "n": 1})
        handle = operator.snapshot() if form == "snapshot" else operator.savepoint(tmp_path)
    keyed, letters = {}, []
    for subtask in range(2):
        with harness(Raw(), restore=handle, subtask=subtask, parallelism=2) as operator:
            function = operator._operator._function
            assert all(group // 64 == subtask for group in function.by_group)
            keyed.update(function.by_group)
            assert len(function.letters) == 3
            letters += function.letters
    expected = {}
    for key in "abcdef":
        group = mp.assign_to_key_group(key, 128)
        expected[group] = expected.get(group, b"") + key.encode()
    assert keyed == expected
    assert letters == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_raw_writes_do_not_copy_earlier_ones():
    """A raw write appends to the existing buffer: 10,000 writes take about 10 times as long as 1,000."""
    operator, keyed = RawOperatorOutput(), RawKeyedOutput(mp.KeyGroupRange(0, 3))
    operator.write(b"a")
    keyed.start_new_key_group(1)
    buffers = [operator.partitions[0], keyed.by_group[1]]
    for _ in range(10_000):
        operator.write(b"b")
        keyed.write(b"b")
    assert operator.partitions[0] is buffers[0]
    assert keyed.by_group[1] is buffers[1]
    assert (len(buffers[0]), len(buffers[1])) == (10_001, 10_000)


def test_raw_bytes_are_written_anew_each_time():
    """A snapshot contains only the raw bytes written for it; foreign key groups are refused."""
    with harness(Raw()) as operator:
        operator.process({"k": "a", "n": 1})
        operator.snapshot()
        operator._operator._function.letters.clear()
        operator._operator._function.by_group.clear()
        handle = operator.snapshot()
    with harness(Raw(), restore=handle) as operator:
        assert operator._operator._function.letters == []
        assert operator._operator._function.by_group == {}
    with harness(Raw(), subtask=1, parallelism=2) as operator:
        operator._operator._function.by_group[3] = b"x"
        with pytest.raises(errors.UserFunctionError, match="key group 3"):
            operator.snapshot()


def test_a_failure_names_the_method():
    """An error in the function's own snapshot method names the method."""

    class Broken(Last):
        def snapshot_state(self, checkpoint_id):
            raise RuntimeError("no")

    with (
        harness(Broken()) as operator,
        pytest.raises(errors.UserFunctionError, match=r"Broken\.snapshot_state"),
    ):
        operator.snapshot()


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.spark
@BACKENDS
def test_operator_state_of_a_query(spark, job_conf, files, tmp_path, backend):
    """Operator state is committed with the batch, rescaled up and down, and part of tools and savepoints."""
    checkpoint = str(tmp_path / "query" / "checkpoint")
    for parallelism, number in ((2, 0), (3, 1), (1, 2)):
        job_conf(state_backend=backend, parallelism=parallelism)
        files.add(*((k, 10 * number + n) for n, k in enumerate("abcde")))
        stream = key_by(files.stream(), "k")
        run(stream.process(Buffering(), output="k string, n bigint", uid="buffering"), tmp_path)
    handed = output(spark, tmp_path)
    create_savepoint(spark, checkpoint, tmp_path / "saved")
    (stored,) = open_stored(tmp_path / "saved")
    waiting = [tuple(row["value"].values()) for row in state_table(stored, "buffered").to_pylist()]
    given = sorted((k, 10 * number + n) for number in range(3) for n, k in enumerate("abcde"))
    assert sorted([*handed, *waiting]) == given
    assert len(waiting) < 3
    listed = CliRunner().invoke(commands, ["state", "list", str(tmp_path / "saved"), "--json"])
    kinds = {row["state"]: row["kind"] for row in json.loads(listed.output)}
    assert kinds["buffered"] == "operator: split"
    assert kinds["rules"] == "operator: broadcast"
    reader = spark.read.format("millpond").option("state", "rules")
    assert sorted(row.map_key for row in reader.load(str(tmp_path / "saved")).collect()) == [
        *"abcde"
    ]


@pytest.mark.spark
def test_a_function_is_open_for_its_snapshot(spark, job_conf, files, tmp_path):
    """On Spark `close` comes after `snapshot_state` and after the gauges, as in Flink."""
    job_conf(state_backend="heap", parallelism=1)
    files.add(("a", 1))
    files.add(("b", 2), ("c", 3))
    stream = key_by(files.stream(), "k")
    run(stream.process(Releasing(), output="k string, n bigint", uid="buffering"), tmp_path)
    assert sorted(output(spark, tmp_path)) == [("a", 1), ("b", 2), ("c", 3)]
    (found,) = subtask_metrics(spark, str(tmp_path / "query" / "checkpoint"))
    assert found.metrics["user.waiting"] == 0
