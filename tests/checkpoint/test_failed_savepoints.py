"""Savepoints that cannot be written or sealed leave everything else unchanged."""

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.savepoints.savepoint_file import Savepoint, reserved, write_savepoint
from millpond.savepoints.table_files import _row_groups
from millpond.snapshots.handles import SavepointHandle
from millpond.storage.local_directory import LocalStorage
from millpond.storage.memory import MemoryStorage
from millpond_cli.main import commands
from typing_extensions import override


@pytest.fixture
def savepoint(tmp_path):
    """The folder of a savepoint with two states."""

    class Twice(mp.KeyedProcessFunction):
        def open(self, context):
            self.a = context.get_state(mp.ValueStateDescriptor("a", int))
            self.b = context.get_state(mp.ValueStateDescriptor("b", int))

        def process_element(self, row, context):
            self.a.update(1)
            self.b.update(2)
            return []

    with mp.testing.KeyedOperatorHarness(Twice(), key="k") as harness:
        for key in "uvwxyz":
            harness.process({"k": key})
        harness.savepoint(tmp_path / "savepoint")
    return tmp_path / "savepoint"


def files(folder):
    """Return the bytes of all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(path, column, values):
    """Rewrite a table with other values in a column."""
    table = pq.read_table(path)
    data = {**table.to_pydict(), column: values(table.num_rows)}
    pq.write_table(pa.table(data, table.schema), path)


def test_a_failed_rekey_leaves_nothing(savepoint, tmp_path):
    """If the second table is damaged, re-keying leaves no folder; after a repair it works."""
    (table,) = savepoint.glob("*/b/*.parquet")
    sound = table.read_bytes()
    table.write_bytes(sound[:-9] + b"x" + sound[-8:])
    call = ["savepoint", "rekey", str(savepoint), str(tmp_path / "new"), "--max-parallelism", "64"]
    assert CliRunner().invoke(commands, call).exit_code == 1
    assert not (tmp_path / "new").exists()
    table.write_bytes(sound)
    assert CliRunner().invoke(commands, call).exit_code == 0


@pytest.mark.parametrize("verb", ["rekey", "rename-state"])
def test_a_failed_savepoint_leaves_no_folders_above_it(savepoint, tmp_path, verb):
    """A failed savepoint removes the parent folders that it created, and no others."""
    (table,) = savepoint.glob("*/b/*.parquet")
    table.write_bytes(b"x" * 100)
    (tmp_path / "mine").mkdir()
    ends = {"rekey": ["--max-parallelism", "64"]}.get(verb, [])
    names = {"rename-state": ["a", "c"]}.get(verb, [])
    target = str(tmp_path / "mine" / "new" / "saved" / "today")
    call = ["savepoint", verb, str(savepoint), *names, target, *ends]
    result = CliRunner().invoke(commands, call)
    assert result.exit_code == 1
    assert list((tmp_path / "mine").iterdir()) == []


class Full(LocalStorage):
    """Storage on a disk that has room only for folders."""

    @override
    def open_writer(self, path):
        (self.directory / path).parent.mkdir(parents=True)
        raise errors.StorageAccessError(path, "No space left on device", "Make room")


def test_a_place_without_room_for_the_first_file_leaves_no_folders(tmp_path):
    """If not even the first file can be written, the new parent folders are removed too."""
    storage = Full((tmp_path / "new").as_uri())
    with pytest.raises(errors.StorageAccessError, match="No space left"):
        begun(SavepointHandle(1, "saved/today", storage))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_looked_at_is_refused_with_its_name(tmp_path):
    """A path that is too long or not accessible is refused with its name."""
    target = tmp_path.joinpath(*["n" * 99] * 50)
    with pytest.raises(errors.StorageAccessError, match="n/n.*listed: File name too long"):
        begun(SavepointHandle(1, "", mp.checkpoint_storage(target.as_uri())))


def test_a_neighbour_keeps_the_folders_above_it(tmp_path):
    """If two savepoints share a new parent folder, it remains for the one that succeeds."""
    storages = [mp.checkpoint_storage(str(tmp_path / "new" / name)) for name in "ab"]
    first, second = (begun(SavepointHandle(1, "deep/down", storage)) for storage in storages)
    with pytest.raises(ZeroDivisionError), first:
        1 / 0  # noqa: B018 - what fails
    with second:
        write_savepoint(second.handle, Savepoint(1, ()))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["b"]


def test_a_refused_seal_changes_nothing(savepoint):
    """If the second table is refused, sealing does not change the first one."""
    (first,), (second,) = (savepoint.glob(f"*/{name}/*.parquet") for name in "ab")
    changed(first, "value", lambda count: [7] * count)
    changed(second, "value", lambda count: [None] * count)
    before = files(savepoint)
    with pytest.raises(errors.CorruptSnapshotError, match="b/"):
        mp.seal_savepoint(savepoint)
    assert files(savepoint) == before


def test_a_table_of_very_many_rows():
    """A table with very many row groups is written and read."""
    rows = pa.table({"value": pa.nulls(70_000_000)})
    assert sum(part.num_rows for part in _row_groups(rows)) == rows.num_rows


def begun(handle):
    """Return a place with the marker and one table of an unfinished savepoint."""
    reservation = reserved(handle, ["operator"])
    handle.storage.write(handle.path("operator/state/kg-0-0.parquet"), [b"x"])
    return reservation


def test_a_failed_savepoint_leaves_its_neighbours():
    """A failed savepoint leaves complete and unfinished savepoints below it, and the user's files."""
    storage = MemoryStorage.private()
    ours = begun(SavepointHandle(1, "", storage))
    own = set(storage.list(""))
    for mine in ("notes/of-mine.txt", "sub/mine.parquet", "exports/2026/day.parquet"):
        storage.write(mine, [b"x"])
    begun(SavepointHandle(2, "sub/begun", storage))
    with begun(SavepointHandle(3, "sub/complete", storage)) as other:
        write_savepoint(other.handle, Savepoint(3, ()))
    others = set(storage.list("")) - own
    with pytest.raises(ZeroDivisionError), ours:
        1 / 0  # noqa: B018 - what fails
    assert len(others) == 7
    assert set(storage.list("")) == others


