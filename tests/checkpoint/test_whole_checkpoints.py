"""A checkpoint is refused if one of its subtasks has deleted its snapshot."""

import json

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.snapshots.bundle import write_sealed
from millpond.snapshots.paths import SnapshotPath, layout_path
from millpond.storage.local_directory import LocalStorage
from millpond_cli.inspection.stored_operator import state_table
from millpond_cli.main import commands
from typing_extensions import override

from tests.checkpoint.opened import open_stored
from tests.checkpoint.stored import confirmed

BUSY, IDLE = mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)
BOTH = mp.KeyGroupRange(0, 127)


@pytest.fixture
def directory(tmp_path):
    """The snapshot directory of a Spark query, in which a subtask without rows has no snapshot."""
    storage = mp.checkpoint_storage(str(tmp_path))
    write_sealed(storage, layout_path(OperatorId("q", "op"), 1), json.dumps({"sources": []}))
    return tmp_path


def subtask(directory, groups, checkpoints, *, backend="heap", strategy="full", restore=(), **conf):
    """Take confirmed snapshots of one subtask, of which two are retained; return the last handle."""
    settings = {"state.snapshot.strategy": strategy, "checkpoint.retained": 2, **conf}
    given = {"place": "q/op", "config": mp.Config(settings), "restore": restore}
    storage = mp.checkpoint_storage(str(directory))
    return confirmed(storage, groups, checkpoints, backend=backend, **given)


def rows(directory, checkpoint_id):
    """Return an operator's number of keys at a checkpoint."""
    (operator,) = open_stored(directory, checkpoint_id)
    return len(state_table(operator, "total"))


@pytest.mark.parametrize("checkpoint_id", [1, 2, 3, 4])
def test_what_a_busy_subtask_has_deleted_is_missed(directory, checkpoint_id):
    """If a busy subtask has deleted its snapshot, the checkpoint is refused."""
    subtask(directory, BUSY, range(1, 7))
    subtask(directory, IDLE, [1])
    with pytest.raises(errors.RestoreError, match="0..63 have newer snapshots only"):
        rows(directory, checkpoint_id)
    assert rows(directory, 5) == rows(directory, 6) == 40


@pytest.mark.parametrize(
    ("backend", "strategy"), [("heap", "changelog"), ("rocksdb", "incremental")]
)
def test_snapshots_that_build_on_others(directory, backend, strategy):
    """A snapshot that is kept as the base of newer ones can be read for its own checkpoint only."""
    how = {"backend": backend, "strategy": strategy, "backend.rocksdb.inline-threshold": 0}
    subtask(directory, BUSY, range(1, 7), **how)
    subtask(directory, IDLE, [1], **how)
    for checkpoint_id in range(1, 7):
        try:
            (operator,) = open_stored(directory, checkpoint_id)
        except errors.RestoreError as error:
            refused = str(error)
            assert "newer snapshots only" in refused
            continue
        values = {row["value"] % 100 for row in state_table(operator, "total").to_pylist()}
        assert values == {1, checkpoint_id}


def test_a_subtask_whose_first_row_came_later_misses_nothing(directory):
    """A first snapshot without a predecessor shows that the subtask had no state before."""
    subtask(directory, BUSY, [1, 2])
    subtask(directory, IDLE, [5])
    part = rows(directory, 1)
    assert 0 < part < 40
    assert part == rows(directory, 4)
    assert rows(directory, 5) == 40


def test_what_was_before_the_oldest_snapshot_is_unknown(directory):
    """If the oldest remaining snapshot has a predecessor, the state before it is unknown."""
    subtask(directory, BUSY, range(4, 7))
    subtask(directory, IDLE, [1])
    with pytest.raises(errors.RestoreError, match="0..63 have newer snapshots only"):
        rows(directory, 2)


def test_a_checkpoint_from_before_a_rescale_is_whole(directory):
    """A new subtask's snapshot follows snapshots of others, which form the checkpoint before the rescale."""
    old = [subtask(directory, BUSY, [1, 2, 3]), subtask(directory, IDLE, [1])]
    subtask(directory, BOTH, [4], restore=old)
    assert rows(directory, 2) == rows(directory, 3) == rows(directory, 4) == 40
    with pytest.raises(errors.RestoreError, match="newer snapshots only"):
        rows(directory, 1)


def test_what_pointers_may_have_carried_is_unknown(directory):
    """If earlier snapshots may be embedded in pointers, the first file need not be the first snapshot."""
    subtask(directory, IDLE, [1])
    subtask(directory, BUSY, [5], **{"checkpoint.inline-threshold": 1})
    with pytest.raises(errors.RestoreError, match="newer snapshots only"):
        rows(directory, 3)


def test_the_tools_refuse_such_a_checkpoint(directory):
    """``state dump`` and ``state get`` refuse such a checkpoint with the reason, and show no part of it."""
    subtask(directory, BUSY, range(1, 7))
    subtask(directory, IDLE, [1])
    for call in (["dump", str(directory), "total"], ["get", str(directory), "total", "1"]):
        result = CliRunner().invoke(commands, ["state", *call, "--id", "3"])
        assert result.exit_code == 1
        assert "newer snapshots only: name a newer checkpoint" in " ".join(result.output.split())


