"""Spark Connect: uses of a classic session, by a client of a real server on loopback."""

import json
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from millpond import errors

from tests.spark import connect_jobs as jobs
from tests.spark.failing import mark
from tests.spark.retail_runs import PATIENCE_S

pytestmark = pytest.mark.spark
KEYS = [f"k{number}" for number in range(12)]


def process(begin, *args):
    """Start a process that runs jobs; each process uses one kind of pyspark."""
    return ProcessPoolExecutor(1, get_context("spawn"), begin, args)


def ask(pool, job, *args, **named):
    """Return the result of a job in such a process."""
    return pool.submit(jobs.run, job, *args, **named).result(PATIENCE_S)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run jobs in the server's own classic session."""
    with process(jobs.serve, str(tmp_path_factory.mktemp("warehouse"))) as pool:
        yield partial(ask, pool)


@pytest.fixture(scope="module")
def client(server):
    """Run jobs over Spark Connect."""
    with process(jobs.connect, f"sc://127.0.0.1:{server(jobs.port)}") as pool:
        yield partial(ask, pool)


def give(folder, number):
    """Write a row for each key, which makes a batch."""
    jobs.add(folder, *({"k": key, "n": number} for key in KEYS))


@pytest.fixture(scope="module")
def stopped(client, tmp_path_factory):
    """The folder of a stopped query with one batch."""
    folder = tmp_path_factory.mktemp("stopped")
    give(folder, 1)
    assert client(jobs.stream, folder, 2) == sums(1)
    return folder