@pytest.mark.parametrize("folder", ["", "new"])
def test_a_failed_savepoint_leaves_empty_folders_of_others(tmp_path, folder):
    """A failed savepoint removes only its own operators' folders, and none that existed before."""
    place = tmp_path / folder
    before = ["mine/deep", "operator/of-mine"]
    for path in before:
        (place / path).mkdir(parents=True)
    handle = SavepointHandle(1, folder, mp.checkpoint_storage(str(tmp_path)))
    ours = begun(handle)
    (place / "meanwhile").mkdir()
    with pytest.raises(ZeroDivisionError), ours:
        1 / 0  # noqa: B018 - what fails
    left = {path.relative_to(place).as_posix() for path in place.rglob("*")}
    assert left == {"mine", "mine/deep", "operator", "operator/of-mine", "meanwhile"}


def test_a_written_savepoint_leaves_its_neighbours(tmp_path):
    """Files that are written below a savepoint during its creation remain."""

    class Rows:
        def __iter__(self):
            with begun(SavepointHandle(2, "sub", mp.checkpoint_storage(str(tmp_path)))) as other:
                write_savepoint(other.handle, Savepoint(2, ()))
            (tmp_path / "mine.txt").write_text("x")
            for folder in ("exports/2026", "counts/of-mine"):
                (tmp_path / folder).mkdir(parents=True)
                (tmp_path / folder / "day.parquet").write_text("x")
            yield {"k": "u", "n": 1}

    counts = mp.ValueStateDescriptor("n", int)
    writer = mp.SavepointWriter.new_savepoint()
    writer.with_operator("counts", Rows(), counts, key="k", key_type=str).write(tmp_path)
    kept = {path.relative_to(tmp_path).as_posix() for path in files(tmp_path)}
    expected = {"mine.txt", "sub/savepoint.json", "sub/operator/state/kg-0-0.parquet"}
    expected |= {"exports/2026/day.parquet", "counts/of-mine/day.parquet"}
    assert expected | {"savepoint.json"} <= kept


class Stubborn(MemoryStorage):
    """Storage that cannot delete tables."""

    @override
    def delete(self, path):
        if path.endswith(".parquet"):
            raise PermissionError(f"{path} stays")
        super().delete(path)


def test_what_cannot_be_deleted_does_not_hide_the_error(caplog):
    """If the clean-up fails too, the savepoint's own error is raised and the other one logged."""
    storage = Stubborn.private()
    with pytest.raises(ZeroDivisionError), begun(SavepointHandle(1, "new", storage)):
        1 / 0  # noqa: B018 - what fails
    assert "kg-0-0.parquet stays" in caplog.text
    assert storage.list("") == ["new/operator/state/kg-0-0.parquet"]


class WriteOnly(MemoryStorage):
    """Storage that cannot delete anything."""

    @override
    def delete(self, path):
        raise PermissionError(f"{path} stays")


def test_a_written_savepoint_has_not_failed_for_a_marker_that_stays(caplog):
    """If the marker cannot be deleted, the savepoint is complete, and the log reports the marker."""
    storage = WriteOnly.private()
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("a")
        backend.get_partitioned_state(mp.ValueStateDescriptor("n", int)).update(1)
        handle = backend.savepoint(1, storage).result().handle
    left = storage.list(handle.folder)
    assert handle.path("savepoint.json") in left
    assert any(path.endswith(".writing") for path in left)
    assert "not deleted" in caplog.text
    with mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as backend:
        assert [key for key, _ in backend.keys_and_namespaces("n")] == ["a"]


@pytest.mark.parametrize("there", [False, True])
def test_a_place_that_was_there_before_stays(tmp_path, there):
    """The directory of a failed or empty savepoint is removed, unless it existed before."""
    storage = mp.checkpoint_storage(str(tmp_path / "place"))
    if there:
        (tmp_path / "place").mkdir()
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        strategy = backend.strategy("savepoint")
        assert strategy.save(1, storage, "").result().handle is None
        assert (tmp_path / "place").exists() is there
        with pytest.raises(ZeroDivisionError), begun(SavepointHandle(1, "", storage)):
            1 / 0  # noqa: B018 - what fails
    assert (tmp_path / "place").exists() is there


def test_a_file_in_its_place_is_told(tmp_path):
    """A file in place of the savepoint's directory is named in the error."""
    (tmp_path / "file").write_text("mine")
    storage = mp.checkpoint_storage(str(tmp_path / "file"))
    with (
        mp.open_keyed_backend("heap", key_type=str, place="job") as backend,
        pytest.raises(errors.StorageAccessError, match="Name a directory that does not exist yet"),
    ):
        backend.strategy("savepoint").save(1, storage, "")
    assert (tmp_path / "file").read_text() == "mine"
