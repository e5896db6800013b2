"""If some subtasks have not run since a rescale, each element of operator state is read once, and no old one."""

import json
from typing import ClassVar

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.config import RestoreConfig
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.snapshots.operator_state import have_same_content, read_partitions
from millpond.spark import create_savepoint, key_by
from millpond_cli.inspection.stored_operator import operator_of_parts, state_table
from millpond_cli.main import commands
from pyspark.sql.types import StructType

from tests.checkpoint.opened import open_stored
from tests.operator_plans import plan_of
from tests.spark.half_run import KEYS, QUERY, HalfRun, Keeping
from tests.spark.streaming import run


class Listed(mp.KeyedProcessFunction, mp.ListCheckpointed):
    """Function with a list of strings."""

    element_type: ClassVar = str

    def __init__(self, elements):
        self.elements = elements

    def restore_state(self, elements):
        self.elements = elements

    def process_element(self, row, context):
        return None

    def snapshot_state(self, checkpoint_id):
        return self.elements


class Silent(Keeping):
    """Function with only a union list, of one empty string per subtask."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self.union = self.split = store.get_union_list_state(mp.ListStateDescriptor("union", str))
        self.heard, self.rules, self.by_group = self.union.get(), {}, {}

    def process_element(self, row, context):
        self.seen.update(self.seen.value() + 1)

    def snapshot_state(self, context):
        self.union.update([""])


def half_run(tmp_path, made):
    """Two subtasks have run; after a rescale to three, the first one has."""
    folder = (tmp_path / "snapshots").as_uri()
    config = mp.Config({"checkpoint.dir": folder, "max-parallelism": 128})
    plan = plan_of(QUERY.uid, made(), StructType().add("k", "string"), config, "heap")
    query = HalfRun(plan, mp.checkpoint_storage(folder), 2, made)
    query.run(0, 1)
    query.rescale(3)
    query.run(0)
    return query


@pytest.fixture
def query(tmp_path):
    """Two subtasks have run, and one of three since a rescale, with rows in each kind of state."""
    return half_run(tmp_path, Keeping)


def rows_of(query):
    """Return each row that was processed so far."""
    return sorted(query.truth.elements())


def counts(query):
    """Return the number of rows of each key group."""
    found = {}
    for key, count in query.truth.items():
        group = mp.assign_to_key_group(key, 128)
        found[group] = found.get(group, 0) + count
    return found


def held(functions):
    """Return the union of all subtasks' split lists, raw keyed state, union lists and rules."""
    raw = {}
    for each in functions:
        assert not raw.keys() & each.raw.keys()
        raw |= each.raw
    unions = {tuple(sorted(each.heard)) for each in functions}
    split = sorted(row for each in functions for row in each.held)
    return split, raw, unions, [each.told for each in functions]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 7])
def test_a_second_rescale_before_all_have_run(query, parallelism):
    """After a second rescale, replaced elements do not reappear, and shared ones occur once."""
    query.rescale(parallelism)
    split, raw, unions, rules = held(query.look())
    assert (split, raw) == (rows_of(query), counts(query))
    assert unions == {("1-0", "1-1", "2-0")}
    assert rules == [{"all": 1}] * parallelism


def test_a_union_list_of_empty_texts(tmp_path):
    """Shared elements of a union list occur once, even if they are empty strings."""
    query = half_run(tmp_path, Silent)
    for parallelism in (1, 3, 4):
        query.rescale(parallelism)
        assert [list(each.heard) for each in query.look()] == [[""] * 3] * parallelism


@pytest.mark.parametrize("elements", [[""], ["", "a"], []])
def test_lists_that_have_not_changed_are_not_written_again(elements):
    """The next snapshot refers to unchanged lists of the previous one, also of empty elements."""
    with mp.testing.KeyedOperatorHarness(Listed(elements), key="k") as operator:
        (first,), (second,) = (operator.snapshot().operator_state for _ in range(2))
    assert (first.checkpoint_id, second.checkpoint_id) == (1, 1)