def sums(rounds):
    """Return the running sums after a number of batches."""
    return sorted((key, n, n * (n + 1) // 2) for key in KEYS for n in range(1, rounds + 1))


@pytest.mark.long
def test_the_server_listens_on_loopback_alone(server, client):
    """With the binding address of the docs, the server listens only on loopback."""
    found = server(jobs.listening)
    assert server(jobs.port) in {number for _, number in found}
    assert {address for address, _ in found} <= {
        "0100007F",
        "0000000000000000FFFF00000100007F",
        "00000000000000000000000001000000",
    }


@pytest.mark.long
def test_everyday_use(server, client, tmp_path):
    """The Spark Connect blocks of the page of everyday use run unchanged."""
    client(jobs.page, f"sc://127.0.0.1:{server(jobs.port)}", tmp_path)


def test_a_module_that_workers_lack(client, tmp_path):
    """If the workers lack a module, a query names operator, module and cure; with the cure it runs."""
    before, after = client(jobs.lacking, tmp_path)
    assert "Operator 'shop': this worker cannot load Shop: ModuleNotFoundError" in before
    assert "addArtifacts" in before
    assert after == [("a", 1, 1)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_rows_that_are_not_streaming(client, mode):
    """A plain DataFrame is processed by a function that only the client has."""
    assert client(jobs.batch, mode) == [("a", 1), ("a", 3), ("b", 2)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_sorted_maps(client, mode):
    """A function with a sorted map runs from a client."""
    assert client(jobs.sorted_maps, mode) == [("a", [3]), ("a", [4, 3]), ("a", [5, 4]), ("b", [2])]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (jobs.unshippable, "Locked cannot be pickled for the workers"),
        (jobs.unnumbered, "spark.millpond.parallelism"),
        (jobs.listen, "subtask_metrics(spark, checkpoint)"),
    ],
)
def test_what_is_refused_in_the_client(client, job, said):
    """Wrong calls are refused in the client immediately, with a reason."""
    error, text = client(job)
    assert error is errors.ConfigError
    assert said in text


@pytest.mark.long
def test_dead_letters(client, tmp_path):
    """A row that fails is in the side output, and leaves no trace in the state of its key."""
    jobs.add(tmp_path, {"k": "a", "n": 1}, {"k": "a", "n": -2})
    jobs.add(tmp_path, {"k": "a", "n": 3}, {"k": "b", "n": -4})
    main, letters = client(jobs.dead_letters, tmp_path)
    assert main == [("a", 1, 1), ("a", 2, 4)]
    assert letters == [
        ("a", -2, "ValueError: -2 is negative"),
        ("b", -4, "ValueError: -4 is negative"),
    ]


@pytest.mark.long
def test_async_calls(client, tmp_path):
    """The calls of a function that only the client has overlap, with state before and after them."""
    jobs.add(tmp_path, {"k": "a", "n": 1}, {"k": "b", "n": 2})
    jobs.add(tmp_path, {"k": "b", "n": 3}, {"k": "a", "n": 4})
    expected = [("a", 1, 1), ("a", 2, 5), ("b", 1, 2), ("b", 2, 5)]
    assert client(jobs.async_calls, tmp_path) == expected


def test_restarts_and_rescales(client, server, tmp_path):
    """A restarted query continues; another parallelism needs the command in the error.

    A classic session continues the query without a command, and Spark Connect can continue
    afterwards.
    """
    checkpoint = str(tmp_path / "query" / "checkpoint")
    give(tmp_path, 1)
    assert client(jobs.stream, tmp_path, 2) == sums(1)
    give(tmp_path, 2)
    assert client(jobs.stream, tmp_path, 2) == sums(2)
    give(tmp_path, 3)
    name, text = client(jobs.stream, tmp_path, 3)
    assert name == "StreamingQueryException"
    command = re.search(r"run: millpond (.*--parallelism 3)", text)[1].split()
    command[command.index("CHECKPOINT_LOCATION")] = checkpoint
    millpond = Path(sys.executable).with_name("millpond")
    said = subprocess.run([millpond, *command, "--json"], check=True, capture_output=True)
    (row,) = json.loads(said.stdout)
    assert row == {"operator": "running", "subtasks": 3, "after_batch": 1, "sources": 2}
    assert client(jobs.stream, tmp_path, 3) == sums(3)
    assert {row[:2] for row in client(jobs.figures, tmp_path)} == {(3, 0), (3, 43), (3, 86)}
    give(tmp_path, 4)
    assert server(jobs.stream, tmp_path, 2) == sums(4)
    give(tmp_path, 5)
    assert client(jobs.stream, tmp_path, 2) == sums(5)


@pytest.mark.long
def test_divisions(client, tmp_path):
    """State follows its key groups up and down, after a call of ``rescale`` each time."""
    for rounds, parallelism in enumerate((2, 4, 1), start=1):
        give(tmp_path, rounds)
        if rounds > 1:
            assert client(jobs.divide, tmp_path, parallelism) is None
        assert client(jobs.stream, tmp_path, parallelism, state_backend="rocksdb") == sums(rounds)


def test_operators_keep_their_uids(client, stopped):
    """State of another uid is refused with a cure."""
    give(stopped, 2)
    _, text = client(jobs.stream, stopped, 2, uid="other")
    assert "state of 'running', but the query's operators are 'other'" in text


@pytest.mark.long
def test_savepoints(client, stopped, tmp_path):
    """A savepoint is written and read over Spark Connect, and another query starts from it."""
    expected = [(key, 1) for key in sorted(KEYS)]
    savepoint = str(tmp_path / "savepoint")
    assert client(jobs.save, stopped, savepoint) == [expected, expected]
    give(tmp_path, 2)
    rows = client(jobs.start_from, tmp_path, 3, savepoint, "second")
    assert rows == [(key, 2, 3) for key in sorted(KEYS)]


def test_metrics(client, stopped):
    """The metrics of subtasks are read over Spark Connect."""
    assert [row[:2] for row in client(jobs.figures, stopped)] == [(1, 0), (1, 64)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("in_foreach_batch", [False, True])
@pytest.mark.parametrize("by_clock", [False, True])
def test_timers(client, tmp_path, by_clock, in_foreach_batch):
    """Timers fire in later batches, also in one without rows, and the query ends."""
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:00"})
    jobs.add(tmp_path, {"k": "b", "at": "2024-01-01 00:01:00"})
    jobs.add(tmp_path, {"k": "c", "at": "2024-01-01 00:02:00"})
    fired = client(jobs.alarms, tmp_path, by_clock, in_foreach_batch=in_foreach_batch)
    assert {("a",), ("b",)} <= set(fired)


def test_a_query_that_might_not_end(client, tmp_path):
    """With processing-time timers the log says what ``availableNow`` needs; otherwise it says nothing."""
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:00"})
    said = client(jobs.warned, tmp_path, "processing-time")
    assert (
        "ends only if the session has spark.sql.streaming.noDataMicroBatches.enabled=false" in said
    )
    assert client(jobs.warned, tmp_path, "event-time") == ""


def test_windows(client, tmp_path):
    """Windows fire once the watermark has passed them."""
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:00"})
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:01"})
    jobs.add(tmp_path, {"k": "b", "at": "2024-01-01 00:02:00"})
    assert client(jobs.windowed, tmp_path) == [("a", 2)]


@pytest.mark.long
def test_joins(client, tmp_path):
    """An interval join pairs rows, and puts out rows without a partner."""
    times = [f"2024-01-01 00:0{minute}:00" for minute in (0, 1, 3)]
    for time in times:
        jobs.add(tmp_path, {"k": "a", "at": time})
    jobs.add(tmp_path, {"k": "z", "at": "2024-01-01 00:09:00"})
    assert [row for row in client(jobs.joined, tmp_path) if row[0] == "a"] == [
        ("a", times[0], None), ("a", times[1], times[0]), ("a", times[2], None),
    ]  # fmt: skip


def test_patterns(client, tmp_path):
    """A pattern finds rows in the order of their event times."""
    jobs.add(
        tmp_path, {"k": "a", "at": "2024-01-01 00:00:03"}, {"k": "a", "at": "2024-01-01 00:00:09"}
    )
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:12"})
    jobs.add(tmp_path, {"k": "b", "at": "2024-01-01 00:02:00"})
    assert client(jobs.searched, tmp_path) == [("a", 12)]


@pytest.mark.long
def test_windows_behind_an_outer_join(client, tmp_path):
    """Windows behind an outer join of two streams get the rows without a match in time."""
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:00"})
    jobs.add(tmp_path, {"k": "b", "at": "2024-01-01 00:00:11"})
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:12"})
    jobs.add(tmp_path, {"k": "b", "at": "2024-01-01 00:03:00"})
    assert sorted(client(jobs.behind_join, tmp_path)) == [("a", 1), ("a", 1), ("b", 1)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("case", "kind", "said"),
    [
        ("windows", errors.NoWatermarkError, "'timely': windows of event time need a watermark"),
        ("timers", "StreamingQueryException", "NoWatermarkError: Operator 'timely': timers and"),
        ("clock", "StreamingQueryException", "TimeModeError: Operator 'timely' sets a processing"),
        ("behind", errors.EventTimeChainError, "output of operator 'timely'.* would wait for rows"),
        ("mode", errors.OutputModeError, r"'timely' is made for 'append': make it by process\("),
    ],
)
def test_what_would_give_no_row(client, tmp_path, case, kind, said):
    """A query that would yield no row is refused as in a classic session, by the client or the first timer."""
    jobs.add(tmp_path, {"k": "a", "at": "2024-01-01 00:00:01"})
    found, message = client(jobs.untimely, tmp_path, case)
    assert found == kind, message
    assert re.search(said, message), message


def test_broadcast_in_foreach_batch(client, tmp_path):
    """A function of `foreachBatch` may use `key_by` and `connect` with the batches."""
    give(tmp_path, 1)
    assert client(jobs.broadcast, tmp_path) == [(key, 7) for key in sorted(KEYS)]


@pytest.mark.long
@pytest.mark.sample(6)
@pytest.mark.parametrize("name", jobs.ACTIONS)
@pytest.mark.parametrize("where", ["client", "server"])
def test_actions_in_foreach_batch(request, tmp_path, where, name):
    """Each action gives the same result as with Spark's own operator, in any thread."""
    ask = request.getfixturevalue(where)
    for number in range(2):
        give(tmp_path, number)
    millpond = ask(jobs.each_action, tmp_path, name, plain=False)
    assert millpond == ask(jobs.each_action, tmp_path, name, plain=True)
    assert millpond.count("\n") == 2


def test_two_operators_in_a_query(client, tmp_path):
    """Two operators are refused with Millpond's message, which says that Spark Connect cannot allow them."""
    give(tmp_path, 1)
    kind, said = client(jobs.two_operators, tmp_path)
    assert kind is errors.SeveralOperatorsError
    assert "Over Spark Connect this cannot be allowed" in said


ROW = r"Operator 'totals', subtask \d, key 'a', row Row\(k='a', n=1\): "
FAILURES = {
    "batch": (jobs.failing_batch, jobs.Misspelling(), "misspelt"),
    "a type": (jobs.failing_batch, jobs.Mistyping(), "type"),
    "a stream": (jobs.failing_stream, jobs.Misspelling(), "misspelt"),
}
SAID = {
    "misspelt": r"Misspelling.process_element failed \(PLACE\): AttributeError: .* no column 'm'",
    "type": r"Mistyping.process_element failed \(PLACE\): output column 'rows' is declared int, "
    "the function yielded str 'one'",
}


def pattern(said, name):
    """Return the expected message, with the place of a mark in the jobs."""
    place = f"{jobs.__file__}, line {mark(name, jobs.__file__)}"
    return said.replace("PLACE", re.escape(place))


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_told_in_the_client(client, tmp_path, case):
    """Operator, key, row, and the user's error with its line come first, then the user's frames."""
    job, function, name = FAILURES[case]
    jobs.add(tmp_path, {"k": "a", "n": 1})
    _, said = client(job, *((tmp_path,) if job is not jobs.failing_batch else ()), function)
    head = said.partition("Traceback (most recent call last):")[0].splitlines()
    # For a DataFrame Spark's client first prints an empty line and a heading.
    assert len(head) <= (1 if case == "a stream" else 4), said
    assert re.search(ROW + pattern(SAID[name], name), head[-1]), said
    users = said.partition("\nBehind it, in Millpond:\n")[0]
    assert f'File "{jobs.__file__}", line {mark(name, jobs.__file__)}, in process_element' in users
    assert "/millpond/" not in users


def test_failures_in_foreach_batch_are_told_in_the_client(client, tmp_path):
    """The message is on the first line, with the place of the action; the user's frames follow."""
    jobs.add(tmp_path, {"k": "a", "n": 1})
    _, said = client(jobs.failing_each, tmp_path, jobs.Mistyping())
    place = rf"{jobs.__file__}, line {mark('each', jobs.__file__)}"
    sentence = rf"foreachBatch failed in batch 0 \({re.escape(place)}\): \S*UserFunctionError: "
    head = said.splitlines()[0]
    assert re.search(sentence + ROW + pattern(SAID["type"], "type"), head), said
    assert "/millpond/" not in said
    assert len(said.partition("\n=== Streaming Query ===")[0]) < 3_000, said


def test_a_null_key_and_no_directory_name_the_operators_line(client, tmp_path):
    """If the error is not in the function, the place of the ``process`` call is named."""
    _, said = client(jobs.without_keys)
    at = pattern(r"\(the operator is made at PLACE\)", "null key")
    assert re.search(r"the key \(k\) of this row is null: .*" + at, said), said
    jobs.add(tmp_path, {"k": "a", "n": 1})
    _, said = client(jobs.nowhere, tmp_path)
    at = pattern(r"\(the operator is made at PLACE\)", "nowhere")
    first = said.splitlines()[0]
    assert re.search(r"spark\.millpond\.checkpoint\.dir: .*/proc/nowhere.*" + at, first), said
