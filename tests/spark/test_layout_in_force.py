"""What the first task of a run settles over Spark Connect, and what it refuses."""

import shutil

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.operator_id import OperatorId
from millpond.spark.driver.layout import (
    Layout,
    committed_handles,
    current_layout,
    last_counting,
    layout_of_run,
    write_layout,
)
from millpond.spark.driver.pointer import Pointer
from millpond.spark.driver.rescaling import divided
from millpond.spark.worker import layout_in_force as module
from millpond.spark.worker.committed_state import committed_state, own_pointer
from millpond.spark.worker.layout_in_force import layout_in_force
from operator_plans import plan_of
from pyspark.sql.types import StructType
from streaming import Running

FIRST = Layout(0, 2, 128, roster=("running",), timed=True)
COMMAND = "millpond rescale CHECKPOINT_LOCATION --snapshots file:"


@pytest.fixture
def operator(tmp_path, request):
    """A query's id that no other test has, for a worker remembers what it has settled."""
    return OperatorId(tmp_path.name, "running")


@pytest.fixture
def storage(tmp_path):
    """Where the layouts lie."""
    return mp.checkpoint_storage(tmp_path.as_uri())


def plan(tmp_path, parallelism=2, **settings):
    """The plan of a start over Spark Connect."""
    config = mp.Config({"checkpoint.dir": tmp_path.as_uri(), **settings})
    schema = StructType().add("k", "string").add("n", "long")
    made = plan_of("running", Running(), schema, config, "heap")
    return attrs.evolve(made, parallelism=parallelism, max_parallelism=128, settles=True)


def pointer(layout, checkpoint_id, uid="running", groups=(0, 63)):
    """What Spark holds of a subtask."""
    return Pointer(uid, "v", checkpoint_id, *groups, "", "{}", layout)


def start(tmp_path, operator, batch_id, found=None, run="run", **how):
    """The layout that the first task of a run finds or settles."""
    return layout_in_force(plan(tmp_path, **how), operator.query, run, batch_id, found)


@pytest.mark.parametrize("batch_id", [0, 5])
def test_a_new_operator_begins(tmp_path, storage, operator, batch_id):
    """Where nothing is, whichever task comes first writes what all would write."""
    assert start(tmp_path, operator, batch_id) == FIRST
    assert start(tmp_path, operator, batch_id + 1, run="next") == FIRST
    assert current_layout(storage, operator) == FIRST


def test_a_lost_directory_is_no_new_operator(tmp_path, operator):
    """Where Spark has its state, and the directory nothing, nothing is begun."""
    with pytest.raises(errors.RestoreError, match=r"in spark\.millpond\.checkpoint\.dir: name"):
        start(tmp_path, operator, 5, pointer(0, 5))


def test_another_uid_is_no_new_operator(tmp_path, storage, operator):
    """A query that has run with another uid is refused, unless its state may be given up."""
    write_layout(storage, attrs.evolve(operator, uid="before"), FIRST)
    with pytest.raises(errors.UnclaimedStateError, match="'before'"):
        start(tmp_path, operator, 5)
    giving_up = {"checkpoint.ignore-unclaimed-state": True}
    config = plan(tmp_path, **giving_up)
    assert layout_in_force(config, operator.query, "run", 5, None) == FIRST


def test_a_change_of_places_names_the_command(tmp_path, storage, operator):
    """An operator that Spark hands another one's state is refused, with what to do."""
    write_layout(storage, attrs.evolve(operator, uid="before"), FIRST)
    write_layout(storage, operator, FIRST)
    found = pointer(0, 5, uid="before")
    with pytest.raises(errors.UnsettledStartError, match="give an operator its uid back") as error:
        own_pointer(plan(tmp_path), operator.query, "run", FIRST, found)
    assert error.value.command.startswith(COMMAND)


def test_what_was_left_out_does_not_come_back(tmp_path, storage, operator):
    """A classic session has dropped the operator's state; only such a session knows when."""
    write_layout(storage, operator, attrs.evolve(FIRST, dropped_after=3))
    with pytest.raises(errors.RestoreError, match="start that in a classic session"):
        start(tmp_path, operator, 5)


def test_a_division_names_the_directory_that_has_nothing(tmp_path, storage, operator):
    """``rescale`` with another directory than the query's says which it looked in, and the cure."""
    with pytest.raises(errors.RestoreError) as caught:
        divided(storage, operator, [pointer(0, 5)], 3, 5)
    said = str(caught.value)
    assert f"operator 'running': nothing of it is in {tmp_path.as_uri()}: name the" in said
    assert said.endswith("had it, with --snapshots or snapshots=")


