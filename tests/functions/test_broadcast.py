"""Broadcast rules that change while rows flow, locally and on Spark."""

import millpond as mp
import pytest
from millpond import errors
from millpond.spark import create_savepoint, key_by
from millpond_cli.inspection.stored_operator import state_table

from tests.checkpoint.opened import open_stored
from tests.spark.streaming import RUNNING, Files, Running, output, run

LIMITS = mp.MapStateDescriptor("limits", str, int)
SPENT = mp.ValueStateDescriptor("spent", int, default=0)
BACKENDS = pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])


class Limits(mp.KeyedBroadcastProcessFunction):
    """Function that yields the amount by which a key exceeds the limit of its country."""

    def open(self, context):
        self.spent = context.get_state(SPENT)

    def process_element(self, row, context):
        self.spent.update(self.spent.value() + row.n)
        limits = context.get_broadcast_state(LIMITS)
        if row.country in limits and self.spent.value() > limits[row.country]:
            yield row.k, row.country, self.spent.value() - limits[row.country]

    def process_broadcast_element(self, row, context):
        limits = context.get_broadcast_state(LIMITS)
        if row.max is None:
            limits.remove(row.country)
            context.apply_to_keyed_state(SPENT, lambda _, state: state.clear())
        else:
            limits.put(row.country, row.max)


def paid(k, country, n):
    return {"k": k, "country": country, "n": n}


@BACKENDS
def test_rules_change_between_rows(backend):
    """A rule applies to later rows; removing it changes the keyed state of all keys."""
    with mp.testing.KeyedOperatorHarness(Limits(), key="k", backend=backend) as operator:
        operator.process(paid("a", "fr", 10))
        operator.process_broadcast({"country": "fr", "max": 15})
        operator.process(paid("a", "fr", 10))
        operator.process(paid("b", "de", 99))
        operator.process_broadcast({"country": "fr", "max": None})
        operator.process(paid("a", "fr", 10))
        operator.process_broadcast({"country": "fr", "max": 5})
        operator.process(paid("a", "fr", 1))
        assert operator.output == [("a", "fr", 5), ("a", "fr", 6)]


def test_rules_in_a_local_run():
    """In a local run, broadcast rows come first."""
    rows = [paid("a", "fr", 10), paid("b", "fr", 3)]
    rules = [{"country": "fr", "max": 4}]
    assert mp.local.run(Limits(), rows, key="k", broadcast=rules) == [("a", "fr", 6)]


def test_keyed_rows_cannot_change_the_rules():
    """Keyed rows see all broadcast entries, through an object without methods that write."""

    class Meddling(Limits):
        def process_element(self, row, context):
            limits = context.get_broadcast_state(LIMITS)
            assert (dict(limits), len(limits), limits.is_empty()) == ({"fr": 1}, 1, False)
            assert limits.contains("fr")
            limits["fr"] = 2

    with mp.testing.KeyedOperatorHarness(Meddling(), key="k") as operator:
        operator.process_broadcast({"country": "fr", "max": 1})
        with pytest.raises(errors.UserFunctionError, match="does not support item assignment"):
            operator.process(paid("a", "fr", 1))


def test_what_is_applied_to_keyed_state_runs():
    """A function with a yield is refused in `apply_to_keyed_state`, because it would not run."""

    def clear(_, state):
        yield state.clear()

    class Yielding(Limits):
        def process_broadcast_element(self, row, context):
            context.apply_to_keyed_state(SPENT, clear)

    with mp.testing.KeyedOperatorHarness(Yielding(), key="k") as operator:
        operator.process(paid("a", "fr", 1))
        with pytest.raises(errors.UserFunctionError, match="a function that runs when it is call"):
            operator.process_broadcast({"country": "fr", "max": 1})


def test_broadcast_rows_have_no_current_key():
    """Broadcast rows can use keyed state only by `apply_to_keyed_state`; the error says so."""

    class Keyed(Limits):
        def process_broadcast_element(self, row, context):
            self.spent.update(1)

    with mp.testing.KeyedOperatorHarness(Keyed(), key="k") as operator:
        operator.process(paid("a", "fr", 1))
        with pytest.raises(errors.UserFunctionError, match="no current key"):
            operator.process_broadcast({"country": "fr", "max": 1})


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.spark
@BACKENDS
def test_rules_of_a_query(spark, job_conf, tmp_path, backend):
    """Rules reach all subtasks, apply in later batches and after a rescale, and tools show them."""
    events = Files(spark, tmp_path / "events", "k string, country string, n bigint")
    rules = Files(spark, tmp_path / "rules", "country string, seq int, max bigint")

    def go(parallelism):
        job_conf(state_backend=backend, parallelism=parallelism)
        connected = key_by(events.stream(), "k").connect(rules.stream(), order_by="seq")
        run(
            connected.process(Limits(), output="k string, country string, over long", uid="limits"),
            tmp_path,
        )

    keys = [f"k{n}" for n in range(8)]
    rules.add(("fr", 3, 15), ("fr", 1, 500), ("de", 2, 1000))
    events.add(*((key, "fr", 10) for key in keys))
    go(2)
    assert output(spark, tmp_path) == []
    events.add(*((key, "fr", 10) for key in keys))
    go(3)
    assert output(spark, tmp_path) == sorted((key, "fr", 5) for key in keys)
    rules.add(("fr", 4, None))
    events.add(*((key, "fr", 10) for key in keys))
    go(1)
    assert len(output(spark, tmp_path)) == len(keys)
    create_savepoint(spark, str(tmp_path / "query" / "checkpoint"), tmp_path / "saved")
    (stored,) = open_stored(tmp_path / "saved")
    rows = state_table(stored, "limits").to_pylist()
    assert rows == [{"subtask": 0, "map_key": "de", "value": 1000}]
    assert {row["value"] for row in state_table(stored, "spent").to_pylist()} == {10}


@pytest.mark.spark
def test_what_does_not_belong_together_is_refused(spark, job_conf, files):
    """A broadcast stream needs a broadcast function and the reverse; batch and stream cannot be mixed."""
    job_conf(state_backend="heap")
    files.add(("a", 1))
    stream, table = files.stream(), spark.createDataFrame([("fr", 1)], "country string, max int")
    with pytest.raises(errors.ConfigError, match="belong together"):
        key_by(stream, "k").process(Limits(), output=RUNNING, uid="x")
    with pytest.raises(errors.ConfigError, match="belong together"):
        key_by(stream, "k").connect(files.stream()).process(Running(), output=RUNNING, uid="x")
    with pytest.raises(errors.ConfigError, match="streaming"):
        key_by(stream, "k").connect(table)


@pytest.mark.spark
def test_rules_of_a_plain_batch(spark, job_conf):
    """Broadcast rows of a plain DataFrame come before all keyed rows."""
    job_conf(state_backend="heap", parallelism=2)
    rows = spark.createDataFrame(
        [("a", "fr", 10), ("b", "fr", 3)], "k string, country string, n int"
    )
    rules = spark.createDataFrame([("fr", 4)], "country string, max int")
    connected = key_by(rows, "k").connect(rules)
    out = connected.process(Limits(), output="k string, country string, over long", uid="limits")
    assert [tuple(row) for row in out.collect()] == [("a", "fr", 6)]
