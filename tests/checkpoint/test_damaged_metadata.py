"""Metadata that cannot be read is reported, and never ignored."""

import json
import os
import shutil
import uuid

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.snapshots.bundle import read_bundled, write_sealed
from millpond.snapshots.catalog import complete_parts, read_catalog
from millpond.snapshots.layouts import record_first
from millpond.storage.memory import MemoryStorage
from millpond_cli.inspection.orphans import orphans
from millpond_cli.inspection.stored_operator import state_table
from millpond_cli.main import commands
from millpond_spark.plan.layout import Layout, write_layout

from tests.checkpoint.opened import open_stored
from tests.checkpoint.stored import confirmed, locate_savepoint

HALVES = (mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127))


FULL = mp.Config({"state.snapshot.strategy": "full"})
INCREMENTAL = mp.Config(
    {"state.snapshot.strategy": "incremental", "backend.rocksdb.inline-threshold": 0}
)


def write_half(storage, groups, checkpoints, place="q/op", config=None, restore=()):
    """Take confirmed snapshots of one subtask; return the last handle."""
    name = "rocksdb" if config is INCREMENTAL else "heap"
    given = {"place": place, "config": config, "restore": restore}
    return confirmed(storage, groups, checkpoints, backend=name, **given)


@pytest.fixture
def directory(tmp_path):
    """Two subtasks with three checkpoints each."""
    storage = mp.checkpoint_storage(str(tmp_path / "snapshots"))
    for groups in HALVES:
        write_half(storage, groups, (1, 2, 3))
    return tmp_path / "snapshots"


@pytest.fixture
def native(tmp_path):
    """Two subtasks with three checkpoints each, in RocksDB's own files."""
    storage = mp.checkpoint_storage(str(tmp_path / "snapshots"))
    for groups in HALVES:
        write_half(storage, groups, (1, 2, 3), config=INCREMENTAL)
    return tmp_path / "snapshots"


def metadata(directory, number, groups=HALVES[0]):
    """Return the snapshot file of a subtask's checkpoint, which ends with its metadata."""
    (path,) = (directory / f"q/op/kg-{groups.start}-{groups.end}").glob(f"{number}-*.snapshot")
    return path


def files_in(directory):
    """Return all files."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


DAMAGE = {
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes().replace(b"total", b"tptal")),
    "half": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "another subtask's": lambda path: path.write_bytes(
        metadata(path.parents[3], path.name.partition("-")[0], HALVES[1]).read_bytes()
    ),
    "another checkpoint's": lambda path: path.write_bytes(
        metadata(path.parents[3], 1).read_bytes()
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("number", [2, 3])
def test_gc_deletes_nothing_while_metadata_is_damaged(directory, damage, number):
    """While a file is damaged, `gc` deletes nothing that it may refer to, and names the file."""
    path = metadata(directory, number)
    damage(path)
    before = files_in(directory)
    catalog = read_catalog(mp.checkpoint_storage(str(directory)))
    with pytest.raises(errors.CorruptSnapshotError, match="nothing is deleted") as caught:
        orphans(catalog, 1)
    assert caught.value.file == str(path.relative_to(directory))
    CliRunner().invoke(commands, ["checkpoint", "gc", str(directory), "--retained", "1"])
    assert files_in(directory) == before


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_readers_do_not_fall_back_to_an_older_checkpoint(directory, damage):
    """If the newest checkpoint's metadata is damaged, readers refuse it; earlier ones can be selected."""
    damage(metadata(directory, 3))
    with pytest.raises(errors.CorruptSnapshotError, match=metadata(directory, 3).name):
        open_stored(directory)
    (operator,) = open_stored(directory, 2)
    assert {row["value"] for row in state_table(operator, "total").to_pylist()} == {
        key * 100 + 2 for key in range(40)
    }


@pytest.mark.parametrize("name", ["\0", "a\0b", "a\nb", "x" * 300])
def test_a_name_that_no_store_can_have_is_refused(directory, name):
    """A state name with a zero byte, which would crash RocksDB, is refused."""
    storage = mp.checkpoint_storage(str(directory))
    text = write_half(storage, HALVES[0], (4,)).to_json()
    with pytest.raises(errors.CorruptSnapshotError, match="state"):
        mp.KeyedStateHandle.from_json(text.replace('"total"', json.dumps(name)), storage)


def of_a_checkpoint(verb, directory, number):
    """Return status and output of a command about one checkpoint."""
    call = ["checkpoint", verb, str(directory), "--id", str(number)]
    result = CliRunner().invoke(commands, call)
    return result.exit_code, result.output


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("verb", ["show", "verify"])
def test_what_one_checkpoint_does_not_need_is_not_told_with_it(directory, verb, damage):
    """Damaged metadata of a newer checkpoint does not matter for an older one; its own is reported."""
    path = metadata(directory, 3)
    damage(path)
    for number in (1, 2):
        status, output = of_a_checkpoint(verb, directory, number)
        assert (status, path.name in output) == (0, False), output
    status, output = of_a_checkpoint(verb, directory, 3)
    assert (status, path.name in "".join(output.split())) == (1, True), output


