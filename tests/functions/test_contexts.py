"""Contexts of functions at restores and snapshots, and for broadcast rows."""

from typing import ClassVar

import millpond as mp
import pytest
from millpond.spark import key_by

from tests.spark.streaming import Files, output, run

ROW = {"k": "a", "n": 1}


class Listing(mp.KeyedProcessFunction, mp.ListCheckpointed):
    """Function without state that records its arguments at a restore."""

    element_type: ClassVar = int

    def __init__(self, kept):
        self.kept = kept
        self.restored = []

    def restore_state(self, elements):
        self.restored.append(elements)

    def process_element(self, row, context):
        return self.restored

    def snapshot_state(self, checkpoint_id):
        return self.kept


def harness(function, **options):
    return mp.testing.KeyedOperatorHarness(function, key="k", **options)


@pytest.mark.parametrize("kept", [None, [], [1, 2]])
def test_a_list_is_restored_after_each_restore_and_only_then(kept):
    """A snapshot of None restores nothing; a restore without elements calls ``restore_state([])``."""
    with harness(Listing(kept)) as operator:
        operator.process(ROW)
        assert operator.output == []
        handle = operator.snapshot()
    with harness(Listing(kept), restore=handle) as operator:
        operator.process(ROW)
        assert operator.output == [kept or []]
    assert mp.local.run(Listing(kept), [ROW], key="k") == []


def test_a_snapshot_may_end_a_list():
    """If a snapshot returns None, the elements of earlier snapshots are gone."""
    with harness(Listing([1])) as operator:
        operator.snapshot()
        operator._operator._function.kept = None
        handle = operator.snapshot()
    with harness(Listing(None), restore=[handle]) as operator:
        operator.process(ROW)
        assert operator.output == [[]]


class Where(mp.KeyedProcessFunction):
    """Function that yields the information from ``open``."""

    def open(self, context):
        self.told = [
            context.get_task_name_with_subtasks(),
            context.get_attempt_number(),
            context.get_job_parameter("my_rate", 1),
            context.get_job_parameter("limits.low", 0),
            context.get_job_parameter("limits.high", "none"),
            context.get_job_parameter("my_rate.of", "none"),
        ]

    def process_element(self, row, context):
        return self.told


def test_where_a_function_runs_and_the_parameters_of_its_job():
    """PyFlink's names work; job parameters come from the configuration, or from the given default."""
    config = mp.Config({"parameters.my-rate": 0.5}, parameters={"limits": {"low": 3}})
    with harness(Where(), config=config, subtask=1, parallelism=2) as operator:
        key = next(k for k in "abcdef" if mp.assign_to_key_group(k, 128) >= 64)
        operator.process({"k": key, "n": 1})
        assert operator.output == ["harness (2/2)", 0, 0.5, 3, "none", "none"]
    by_default = ["local (1/1)", 0, 1, 0, "none", "none"]
    assert mp.local.run(Where(), [ROW], key="k") == by_default


HISTORY = mp.ListStateDescriptor("history", tuple[int, int])
COUNTRIES = mp.MapStateDescriptor("countries", str, int)


class Told(mp.KeyedBroadcastProcessFunction, mp.CheckpointedFunction):
    """Function that yields the information from its start, and ids and times of earlier snapshots."""

    def initialize_state(self, context):
        self.start = (context.is_restored, context.restored_checkpoint_id)
        self.history = context.operator_state_store.get_union_list_state(HISTORY)

    def process_element(self, row, context):
        told = dict(context.get_broadcast_state(COUNTRIES))
        yield row.k, *self.start, sorted(self.history.get()), sorted(told.items())

    def process_broadcast_element(self, row, context):
        sent = -1 if context.timestamp is None else context.timestamp
        context.get_broadcast_state(COUNTRIES).put(row.country, sent)

    def snapshot_state(self, context):
        self.history.add((context.checkpoint_id, context.timestamp))


def test_contexts_in_the_harness(tmp_path):
    """Snapshots have the clock's time; each form of restore knows its snapshot's id."""
    with harness(Told(), clock_ms=7) as operator:
        operator.process(ROW)
        operator.snapshot()
        operator.advance_processing_time(9)
        handle = operator.snapshot()
        saved = operator.savepoint(tmp_path / "saved")
        assert operator.output == [("a", False, None, [], [])]
    dated = [(1, 7), (2, 9)]
    starts = ((handle, 2, dated), ([None, handle], 2, dated), (saved, 3, [*dated, (3, 9)]))
    for restore, last, history in starts:
        with harness(Told(), restore=restore) as operator:
            operator.process(ROW)
            assert operator.output == [("a", True, last, history, [])]
    with harness(Told(), restore=[None]) as operator:
        operator.process(ROW)
        assert operator.output == [("a", True, None, [], [])]


def test_broadcast_rows_have_their_event_time():
    """Broadcast rows have event times in the harness and in local runs, if they have a time column."""
    with harness(Told()) as operator:
        operator.process_broadcast({"country": "fr"}, 5)
        operator.process_broadcast({"country": "de"})
        operator.process(ROW)
        assert operator.output[0][-1] == [("de", -1), ("fr", 5)]
    rules = [{"country": "fr", "sent": 5}]
    for selector, sent in (("sent", 5), (None, -1)):
        ((*_, told),) = mp.local.run(
            Told(), [ROW], key="k", broadcast=rules, broadcast_event_time=selector
        )
        assert told == [("fr", sent)]


TOLD = (
    "k string, restored boolean, id bigint, "
    "history array<struct<id: bigint, at: bigint>>, sent array<struct<k: string, ms: bigint>>"
)


@pytest.mark.spark
def test_contexts_of_a_query(spark, job_conf, tmp_path):
    """Each micro-batch restores the previous one, also after a rescale, and has the batch's time."""
    events = Files(spark, tmp_path / "events", "k string, n bigint")
    rules = Files(spark, tmp_path / "rules", "country string, s bigint")
    for number, parallelism in enumerate((1, 1, 2)):
        job_conf(state_backend="heap", parallelism=parallelism)
        events.add((f"k{number}", 1))
        rules.add((f"c{number}", number))
        sent = rules.stream().selectExpr("country", "timestamp_seconds(s) t")
        connected = key_by(events.stream(), "k").connect(sent, event_time="t")
        run(connected.process(Told(), output=TOLD, uid="told"), tmp_path)
    first, second, third = output(spark, tmp_path)
    assert first[1:4] == (False, None, [])
    assert (second[1], second[2]) == (True, 1)
    assert (third[1], third[2]) == (True, 2)
    assert [id_ for id_, _ in third[3]] == [1, 2]
    (_, begun), (_, ended) = third[3]
    assert 1_700_000_000_000 < begun < ended
    assert [tuple(each) for each in third[4]] == [("c0", 0), ("c1", 1000), ("c2", 2000)]
