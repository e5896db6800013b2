"""Folders above and below a checkpoint directory, given to commands instead of it."""

import shutil

import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond_cli.datasource import MillpondDataSource
from millpond_cli.main import commands

TOTAL = mp.ValueStateDescriptor("total", float)
CALLS = [
    ["checkpoint", "list", "{}"],
    ["checkpoint", "show", "{}"],
    ["checkpoint", "verify", "{}"],
    ["checkpoint", "gc", "{}", "--retained", "1"],
    ["checkpoint", "diff", "{}", "1", "2"],
    ["state", "list", "{}"],
    ["state", "get", "{}", "total", "k1"],
    ["state", "dump", "{}", "total"],
]


def called(*arguments):
    """Run a command; return its status and output."""
    result = CliRunner().invoke(commands, [str(each) for each in arguments])
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture
def directory(tmp_path):
    """A checkpoint directory with two snapshots, two folders deep."""
    folder = tmp_path / "jobs" / "state"
    storage = mp.checkpoint_storage(folder.as_uri())
    with mp.open_keyed_backend("heap", key_type=str, place="shop/totals") as backend:
        total = backend.get_partitioned_state(TOTAL)
        for number in (1, 2):
            backend.set_current_key(f"k{number}")
            total.update(1.5)
            backend.snapshot(number, storage).result()
    return folder


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("place", ["", "jobs", "jobs/state/shop", "jobs/state/shop/totals"])
def test_a_folder_around_a_checkpoint_directory_is_refused(directory, tmp_path, call, place):
    """A folder above holds no snapshots, a folder below holds misplaced ones; nothing is deleted."""
    before = sorted(directory.rglob("*"))
    status, said = called(*(each.format(tmp_path / place) for each in call))
    if "state" in place:
        assert "it was written as 'shop/totals/" in said
        assert "name that directory" in said
    else:
        assert "snapshots" in said
    assert status == (
        0 if call[1] == "list" and call[0] == "checkpoint" and "state" not in place else 1
    )
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("metadata", [None, "{}"])
def test_the_data_source_names_what_is_no_query(directory, tmp_path, metadata):
    """A folder that is not a query's checkpointLocation is refused by its path."""
    given = tmp_path / "nix"
    if metadata is not None:
        given.mkdir()
        (given / "metadata").write_text(metadata)
    options = {"path": str(given), "state": "total", "snapshots": directory.as_uri()}
    with pytest.raises(errors.ConfigError, match=f"path: {given} is no checkpointLocation of a"):
        MillpondDataSource(options).schema()


def test_a_checkpoint_directory_within_another_is_left_alone(directory, tmp_path):
    """`gc` ignores another checkpoint directory, or a copy of one, inside the directory."""
    outer = tmp_path / "outer"
    shutil.copytree(directory, outer)
    shutil.copytree(directory, outer / "state")
    shutil.copytree(directory / "shop", outer / "copy" / "shop")
    inner = sorted((outer / "state").rglob("*")) + sorted((outer / "copy").rglob("*"))
    status, said = called("checkpoint", "list", outer)
    assert (status, said.count("shop/totals")) == (0, 2)
    assert called("checkpoint", "gc", outer, "--retained", 1)[0] == 0
    assert sorted((outer / "state").rglob("*")) + sorted((outer / "copy").rglob("*")) == inner


def test_a_renamed_folder_keeps_everything(directory):
    """A renamed folder is reported, because its snapshots name another one, and nothing is deleted."""
    (directory / "shop").rename(directory / "store")
    before = sorted(directory.rglob("*"))
    status, said = called("checkpoint", "gc", directory, "--retained", 1)
    assert status == 1
    assert "it was written as 'shop/totals/" in said
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize("name", ["s", "total", "shop"])
@pytest.mark.parametrize(
    "call",
    [
        ["state", "dump", "{}", "nothing"],
        ["state", "get", "{}", "nothing", "k1"],
        ["state", "get", "{}", "total", "k1", "--operator", "shop"],
        ["checkpoint", "diff", "{}", "1", "2", "--operator", "shop"],
    ],
)
def test_a_relative_place_is_named(directory, monkeypatch, call, name):
    """A relative path is named completely in the message, even if it is one letter."""
    monkeypatch.chdir(directory.parent)
    directory.rename(name)
    status, said = called(*(each.format(name) for each in call))
    assert status == 1
    assert said.startswith(f"millpond: {name}: ") or f"jobs/{name}: " in said


def test_a_savepoint_is_none_of_these_directories(directory, tmp_path):
    """For a savepoint, the message names the command that reads it."""
    saved = tmp_path / "saved"
    with mp.open_keyed_backend("heap", key_type=str, place="totals") as backend:
        backend.set_current_key("a")
        backend.get_partitioned_state(TOTAL).update(1.0)
        backend.strategy("savepoint").save(1, mp.checkpoint_storage(str(saved)), "").result()
    status, said = called("checkpoint", "verify", saved)
    assert status == 1
    assert "use millpond savepoint show, or verify" in said
    status, said = called("checkpoint", "diff", saved, 1, 2)
    assert status == 1
    assert "it is a savepoint, which holds one checkpoint: none can be chosen" in said