def test_a_share_of_a_file_holds_its_own_elements_alone():
    """An empty element of one file is not confused with an element of another file."""
    with mp.testing.KeyedOperatorHarness(Listed(["", "\0"]), key="k") as operator:
        (whole,) = operator.snapshot().operator_state
    (state,) = whole.states
    share = attrs.evolve(whole, states=(attrs.evolve(state, partitions=(1,)),))
    assert read_partitions(share) == {1: b"\0"}
    assert have_same_content(whole, whole)
    assert not have_same_content(whole, share)


def test_rescales_one_after_the_other(query):
    """After several rescales before all subtasks have run, each element occurs once."""
    for parallelism, running in ((5, (3,)), (2, (1,)), (4, ()), (3, (0, 2))):
        query.rescale(parallelism)
        query.run(*running)
        split, raw, _, rules = held(query.look())
        assert (split, raw) == (rows_of(query), counts(query))
        assert rules == [{"all": 1}] * parallelism
    query.run(0, 1, 2)
    query.rescale(2)
    assert held(query.look())[2] == {("7-0", "7-1", "7-2")}


def test_the_driver_reads_no_larger_file_than_is_allowed(query):
    """The driver refuses raw keyed state larger than `restore.max-file-bytes`."""
    query.rescale(3)
    assert query.handles()
    with pytest.raises(errors.CorruptSnapshotError, match="restore.max-file-bytes"):
        query.handles(RestoreConfig(max_file_bytes=10))


def test_the_same_parallelism_keeps_lists_where_they_are(query):
    """If the parallelism is unchanged, each subtask keeps its lists, also if operators change their order."""
    before = [sorted(each.held) for each in query.look()]
    query.rescale(3)
    assert [sorted(each.held) for each in query.look()] == before


def test_a_savepoint_before_all_have_run(query, tmp_path):
    """A savepoint has the same content by subtask, and can be restored with any parallelism."""
    target = get_registry().savepoint(tmp_path / "saved")
    collect_savepoint({QUERY.uid: query.handles()}, target, get_registry())
    for parallelism in (1, 3, 4):
        found = []
        for index in range(parallelism):
            with mp.testing.KeyedOperatorHarness(
                Keeping(), key="k", restore=target, subtask=index, parallelism=parallelism
            ) as operator:
                function = operator._operator._function
                function.held, function.raw = function.split.get(), dict(function.by_group)
                function.told = dict(function.rules.items())
                found.append(function)
        split, raw, unions, rules = held(found)
        assert (split, raw) == (rows_of(query), counts(query))
        assert unions == {("1-0", "1-1", "2-0")}
        assert rules == [{"all": 1}] * parallelism


def test_tools_number_subtasks_by_their_key_groups(query):
    """Tools number subtasks by their key groups, not by the order in which snapshots are found."""
    query.rescale(12)
    query.run(*range(12))
    parts = sorted(query.handles(), key=lambda handle: handle.metadata)
    stored = operator_of_parts(QUERY, parts, get_registry())
    rows = state_table(stored, "raw-keyed-stream").to_pylist()
    groups = [query.layout.key_groups(index) for index in range(12)]
    assert len({row["subtask"] for row in rows}) > 2
    assert all(row["value"]["_1"] in groups[row["subtask"]] for row in rows)
    assert len(KEYS) == len(state_table(stored, "seen"))


@pytest.mark.parametrize("elements", [[""], ["", "a"]])
def test_elements_of_no_bytes_are_told_apart(elements):
    """If two subtasks have equal lists of empty strings, all elements count."""
    handles = []
    for subtask in range(2):
        with mp.testing.KeyedOperatorHarness(
            Listed(elements), key="k", subtask=subtask, parallelism=2
        ) as operator:
            handles.append(operator.snapshot())
    function = Listed([])
    with mp.testing.KeyedOperatorHarness(function, key="k", restore=handles):
        assert sorted(function.elements) == sorted(2 * elements)