def outcome(directory, checkpoint_id):
    """Return the result of reading a checkpoint, or the error."""
    try:
        rows(directory, checkpoint_id)
    except errors.MillpondError as error:
        return error
    return None


def file_of(directory, checkpoint_id, groups=BUSY):
    """Return the file of a subtask's snapshot."""
    folder = directory / "q" / "op" / f"kg-{groups.start}-{groups.end}"
    (file,) = folder.glob(f"{checkpoint_id}-*.snapshot")
    return file


@pytest.mark.parametrize(("newest", "retained"), [(17, 2), (20, 2), (16, 1), (17, 1)])
@pytest.mark.parametrize("groups", [BUSY, BOTH])
def test_a_delta_without_its_base_is_no_checkpoint(directory, newest, retained, groups):
    """A delta that is only kept as history is no checkpoint once its base is deleted."""
    kept = {"checkpoint.retained": retained}
    subtask(directory, groups, range(1, newest + 1), strategy="changelog", **kept)
    if groups == BUSY:
        subtask(directory, IDLE, [1])
    file_of(directory, 12, groups)
    for number in range(1, newest + 1):
        error = outcome(directory, number)
        if number >= 16:
            assert error is None
        else:
            assert isinstance(error, errors.RestoreError)
            assert "newer snapshots only" in str(error)


def test_tools_name_only_what_can_be_read(directory):
    """``checkpoint list`` shows no history, and ``--id`` refuses it with the existing ids."""
    subtask(directory, BOTH, range(1, 21), strategy="changelog")
    call = ["checkpoint", "list", str(directory), "--json"]
    listed = json.loads(CliRunner().invoke(commands, call).output)
    assert [row["checkpoint"] for row in listed] == [16, 17, 18, 19, 20]
    result = CliRunner().invoke(commands, ["state", "list", str(directory), "--id", "12"])
    assert result.exit_code == 1
    assert "there are 16 to 20" in " ".join(result.output.split())


def test_history_is_no_orphan(directory):
    """``checkpoint gc`` keeps the history, by which a local copy catches up."""
    subtask(directory, BOTH, range(1, 21), strategy="changelog")
    CliRunner().invoke(commands, ["checkpoint", "gc", str(directory), "--retained", "1"])
    assert file_of(directory, 13, BOTH).exists()


def test_a_missing_file_of_the_newest_snapshot_is_damage(directory):
    """If the base of the newest checkpoint is missing, every reader that needs it names it."""
    subtask(directory, BOTH, range(1, 21), strategy="changelog")
    base = file_of(directory, 16, BOTH)
    base.unlink()
    for number in (None, 17, 20):
        error = outcome(directory, number)
        assert isinstance(error, errors.CorruptSnapshotError)
        assert base.name in str(error)
        assert "missing" in str(error)


@pytest.mark.parametrize(("newest", "retained"), [(16, 2), (20, 100)])
def test_a_retained_snapshot_that_lacks_a_file_is_refused(directory, newest, retained):
    """A snapshot that lacks a file which only older snapshots need counts as deleted."""
    kept = {"checkpoint.retained": retained}
    subtask(directory, BOTH, range(1, newest + 1), strategy="changelog", **kept)
    file_of(directory, 11, BOTH).unlink()
    assert "newer snapshots only" in str(outcome(directory, 15))


@attrs.frozen(slots=False)
class Stuck(LocalStorage):
    """Storage that refuses to delete the files of some checkpoints."""

    stuck: tuple[int, ...]

    @override
    def delete(self, path):
        if SnapshotPath.parse(path).checkpoint_id in self.stuck:
            raise errors.StorageAccessError(path, "it is locked", "Try again")
        super().delete(path)


@pytest.mark.parametrize(
    ("backend", "strategy", "stuck", "newest", "retained"),
    [
        ("heap", "changelog", (3,), 17, 2),
        ("heap", "changelog", (3, 8), 16, 1),
        ("rocksdb", "incremental", (3,), 10, 2),
    ],
)
def test_leftovers_that_cannot_be_deleted_are_no_damage(
    directory, backend, strategy, stuck, newest, retained
):
    """Files that could not be deleted are no damage, and no checkpoint with deleted files is listed."""
    storage = Stuck(directory.as_uri(), stuck)
    settings = {
        "state.snapshot.strategy": strategy,
        "checkpoint.retained": retained,
        "backend.rocksdb.inline-threshold": 0,
    }
    given = {"backend": backend, "place": "q/op", "config": mp.Config(settings)}
    confirmed(storage, BOTH, range(1, newest + 1), **given)
    assert list(directory.glob(f"q/op/*/{stuck[0]}-*"))
    for number in range(1, newest + 1):
        error = outcome(directory, number)
        assert error is None or "newer snapshots only" in str(error)


def test_what_one_operator_has_outlived_is_not_left_out(directory):
    """If an operator's snapshots of a checkpoint are all deleted, the checkpoint is refused and not empty."""
    storage = mp.checkpoint_storage(str(directory))
    confirmed(storage, BOTH, [1, 2, 3], backend="heap", place="q/other")
    subtask(directory, BOTH, range(1, 7))
    with pytest.raises(errors.RestoreError, match="of q/op: .* newer snapshots only"):
        open_stored(directory, 3)
