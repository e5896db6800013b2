"""Checkpoint ids are numbers from which file names can be made."""

import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.snapshots.catalog import read_catalog
from millpond_cli.main import commands

from tests.checkpoint.stored import TOTAL

LAST = 10**18 - 1
CALLS = {
    "snapshot": lambda backend, number, place: backend.snapshot(number, place),
    "savepoint": lambda backend, number, place: backend.savepoint(number, place),
    "changelog": lambda backend, number, place: backend.strategy("changelog").snapshot(
        number, place, None
    ),
    "full": lambda backend, number, place: backend.strategy("full").snapshot(number, place, None),
    "incremental": lambda backend, number, place: backend.strategy("incremental").snapshot(
        number, place, None
    ),
    "save": lambda backend, number, place: backend.strategy("savepoint").save(number, place, "s"),
}


@pytest.fixture
def storage(tmp_path):
    """An empty directory."""
    return mp.checkpoint_storage(str(tmp_path / "snapshots"))


@pytest.fixture
def backend(tmp_path):
    """A backend with a current key, with each strategy."""
    with mp.open_keyed_backend("rocksdb", key_type=str, directory=tmp_path / "db") as opened:
        opened.set_current_key("k")
        opened.get_partitioned_state(TOTAL).update(1)
        yield opened


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_ids_are_refused(backend, storage, call):
    """Other ids are refused before anything is written; the next valid id works."""
    for wrong in (-1, LAST + 1, 1 << 62):
        with pytest.raises(errors.ArgumentValueError, match=f"within 0..{LAST}"):
            call(backend, wrong, storage)
    assert storage.list("") == []
    assert call(backend, 0, storage).result().handle.checkpoint_id == 0


def test_operator_state_has_the_same_ids(storage):
    """Snapshots of operator state have the same rule."""
    with mp.open_operator_backend() as operator:
        operator.get_list_state(mp.ListStateDescriptor("offsets", int)).add(1)
        for wrong in (-1, LAST + 1):
            with pytest.raises(errors.ArgumentValueError, match=f"within 0..{LAST}"):
                operator.snapshot(wrong, storage)
        assert operator.snapshot(LAST, storage).result().handle is not None


def test_tools_read_the_last_id(backend, storage):
    """Tools find every accepted id, and refuse other ids as a wrong call."""
    backend.snapshot(LAST, storage).result()
    (subtask,) = read_catalog(storage).subtasks
    assert [handle.checkpoint_id for handle in subtask.handles] == [LAST]
    for verb in ("show", "verify"):
        arguments = ["checkpoint", verb, storage.uri, "--id"]
        assert CliRunner().invoke(commands, [*arguments, str(LAST)]).exit_code == 0
        assert CliRunner().invoke(commands, [*arguments, str(LAST + 1)]).exit_code == 2


def test_a_query_has_no_checkpoint_0(tmp_path):
    """A query's first batch is 0 and its first checkpoint 1, so checkpoint 0 is refused without asking Spark."""
    call = ["state", "list", str(tmp_path), "--snapshots", str(tmp_path), "--id", "0"]
    result = CliRunner().invoke(commands, call)
    assert result.exit_code == 1
    assert "a query's first one is 1" in result.stderr
