"""Other operators and queries in a checkpoint directory do not affect the selected one."""

import json

import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.local.queryable import QueryableStateClient
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import write_sealed
from millpond.snapshots.paths import layout_path
from millpond_cli.datasource import MillpondDataSource
from millpond_cli.inspection.stored_operator import state_table
from millpond_cli.main import commands

from tests.checkpoint.opened import open_stored
from tests.checkpoint.stored import confirmed

LOWER, UPPER = mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)
BOTH = mp.KeyGroupRange(0, 127)
CONFIG = mp.Config({"state.snapshot.strategy": "full", "checkpoint.retained": 2})


def store(directory, place, groups, checkpoints):
    """Take confirmed snapshots of a subtask of ``query/uid``; two are retained."""
    storage = mp.checkpoint_storage(str(directory))
    layout = layout_path(OperatorId.from_text(place), 1)
    write_sealed(storage, layout, json.dumps({"sources": []}))
    confirmed(storage, groups, checkpoints, backend="heap", place=place, config=CONFIG)


@pytest.fixture
def directory(tmp_path):
    """Two operators of query q1 that are complete at checkpoint 3, and one of q2 from checkpoint 8 on."""
    place = tmp_path / "snapshots"
    place.mkdir()
    store(place, "q1/first", BOTH, [1, 2, 3])
    store(place, "q1/second", BOTH, [1, 2, 3])
    store(place, "q2/third", LOWER, range(1, 10))
    store(place, "q2/third", UPPER, [1])
    return place


def damage(directory, place):
    """Truncate the newest snapshot of an operator."""
    file = max((directory / place).rglob("*.snapshot"))
    file.write_bytes(file.read_bytes()[:-5])


def millpond(*words):
    """Return exit status and output of a command."""
    result = CliRunner().invoke(commands, list(map(str, words)))
    return result, " ".join(result.stderr.split())


def test_an_edit_needs_its_own_query_alone(directory, tmp_path):
    """An edit ignores incomplete other queries, and keeps all operators of its own query."""
    target, choice = tmp_path / "edited", ("--operator", "first", "--id", 3)
    result, said = millpond("state", "edit", directory, "total", 1, target, *choice, "--set", 7)
    assert result.exit_code == 0, said
    edited = {str(each.operator): state_table(each, "total") for each in open_stored(target)}
    assert {name: len(table) for name, table in edited.items()} == {"first": 40, "second": 40}
    assert 7 in edited["first"]["value"].to_pylist()


def test_an_edit_needs_all_of_its_query(directory, tmp_path):
    """An edit is refused if an operator of the query is damaged, because its state would be lost."""
    damage(directory, "q1/second")
    choice = ("--operator", "first", "--remove")
    result, said = millpond("state", "edit", directory, "total", 1, tmp_path / "edited", *choice)
    assert result.exit_code == 1
    assert "q1/second" in said


def test_a_list_shows_what_is_whole(directory):
    """A damaged operator is reported, and the others are listed."""
    result, said = millpond("state", "list", directory, "--id", 3, "--json")
    listed = {row["operator"]: row["checkpoint"] for row in json.loads(result.stdout)}
    assert listed == {"q1/first": 3, "q1/second": 3}
    assert result.exit_code == 1
    assert "checkpoint 3 of q2/third: the key groups 0..63 have newer snapshots only" in said


def test_a_list_of_nothing_that_can_be_read_is_the_error(directory):
    """If no operator can be read, nothing is listed."""
    for place in ("q1/first", "q1/second", "q2/third"):
        for file in (directory / place).rglob("*.snapshot"):
            file.write_bytes(b"")
    result, said = millpond("state", "list", directory, "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not end with a snapshot's metadata" in said


def test_a_query_without_snapshots_is_told(directory, tmp_path):
    """If a query has no snapshots, the data source names the operators that exist."""
    query = tmp_path / "query"
    (query / "commits").mkdir(parents=True)
    (query / "metadata").write_text(json.dumps({"id": "q3"}))
    (query / "commits" / "2").write_text("v1\n{}")
    given = {"path": str(query), "snapshots": str(directory), "state": "total"}
    there = "no operator of the query q3 with snapshots in it; there are: q1/first, q1/second, q2"
    with pytest.raises(errors.RestoreError, match=there):
        MillpondDataSource(given).schema()


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_files_of_one_operator_are_looked_at_alone(directory, verb):
    """An intact operator is read by its uid or query, even next to a damaged one."""
    damage(directory, "q1/second")
    for name in ("first", "q1/first"):
        result, said = millpond("checkpoint", verb, directory, "--operator", name, "--json")
        assert (result.exit_code, said) == (0, "")
        assert {row["operator"] for row in json.loads(result.stdout)} == {"q1/first"}
    result, said = millpond("checkpoint", verb, directory, "--operator", "q1/second")
    assert result.exit_code == 1
    assert max((directory / "q1/second").rglob("*.snapshot")).name in said


def test_an_operator_that_is_not_there_is_told(directory):
    """If the requested operator does not exist, damage of others does not hide that error."""
    damage(directory, "q1/second")
    result, said = millpond("state", "dump", directory, "total", "--operator", "fourth")
    assert result.exit_code == 1
    assert "there is no operator 'fourth' with snapshots in it; there are: q1/first" in said


def test_of_newer_snapshots_the_pointers_of_the_operator_tell(directory):
    """Embedded snapshots of another operator are no reason to read this operator's pointers."""
    storage = mp.checkpoint_storage(str(directory))
    config = mp.Config({"checkpoint.inline-threshold": 1000})
    confirmed(storage, BOTH, [1], backend="heap", place="q1/carried", config=config)
    result, said = millpond("state", "list", directory, "--json")
    assert "may be newer snapshots" in said
    for operator, told in (("first", False), ("carried", True)):
        result, said = millpond("state", "dump", directory, "total", "--operator", operator)
        assert result.exit_code == 0
        assert ("may be newer snapshots" in said) is told


def test_a_client_of_one_operator_reads_no_other(directory):
    """A client can query an operator next to a damaged one."""
    damage(directory, "q1/second")
    with QueryableStateClient(directory, operator="first") as client:
        assert client.refresh() == 3