def command_output(*call, status=0):
    """Return the output of a command."""
    result = CliRunner().invoke(commands, [str(each) for each in call])
    assert result.exit_code == status, result.output
    return result.stderr if status else result.stdout


def test_tools_that_know_no_pointers_refuse_lists_alone(query, tmp_path):
    """Without pointers, tools read everything except lists, whose valid elements the directory does not show."""
    directory, target = tmp_path / "snapshots", tmp_path / "target"
    assert len(command_output("state", "dump", directory, "seen").splitlines()) == len(KEYS)
    raw = [
        json.loads(row)
        for row in command_output("state", "dump", directory, "raw-keyed-stream").splitlines()
    ]
    assert {row["value"]["_1"] for row in raw} == counts(query).keys()
    assert len(raw) == len(counts(query))
    assert '"map_key": "all", "value": 1' in command_output("state", "dump", directory, "rules")
    assert "split" in command_output("state", "list", directory)
    create = ("savepoint", "create", directory, target, "--snapshots", directory)
    edit = ("state", "edit", directory, "seen", KEYS[0], target, "--set", "1")
    for call in (("state", "dump", directory, "split"), create, edit):
        assert "were divided again" in command_output(*call, status=1)
    assert not target.exists()
    query.run(1, 2)
    assert len(command_output("state", "dump", directory, "split").splitlines()) == len(
        rows_of(query)
    )
    command_output(*edit)


@pytest.mark.parametrize("parallelism", [1, 4])
def test_lists_are_refused_wherever_a_subtask_has_not_run(query, tmp_path, parallelism):
    """They refuse such lists also after a rescale to fewer subtasks, which divides no key groups."""
    directory = tmp_path / "snapshots"
    query.run(1, 2)
    query.rescale(2 * parallelism)
    query.run(*range(2 * parallelism))
    command_output("state", "dump", directory, "split")
    query.rescale(parallelism)
    for index in range(parallelism):
        query.run(index)
        command_output("state", "dump", directory, "split", status=int(index + 1 < parallelism))


def test_old_and_new_snapshots_that_divide_the_key_groups(query, tmp_path):
    """A snapshot from before a rescale is not mixed with new ones that cover the same key groups."""
    directory = tmp_path / "snapshots"
    query.rescale(2)
    query.run(0)
    command_output("state", "dump", directory, "split", status=1)
    query.run(1)
    assert len(command_output("state", "dump", directory, "split").splitlines()) == len(
        rows_of(query)
    )


@pytest.mark.long
def test_a_query_that_is_rescaled_twice(spark, job_conf, files, tmp_path):
    """After two rescales, savepoints contain each element once, although most subtasks had no row."""
    checkpoint, given = str(tmp_path / "query" / "checkpoint"), []
    job_conf(state_backend="heap")
    for parallelism, keys in ((2, KEYS), (4, KEYS[:1]), (3, KEYS[1:2]), (3, KEYS)):
        job_conf(parallelism=parallelism)
        files.add(*((key, 1) for key in keys))
        given += keys
        stream = key_by(files.stream(), "k")
        run(stream.process(Keeping(), output="k string", uid="keeping"), tmp_path)
        saved = tmp_path / f"saved-{len(given)}"
        create_savepoint(spark, checkpoint, saved)
        (stored,) = open_stored(saved)
        split = [row["value"] for row in state_table(stored, "split").to_pylist()]
        assert sorted(split) == sorted(given)
        raw = [row["value"] for row in state_table(stored, "raw-keyed-stream").to_pylist()]
        assert len({row["_1"] for row in raw}) == len(raw)
        assert sum(int(row["_2"]) for row in raw) == len(given)
        unions = [row["value"] for row in state_table(stored, "union").to_pylist()]
        assert len(unions) == len(set(unions))
