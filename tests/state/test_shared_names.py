"""One name for a keyed state, a list and a broadcast state of an operator: three states."""

import json

import attrs
import millpond as mp
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond_cli.inspection.stored_operator import state_table
from millpond_cli.main import commands

from tests.checkpoint.opened import open_stored

ITEMS = mp.ListStateDescriptor("items", int)
RULES = mp.MapStateDescriptor("items", str, int)


LONG = "n" * 250


class Shared(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that uses the name ``items`` three times."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self.list, self.rules = store.get_list_state(ITEMS), store.get_broadcast_state(RULES)
        self.names = store.get_registered_state_names()

    def open(self, context):
        self.keyed = context.get_state(mp.ValueStateDescriptor("items", float, default=0.0))

    def process_element(self, row, context):
        self.keyed.update(self.keyed.value() + row.n)
        self.list.add(row.n)
        self.rules.put(row.k, row.n)
        yield row.k, self.keyed.value(), self.list.get(), dict(self.rules.items())

    def snapshot_state(self, context):
        """Do nothing: the states are complete."""


class LongNames(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that uses a long name twice."""

    def initialize_state(self, context):
        store = context.operator_state_store
        self.list = store.get_list_state(attrs.evolve(ITEMS, name=LONG))
        self.rules = store.get_broadcast_state(attrs.evolve(RULES, name=LONG))

    def process_element(self, row, context):
        self.list.add(row.n)
        self.rules.put(row.k, row.n)
        yield self.list.get(), dict(self.rules.items())

    def snapshot_state(self, context):
        """Do nothing: the states are complete."""


def harness(backend, **options):
    """Return the function in a harness."""
    return mp.testing.KeyedOperatorHarness(Shared(), key="k", backend=backend, **options)


@pytest.fixture
def saved(tmp_path):
    """A savepoint of the operator."""
    with harness("heap") as operator:
        operator.process({"k": "a", "n": 1})
        operator.savepoint(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("way", ["snapshot", "savepoint"])
def test_three_states_of_one_name(tmp_path, backend, way):
    """All three states are restored, from a snapshot and from a savepoint."""
    with harness(backend) as operator:
        operator.process({"k": "a", "n": 1})
        if way == "snapshot":
            start = operator.snapshot()
        else:
            start = tmp_path / "saved"
            operator.savepoint(start)
    with harness(backend, restore=start) as operator:
        operator.process({"k": "a", "n": 2})
        assert operator.output == [("a", 3.0, [1, 2], {"a": 2})]


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_a_rescale_keeps_them_apart(backend):
    """A rescale divides the list, and gives the map to all subtasks."""
    with harness(backend) as operator:
        for n in (1, 2):
            operator.process({"k": "a", "n": n})
        start = operator.snapshot()
    found = []
    for subtask in range(2):
        options = {"restore": start, "subtask": subtask, "parallelism": 2}
        with harness(backend, **options) as operator:
            key = next(k for k in "abcdef" if mp.assign_to_key_group(k, 128) // 64 == subtask)
            operator.process({"k": key, "n": 10})
            (row,) = operator.output
            found.append(row[2])
            assert row[3] == {"a": 2} | {key: 10}
    assert found == [[1, 10], [2, 10]]


def test_names_are_told_apart_by_scope():
    """A list and a broadcast state may share a name; a union list and a split list may not."""
    with mp.open_operator_backend() as backend:
        backend.get_broadcast_state(RULES).put("a", 1)
        backend.get_list_state(ITEMS).add(2)
        assert backend.get_registered_state_names() == {"items"}
        assert backend.get_registered_broadcast_state_names() == {"items"}
        with pytest.raises(errors.StateConflictError, match="registered as split"):
            backend.get_union_list_state(ITEMS)
        assert dict(backend.get_broadcast_state(RULES).items()) == {"a": 1}


def test_tables_lie_in_folders_of_their_own(saved):
    """A broadcast state with a list's name has a separate folder in a savepoint."""
    folder = saved / "operator"
    assert pq.read_table(folder / "items!broadcast" / "operator.parquet").num_rows == 1
    edited = pq.read_table(folder / "items" / "operator.parquet").set_column(1, "value", [[7]])
    pq.write_table(edited, folder / "items" / "operator.parquet")
    mp.seal_savepoint(saved)
    mp.rekey_savepoint(saved, saved.parent / "rekeyed", 256)
    with harness("heap", restore=saved.parent / "rekeyed", max_parallelism=256) as operator:
        operator.process({"k": "a", "n": 2})
        assert operator.output == [("a", 3.0, [7, 2], {"a": 2})]


def test_folders_of_long_names(tmp_path):
    """Both folders of a very long name have valid names."""
    start = tmp_path / "saved"
    with mp.testing.KeyedOperatorHarness(LongNames(), key="k") as operator:
        operator.process({"k": "a", "n": 1})
        operator.savepoint(start)
    assert (start / "operator" / LONG).is_dir()
    mp.seal_savepoint(start)
    with mp.testing.KeyedOperatorHarness(LongNames(), key="k", restore=start) as operator:
        operator.process({"k": "b", "n": 2})
        assert operator.output == [([1, 2], {"a": 1, "b": 2})]


def test_the_writer_asks_for_the_scope(saved, tmp_path):
    """`SavepointWriter` needs `scope` to remove or rename such a state."""
    writer = mp.SavepointWriter.from_existing(saved)
    with pytest.raises(errors.ArgumentValueError, match="'keyed' or 'broadcast' or 'list'"):
        writer.remove_state("operator", "items")
    writer.remove_state("operator", "items", "list")
    with pytest.raises(errors.ArgumentValueError, match="'keyed' or 'broadcast'"):
        writer.remove_state("operator", "items", "list")
    writer.rename_state("operator", "items", "limits", "broadcast").write(tmp_path / "second")
    (operator,) = open_stored(tmp_path / "second")
    assert operator.state_names() == ["items", "limits"]
    assert state_table(operator, "limits")["map_key"].to_pylist() == ["a"]
    assert state_table(operator, "items")["key"].to_pylist() == ["a"]


def test_tools_ask_for_the_scope(saved):
    """``millpond state dump`` names the scopes; with `--scope` it prints that state."""
    call = ["state", "dump", str(saved), "items"]
    refused = CliRunner().invoke(commands, call)
    assert refused.exit_code == 1
    assert "in scope broadcast, keyed, list: give one of these" in refused.stderr
    rows = {}
    for scope in ("keyed", "list", "broadcast"):
        rows[scope] = json.loads(CliRunner().invoke(commands, [*call, "--scope", scope]).stdout)
    assert rows["list"] == {"subtask": 0, "value": 1}
    assert rows["broadcast"] == {"subtask": 0, "map_key": "a", "value": 1}
    assert (rows["keyed"]["key"], rows["keyed"]["value"]) == ("a", 1.0)