def test_metadata_of_the_first_snapshot_is_told_with_that(directory):
    """If the first snapshot is damaged, the error belongs to its checkpoint and not to later ones."""
    path = metadata(directory, 1)
    DAMAGE["half"](path)
    status, output = of_a_checkpoint("show", directory, 1)
    assert (status, path.name in output) == (1, True), output
    status, output = of_a_checkpoint("show", directory, 2)
    assert (status, "cannot be read" in output) == (0, False), output


LOST = {
    "deleted": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name(path.name.upper())),
}


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST)
def test_a_checkpoint_of_which_metadata_is_lost_is_incomplete(native, lose):
    """A checkpoint with files but without metadata is incomplete; no older snapshot replaces it."""
    directory = native
    lose(metadata(directory, 3))
    with pytest.raises(
        errors.IncompleteCheckpointError, match="kg-0-63' has files of checkpoint 3"
    ):
        open_stored(directory)
    result = CliRunner().invoke(commands, ["state", "dump", str(directory), "total"])
    assert result.exit_code == 1
    assert "incomplete" in result.stderr
    (operator,) = open_stored(directory, 2)
    assert {row["value"] % 100 for row in state_table(operator, "total").to_pylist()} == {2}


def test_a_replica_stays_where_it_is_while_a_checkpoint_is_written(native):
    """While a checkpoint is incomplete, an open query client keeps its version, and a new one is refused."""
    directory = native
    with mp.QueryableStateClient(directory, refresh_after_ms=0) as client:
        assert client.refresh() == 3
        storage = mp.checkpoint_storage(str(directory))
        for groups in HALVES:
            write_half(storage, groups, (4,), config=INCREMENTAL)
        LOST["deleted"](metadata(directory, 4))
        assert client.refresh() == 3
    with pytest.raises(errors.IncompleteCheckpointError):
        mp.QueryableStateClient(directory)


class Busy(MemoryStorage):
    """Storage in which a job deletes a checkpoint right after its files were listed."""

    def __init__(self):
        super().__init__(f"memory:busy-{uuid.uuid4().hex}")
        self.outdated = ""

    def list(self, folder):
        """Return the files before the deletion."""
        found = super().list(folder)
        for path in found:
            if self.outdated and f"/{self.outdated}-" in path:
                self.delete(path)
        return found


def test_what_a_running_job_deletes_meanwhile_is_no_damage():
    """Files that a running job deletes during a tool's work are not reported as damage."""
    storage = Busy()
    for groups in HALVES:
        write_half(storage, groups, (1, 2, 3), config=FULL)
    for storage.outdated in ("1", "3"):
        catalog = read_catalog(storage)
        assert not catalog.broken
        ids = {handle.checkpoint_id for handle in complete_parts(catalog, OperatorId("q", "op"))}
        assert ids == {3 if storage.outdated == "1" else 2}
        assert not orphans(catalog, 100)


def test_damage_to_what_newer_snapshots_replace_is_no_matter(tmp_path):
    """Damage in an older checkpoint does not prevent reading a newer one."""
    directory = tmp_path / "snapshots"
    for groups in HALVES:
        write_half(mp.checkpoint_storage(str(directory)), groups, (2, 3), config=FULL)
    DAMAGE["half"](metadata(directory, 2))
    (operator,) = open_stored(directory)
    assert len(state_table(operator, "total")) == 40


def test_list_and_show_name_damaged_metadata(directory):
    """Both commands show the intact checkpoints, name the damaged files, and end with status 1."""
    DAMAGE["half"](metadata(directory, 3))
    for verb in ("list", "show"):
        result = CliRunner().invoke(commands, ["checkpoint", verb, str(directory)])
        assert result.exit_code == 1
        assert metadata(directory, 3).name in result.output


def test_a_checkpoint_with_a_gap_is_refused(directory):
    """If the snapshots of a subtask are missing, the rest is not read as the whole state."""
    shutil.rmtree(directory / "q/op/kg-64-127")
    with pytest.raises(errors.RestoreError, match=r"key groups 64\.\.127"):
        open_stored(directory)


def test_a_subtask_without_its_metadata_is_a_gap(native):
    """A subtask with files but without metadata is noticed, on Spark too."""
    directory = native
    storage = mp.checkpoint_storage(str(directory))
    write_sealed(storage, "q/op/layout/00000000.json", json.dumps({"sources": []}))
    for path in (directory / "q/op/kg-64-127").glob("*.snapshot"):
        path.unlink()
    with pytest.raises(errors.RestoreError, match=r"key groups 64\.\.127"):
        open_stored(directory)


