"""The sources, targets and operator names of savepoints."""

import millpond as mp
import pytest
from click.testing import CliRunner
from millpond.operator_id import OperatorId
from millpond_cli.main import commands
from millpond_spark.plan.layout import Layout, write_layout

COUNT = mp.ValueStateDescriptor("count", int)


def create(directory, target):
    """Create a savepoint of a directory that is both checkpoint and snapshots; return the result."""
    call = ["savepoint", "create", directory, target, "--snapshots", directory]
    return CliRunner().invoke(commands, [str(each) for each in call])


@pytest.fixture
def directory(tmp_path):
    """A checkpoint directory of one operator, written without Spark."""
    folder = tmp_path / "state"
    with mp.open_keyed_backend("heap", key_type=str, place="q1/totals") as backend:
        count = backend.get_partitioned_state(COUNT)
        backend.set_current_key("a")
        count.update(1)
        backend.snapshot(1, mp.checkpoint_storage(folder.as_uri())).result()
    return folder


def test_a_directory_that_spark_has_written_needs_its_checkpoint_location(directory, tmp_path):
    """Without the checkpointLocation, a directory that Spark has written is refused."""
    storage = mp.checkpoint_storage(directory.as_uri())
    layout = Layout(number=0, parallelism=2, max_parallelism=128, roster=("totals",))
    write_layout(storage, OperatorId("q1", "totals"), layout)
    result = create(directory, tmp_path / "saved")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "give that of the query q1 as CHECKPOINT" in result.stderr
    assert not (tmp_path / "saved").exists()


def test_another_querys_layout_does_not_count(directory, tmp_path):
    """A Spark query without snapshots in the directory has nothing in a savepoint."""
    storage = mp.checkpoint_storage(directory.as_uri())
    layout = Layout(number=0, parallelism=2, max_parallelism=128, roster=("other",))
    write_layout(storage, OperatorId("q2", "other"), layout)
    assert create(directory, tmp_path / "saved").exit_code == 0


@pytest.mark.parametrize("within", ["checkpoint", "snapshots"])
def test_a_savepoint_lies_in_nothing_that_is_read(tmp_path, within):
    """A target in the checkpointLocation or among the snapshots is refused, and nothing is written."""
    places = {name: tmp_path / name for name in ("checkpoint", "snapshots")}
    for place in places.values():
        place.mkdir()
    target = places[within] / "saved"
    call = ["savepoint", "create", places["checkpoint"], target]
    call += ["--snapshots", places["snapshots"]]
    result = CliRunner().invoke(commands, [str(each) for each in call])
    assert (result.exit_code, result.stdout) == (1, "")
    said = (
        f"{target}: it lies in {places[within]}, which this command reads; name another directory."
    )
    assert result.stderr == f"millpond: {said}\n"
    assert not target.exists()


def test_no_operator_has_the_name_of_a_savepoints_own_file(directory, tmp_path):
    """Renaming an operator to savepoint.json is refused, and no folder is left."""
    saved, target = tmp_path / "saved", tmp_path / "renamed"
    assert create(directory, saved).exit_code == 0
    call = ["savepoint", "rename-operator", saved, "totals", "savepoint.json", target]
    result = CliRunner().invoke(commands, [str(each) for each in call])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "uid: 'savepoint.json' is the name of the metadata file of a savepoint" in result.stderr
    assert not target.exists()
