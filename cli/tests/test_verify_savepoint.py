"""`millpond savepoint verify` reads every table, and finds every change."""

import json
import shutil

import millpond as mp
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond.savepoints.savepoint_file import read_savepoint
from millpond_cli.main import commands


class Totals(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function with two keyed states and operator state."""

    def open(self, context):
        self.total = context.get_state(mp.ValueStateDescriptor("total", int))
        self.days = context.get_map_state(mp.MapStateDescriptor("days", str, int))

    def initialize_state(self, context):
        store = context.operator_state_store
        self.seen = store.get_list_state(mp.ListStateDescriptor("seen", str))

    def snapshot_state(self, context):
        self.seen.update(["a", "b"])

    def process_element(self, row, context):
        self.total.update(row["n"])
        self.days.put("monday", row["n"])


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """An intact savepoint of three states."""
    folder = tmp_path_factory.mktemp("verified") / "savepoint"
    with mp.testing.KeyedOperatorHarness(Totals(), key="k", key_type=str) as harness:
        for number in range(200):
            harness.process({"k": f"k{number}", "n": number})
        harness.savepoint(str(folder))
    return folder


def verified(folder):
    """Return the status, and the verdict on each file by path."""
    done = CliRunner().invoke(commands, ["savepoint", "verify", str(folder), "--json"])
    rows = json.loads(done.stdout) if done.stdout else []
    return done.exit_code, {row["file"]: row["verdict"] for row in rows}, done.stderr


def tables(folder):
    """Return the tables that the metadata names."""
    handle = mp.SavepointHandle(1, "", mp.checkpoint_storage(folder.as_uri()))
    return [file.path for each in read_savepoint(handle).operators for file in each.files]


def test_a_sound_savepoint_passes(sound):
    """An intact savepoint gives a verdict on its metadata and each table, and status 0."""
    status, verdicts, _ = verified(sound)
    assert status == 0
    assert len(tables(sound)) >= 3
    assert verdicts == dict.fromkeys(["savepoint.json", *tables(sound)], "ok")


def flipped(path):
    """Flip one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    """Truncate a file."""
    path.write_bytes(path.read_bytes()[:-10])


def edited(path):
    """Rewrite a table without its last row, unsealed."""
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)


@pytest.mark.parametrize("damage", [flipped, cut, edited, lambda path: path.unlink()])
def test_each_damaged_table_is_found(sound, tmp_path, damage):
    """Exactly the damaged table is reported, with status 1."""
    for number, name in enumerate(tables(sound)):
        copy = tmp_path / str(number)
        shutil.copytree(sound, copy)
        damage(copy / name)
        status, verdicts, said = verified(copy)
        assert status == 1
        assert [path for path, verdict in verdicts.items() if verdict != "ok"] == [name]
        assert name in said


def test_what_is_no_savepoint_is_refused(sound, tmp_path):
    """A folder without metadata, and one with changed metadata, are refused."""
    status, _, said = verified(tmp_path)
    assert (status, "not a savepoint" in said) == (1, True)
    shutil.copytree(sound, tmp_path / "copy")
    flipped(tmp_path / "copy" / "savepoint.json")
    status, _, said = verified(tmp_path / "copy")
    assert status == 1
    assert "savepoint.json" in said


def test_metadata_behind_a_symbolic_link(sound, tmp_path):
    """Metadata behind a symbolic link is read by tools as by a restore."""
    folder = tmp_path / "copy"
    shutil.copytree(sound, folder)
    (folder / "savepoint.json").rename(tmp_path / "elsewhere.json")
    (folder / "savepoint.json").symlink_to(tmp_path / "elsewhere.json")
    status, verdicts, said = verified(folder)
    assert (status, set(verdicts.values()), said) == (0, {"ok"}, "")
    with mp.testing.KeyedOperatorHarness(Totals(), key="k", key_type=str, restore=folder):
        pass