def test_a_subtask_without_a_folder(directory, caplog):
    """A subtask without a folder has had no row, unless a snapshot was recorded for it: then it is lost."""
    storage, operator = mp.checkpoint_storage(str(directory)), OperatorId("q", "op")
    write_layout(storage, operator, Layout(0, 2, 128, settled_after=-1))
    shutil.rmtree(directory / "q/op/kg-64-127")
    assert len(open_stored(directory)[0].parts) == 1
    assert not caplog.messages
    record_first(storage, operator, 0, HALVES[1], 3)
    with pytest.raises(errors.RestoreError, match=r"64\.\.127, though their subtask has taken"):
        open_stored(directory)
    assert len(open_stored(directory, 2)[0].parts) == 1
    write_layout(storage, operator, Layout(1, 2, 128, settled_after=5, savepoint="file:///saved"))
    assert len(open_stored(directory)[0].parts) == 1
    assert "64..127 is still in the savepoint" in caplog.text


def test_what_a_layout_takes_over_must_be_there(directory):
    """If a rescaled operator needs a folder that is missing, the checkpoint is refused."""
    storage = mp.checkpoint_storage(str(directory))
    path = metadata(directory, 3, HALVES[1]).relative_to(directory)
    layout = json.dumps({"sources": [read_bundled(storage, str(path))]})
    write_sealed(storage, "q/op/layout/00000001.json", layout)
    assert len(open_stored(directory)[0].parts) == 2
    shutil.rmtree(directory / "q/op/kg-64-127")
    with pytest.raises(errors.RestoreError, match=r"key groups 64\.\.127"):
        open_stored(directory)


@pytest.mark.parametrize("body", ["[]", "{}", '{"sources": 7}', '{"sources": ["{}"]}', "[" * 9999])
def test_a_damaged_layout_is_named(directory, body):
    """A damaged layout is named, and nothing that it may protect is deleted."""
    storage = mp.checkpoint_storage(str(directory))
    write_sealed(storage, "q/op/layout/00000000.json", body)
    with pytest.raises(errors.CorruptSnapshotError, match=r"layout/00000000\.json"):
        orphans(read_catalog(storage), 1)


def test_gc_keeps_what_another_operator_has_taken_over(tmp_path):
    """`gc` keeps files in another operator's folder to which a claimed snapshot refers."""
    storage = mp.checkpoint_storage(str(tmp_path))
    whole = mp.KeyGroupRange(0, 127)
    claim = mp.Config({"checkpoint.claim": True})
    old = write_half(storage, whole, (1,))
    write_half(storage, whole, (2,), place="other/op", config=claim, restore=[old])
    write_half(storage, whole, (5,))
    gone = orphans(read_catalog(storage), 1)
    (operator,) = (each for each in open_stored(tmp_path) if str(each.operator) == "other/op")
    assert not set(gone) & {path for part in operator.parts for path in part.paths}


def test_a_claimed_handle_deletes_nothing_of_others(tmp_path):
    """A handle can cause the deletion only of unused files in its own subtask's folder."""
    storage = mp.checkpoint_storage(str(tmp_path))
    whole = mp.KeyGroupRange(0, 127)
    other = write_half(storage, whole, (1,), place="other/op")
    older = write_half(storage, whole, (1,))
    mine = write_half(storage, whole, (2,))
    victims = (*sorted(other.all_paths), older.metadata, *sorted(mine.paths), "q/op/kg-0-63/1")
    hostile = attrs.evolve(mine, retired=tuple(retired(path) for path in victims))
    config = mp.Config({"checkpoint.claim": True, "checkpoint.retained": 1})
    before = files_in(tmp_path)
    write_half(storage, whole, (200,), config=config, restore=[hostile])
    assert set(before) - set(files_in(tmp_path)) == {tmp_path / older.metadata}


def retired(path):
    """Return a retired file of an old checkpoint."""
    return mp.snapshots.handles.RetiredFile(path, 1)


def test_overlapping_parts_are_no_savepoint(directory, tmp_path):
    """Snapshots with overlapping key groups cannot become one savepoint."""
    (operator,) = open_stored(directory)
    target = locate_savepoint(tmp_path / "saved")
    with pytest.raises(errors.RestoreError, match="more than once"):
        collect_savepoint({"op": [*operator.parts, operator.parts[0]]}, target, get_registry())


@pytest.mark.parametrize("kind", ["directory", "full directory", "pipe", "link"])
@pytest.mark.parametrize("ending", [".base", "_000012.sst"])
def test_gc_deletes_files_alone(tmp_path, kind, ending):
    """`gc` does not delete a directory with the name of an unused data file, nor its content."""
    root = tmp_path / "snapshots"
    newest = write_half(mp.checkpoint_storage(root.as_uri()), HALVES[0], [1, 2]).metadata
    place = (root / newest).with_name(f"1-{'0' * 32}{ending}")
    (tmp_path / "outside").write_text("of others")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(tmp_path / "outside")
    else:
        place.mkdir()
    if kind == "full directory":
        (place / "mine").write_text("of others")
    for call in (["--dry-run"], []):
        result = CliRunner().invoke(commands, ["checkpoint", "gc", str(root), *call])
        assert (result.exit_code, result.stdout) == (0, "Nothing to delete.\n")
    assert os.path.lexists(place)
    assert kind != "full directory" or (place / "mine").exists()