def test_a_worker_names_the_directory_in_which_the_driver_s_layout_is_not(storage, operator):
    """It is not shared, or was lost while the query ran: the place is told, and both cures."""
    with pytest.raises(errors.RestoreError) as caught:
        layout_of_run(storage, operator, "run")
    said = str(caught.value)
    assert f"settled for run run is not in {storage.uri}: name a directory that the driver" in said
    assert "bring it back" in said
    shutil.rmtree(storage.directory)
    storage.directory.write_text("a file where the directory was")
    with pytest.raises(errors.ConfigError) as caught:
        layout_of_run(storage, operator, "run")
    assert f"{storage.uri} cannot be used: it cannot be listed: Not a directory." in str(
        caught.value
    )


def test_another_division_names_the_command(tmp_path, storage, operator):
    """The state is divided among two subtasks; three are refused, and nothing is written."""
    write_layout(storage, operator, FIRST)
    with pytest.raises(errors.UnsettledStartError) as error:
        start(tmp_path, operator, 5, parallelism=3)
    assert error.value.command == f"{COMMAND}//{tmp_path} --parallelism 3"
    assert "divided among 2 subtasks, and 3 are asked for" in str(error.value)
    assert current_layout(storage, operator) == FIRST


def prepared(storage, operator, parallelism, after):
    """What ``rescale`` has left after a batch."""
    write_layout(storage, operator, FIRST)
    layout = attrs.evolve(
        FIRST, number=1, parallelism=parallelism, rescaled_after=after, begun=False
    )
    write_layout(storage, operator, layout)
    return layout


def test_the_next_batch_begins_what_is_prepared(tmp_path, storage, operator):
    """It is written once more, as begun; its later runs go on under that."""
    layout = prepared(storage, operator, 3, after=4)
    begun = attrs.evolve(layout, number=2, begun=True)
    assert start(tmp_path, operator, 5, parallelism=3) == begun
    assert start(tmp_path, operator, 9, run="later", parallelism=3) == begun
    assert current_layout(storage, operator) == begun
    assert last_counting(storage, operator, begun, 9) == begun


@pytest.mark.parametrize("batch_id", [4, 6, 7])
def test_no_other_batch_begins_it(tmp_path, storage, operator, batch_id):
    """After a batch that it does not hold, what is prepared would lose that batch's changes."""
    layout = prepared(storage, operator, 3, after=4)
    with pytest.raises(errors.UnsettledStartError, match=f"and this is {batch_id}"):
        start(tmp_path, operator, batch_id, parallelism=3)
    assert current_layout(storage, operator) == layout


def test_the_running_query_does_not_begin_it(tmp_path, storage, operator):
    """A run of the old division that meets the new one fails, and nothing is written."""
    layout = prepared(storage, operator, 3, after=4)
    with pytest.raises(errors.UnsettledStartError, match="divided among 3"):
        start(tmp_path, operator, 5, parallelism=2)
    assert current_layout(storage, operator) == layout


def test_a_query_that_went_on_is_seen(tmp_path, storage, operator):
    """A worker of a query that was not stopped has committed a batch under the layout of before."""
    prepared(storage, operator, 2, after=4)
    assert start(tmp_path, operator, 5, pointer(0, 5), parallelism=2).number == 2
    with pytest.raises(errors.UnsettledStartError, match="it went on after batch 4"):
        start(tmp_path, operator, 6, pointer(0, 6), parallelism=2)


def test_what_is_prepared_does_not_count_yet(storage, operator):
    """Until a batch has begun under it, the layout of before says what is committed."""
    layout = prepared(storage, operator, 3, after=4)
    assert last_counting(storage, operator, layout, 6) == FIRST


def test_pointers_of_another_division_are_refused(tmp_path, storage):
    """A pointer of the layout's number, but of other key groups, restores nothing and is no source."""
    found = pointer(0, 5, groups=(0, 42))
    with pytest.raises(errors.RestoreError, match="not of"):
        committed_state(plan(tmp_path), FIRST, 0, found)
    with pytest.raises(errors.RestoreError, match="does not divide the key groups"):
        committed_handles([found], FIRST, storage)


def test_a_run_is_settled_once(tmp_path, operator, monkeypatch):
    """A worker lists the directory for the first batch of a run, not for each."""
    start(tmp_path, operator, 0)
    monkeypatch.setattr(module, "current_layout", None)
    assert start(tmp_path, operator, 1) == FIRST
