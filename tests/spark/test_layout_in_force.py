"""Layouts that the first task of a run writes or refuses over Spark Connect."""

import shutil

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.types import SerializerSnapshot
from millpond_spark.driver.offline_rescaling import prepared_layout
from millpond_spark.driver.query_start import QueryStart
from millpond_spark.driver.savepoints import committed_handles
from millpond_spark.plan.batch_identity import BatchIdentity
from millpond_spark.plan.layout import Layout, current_layout, last_begun, write_layout
from millpond_spark.plan.pointer import Pointer
from millpond_spark.worker import committed_state as module
from millpond_spark.worker.committed_state import (
    committed_state,
    layout_in_force,
    own_pointer,
)
from pyspark.sql.types import DecimalType, StructType

from tests.operator_plans import plan_of
from tests.spark.streaming import Running

TEXT = SerializerSnapshot("str")
LIMITS = RestoreConfig()
FIRST = Layout(0, 2, 128, roster=("running",))
COMMAND = "millpond rescale CHECKPOINT_LOCATION --snapshots file:"


@pytest.fixture
def operator(tmp_path, request):
    """A new query id, because a worker remembers the layouts that it has checked."""
    return OperatorId(tmp_path.name, "running")


@pytest.fixture
def storage(tmp_path):
    """The storage of the layouts."""
    return mp.checkpoint_storage(tmp_path.as_uri())


def plan(tmp_path, parallelism=2, **settings):
    """Return the plan of a start over Spark Connect."""
    config = mp.Config({"checkpoint.dir": tmp_path.as_uri(), **settings})
    schema = StructType().add("k", "string").add("n", "long")
    made = plan_of("running", Running(), schema, config, "heap")
    return attrs.evolve(made, parallelism=parallelism, max_parallelism=128, settles=True)


def pointer(layout, checkpoint_id, uid="running", groups=(0, 63)):
    """Return a subtask's pointer as Spark stores it."""
    return Pointer(uid, "v", checkpoint_id, *groups, "", "{}", layout)


def start(tmp_path, operator, batch_id, found=None, run="run", **how):
    """Return the layout that the first task of a run finds or writes."""
    batch = BatchIdentity(operator.query, run, batch_id)
    return layout_in_force(plan(tmp_path, **how), batch, found)


@pytest.mark.parametrize("batch_id", [0, 5])
def test_a_new_operator_begins(tmp_path, storage, operator, batch_id):
    """If there is no layout, the first task writes it; every task would write the same."""
    begun = attrs.evolve(FIRST, settled_after=batch_id - 1, restore="", key=TEXT)
    assert start(tmp_path, operator, batch_id) == begun
    assert start(tmp_path, operator, batch_id + 1, run="next") == begun
    assert current_layout(storage, operator) == begun


def test_a_lost_directory_is_no_new_operator(tmp_path, operator):
    """If Spark has state but the directory is empty, the start is refused."""
    with pytest.raises(errors.RestoreError, match=r"in spark\.millpond\.checkpoint\.dir: name"):
        start(tmp_path, operator, 5, pointer(0, 5))


def test_another_uid_is_no_new_operator(tmp_path, storage, operator):
    """A query that has run with another uid is refused, unless its state may be dropped."""
    write_layout(storage, attrs.evolve(operator, uid="before"), FIRST)
    with pytest.raises(errors.UnclaimedStateError, match="'before'"):
        start(tmp_path, operator, 5)
    giving_up = {"checkpoint.ignore-unclaimed-state": True}
    config = plan(tmp_path, **giving_up)
    begun = attrs.evolve(FIRST, settled_after=4, restore="", key=TEXT)
    assert layout_in_force(config, BatchIdentity(operator.query, "run", 5), None) == begun


def test_a_change_of_places_names_the_command(tmp_path, storage, operator):
    """If Spark gives an operator the state of another one, the start names the command."""
    write_layout(storage, attrs.evolve(operator, uid="before"), FIRST)
    write_layout(storage, operator, FIRST)
    found = pointer(0, 5, uid="before")
    with pytest.raises(errors.UnsettledStartError, match="give an operator its uid back") as error:
        own_pointer(plan(tmp_path), operator.query, FIRST, found)
    assert error.value.command.startswith(COMMAND)


def test_what_was_left_out_does_not_come_back(tmp_path, storage, operator):
    """If a classic session has dropped an operator's state, the operator cannot return over Spark Connect."""
    write_layout(storage, operator, attrs.evolve(FIRST, status="dropped", settled_after=3))
    with pytest.raises(errors.RestoreError, match="start that in a classic session"):
        start(tmp_path, operator, 5)


def test_a_division_names_the_directory_that_has_nothing(tmp_path, storage, operator):
    """``rescale`` with a wrong directory names the directory and the cure."""
    with pytest.raises(errors.RestoreError) as caught:
        prepared_layout(storage, operator, [pointer(0, 5)], 3, 5, LIMITS)
    said = str(caught.value)
    assert f"operator 'running': nothing of it is in {tmp_path.as_uri()}: name the" in said
    assert said.endswith("had it, with --snapshots or snapshots=")


def test_a_worker_names_the_directory_in_which_the_driver_s_layout_is_not(
    tmp_path, storage, operator
):
    """If a worker does not find the driver's layout, the error names the directory and two cures."""
    made = attrs.evolve(plan(tmp_path), settles=False)
    batch = BatchIdentity(operator.query, "run", 0)
    with pytest.raises(errors.RestoreError) as caught:
        layout_in_force(made, batch, None)
    said = str(caught.value)
    assert f"layout for run run is not in {storage.uri}: name a directory that the driver" in said
    assert "bring it back" in said
    shutil.rmtree(storage.directory)
    storage.directory.write_text("a file where the directory was")
    with pytest.raises(errors.ConfigError) as caught:
        layout_in_force(made, batch, None)
    assert f"{storage.uri} cannot be used: it cannot be listed: Not a directory." in str(
        caught.value
    )


def test_another_division_names_the_command(tmp_path, storage, operator):
    """If the state has two subtasks and three are configured, the start is refused and writes nothing."""
    write_layout(storage, operator, FIRST)
    with pytest.raises(errors.UnsettledStartError) as error:
        start(tmp_path, operator, 5, parallelism=3)
    assert error.value.command == f"{COMMAND}//{tmp_path} --parallelism 3"
    assert "divided among 2 subtasks, and 3 are asked for" in str(error.value)
    assert current_layout(storage, operator) == FIRST


def prepared(storage, operator, parallelism, after):
    """Prepare a layout by ``rescale`` after a batch."""
    write_layout(storage, operator, FIRST)
    layout = attrs.evolve(
        FIRST,
        number=1,
        parallelism=parallelism,
        status="prepared",
        settled_after=after,
    )
    write_layout(storage, operator, layout)
    return layout


def test_the_next_batch_begins_what_is_prepared(tmp_path, storage, operator):
    """The next batch writes a prepared layout again as begun; later runs continue with it."""
    layout = prepared(storage, operator, 3, after=4)
    begun = attrs.evolve(layout, number=2, status="begun", key=TEXT)
    assert start(tmp_path, operator, 5, parallelism=3) == begun
    assert start(tmp_path, operator, 9, run="later", parallelism=3) == begun
    assert current_layout(storage, operator) == begun
    assert last_begun(storage, operator, begun, 9) == begun


@pytest.mark.parametrize("batch_id", [6, 7])
def test_no_other_batch_begins_it(tmp_path, storage, operator, batch_id):
    """After a batch under the old layout, the prepared one is refused, because it lacks that batch's changes."""
    layout = prepared(storage, operator, 3, after=4)
    with pytest.raises(errors.UnsettledStartError, match=f"and this is {batch_id}"):
        start(tmp_path, operator, batch_id, parallelism=3)
    assert current_layout(storage, operator) == layout


def test_an_older_checkpoint_does_not_begin_it(tmp_path, storage, operator):
    """An old copy of Spark's checkpoint cannot begin the prepared layout."""
    layout = prepared(storage, operator, 3, after=4)
    for status in ("prepared", "begun"):
        write_layout(storage, operator, attrs.evolve(layout, status=status))
        with pytest.raises(errors.RestoreError, match="ends with batch 3, but.* after batch 4"):
            start(tmp_path, operator, 4, parallelism=3)
    with pytest.raises(errors.RestoreError, match=r"restore = CHECKPOINT_LOCATION@3$"):
        prepared_layout(storage, operator, [], 2, 3, LIMITS)
    with pytest.raises(errors.RestoreError, match="has no committed batch.* or begin a new one$"):
        prepared_layout(storage, operator, [], 2, -1, LIMITS)


def saved(place, max_parallelism=128):
    """Return a savepoint of the operator, as `checkpoint.restore` names it."""
    writer = mp.SavepointWriter.new_savepoint(max_parallelism)
    count = mp.ValueStateDescriptor("count", int)
    writer.with_operator("running", [{"k": "a", "count": 1}], count, key="k").write(place)
    return {"checkpoint.restore": str(place)}


def test_a_corrected_savepoint_counts_until_a_batch_is_committed(tmp_path, storage, operator):
    """A start may name another savepoint, as long as no batch was committed."""
    first, second = saved(tmp_path / "first"), saved(tmp_path / "second")
    begun = [start(tmp_path, operator, 5, run="bare")]
    begun += [
        start(tmp_path, operator, 5, run=str(at), **each) for at, each in enumerate((first, second))
    ]
    begun.append(start(tmp_path, operator, 5, run="again", **second))
    begun.append(start(tmp_path, operator, 5, run="no longer named"))
    begun.append(start(tmp_path, operator, 6, run="later", **first))
    assert [each.savepoint for each in begun] == [
        "",
        *(f"{tmp_path}/{name}" for name in ("first", *["second"] * 4)),
    ]
    assert [each.number for each in begun] == [0, 1, 2, 2, 2, 2]


def test_a_corrected_savepoint_may_be_divided_otherwise(tmp_path, operator):
    """The parallelism may change too, as long as no batch was committed."""
    start(tmp_path, operator, 5, run="bare")
    layout = start(tmp_path, operator, 5, parallelism=3, **saved(tmp_path / "first"))
    assert (layout.parallelism, layout.savepoint) == (3, f"{tmp_path}/first")


def settle(tmp_path, operator, now, **how):
    """Return the layout that a classic session writes at its start."""
    begins = QueryStart(None, None, operator.query, [plan(tmp_path, **how)])
    begins.__dict__ |= {"_skipped_batch": None, "_now": now, "_pointers": []}
    begins.write_layouts()
    return current_layout(plan(tmp_path).storage(), operator)


@pytest.mark.parametrize("now", [-1, 5])
def test_a_classic_start_corrects_a_savepoint(tmp_path, operator, now):
    """A classic start may change the savepoint only before the first committed batch."""
    assert settle(tmp_path, operator, now).savepoint == ""
    named = saved(tmp_path / "first")
    assert settle(tmp_path, operator, now, **named).savepoint == f"{tmp_path}/first"
    assert settle(tmp_path, operator, now, **named).number == 1
    assert settle(tmp_path, operator, now, parallelism=3).savepoint == f"{tmp_path}/first"
    other = saved(tmp_path / "other")
    assert settle(tmp_path, operator, now + 1, parallelism=3, **other).number == 2


def test_a_savepoint_of_other_key_groups_can_be_corrected(tmp_path, operator):
    """Before the first committed batch, the number of key groups comes from the savepoint."""
    settle(tmp_path, operator, -1)
    made = plan(tmp_path, **saved(tmp_path / "wide", 512))
    made = attrs.evolve(made, max_parallelism=512)
    begins = QueryStart(None, None, operator.query, [made])
    begins.__dict__ |= {"_skipped_batch": None, "_now": -1, "_pointers": []}
    begins.write_layouts()
    assert current_layout(plan(tmp_path).storage(), operator).max_parallelism == 512


def test_a_layout_of_old_can_be_corrected_before_the_first_batch(tmp_path, storage, operator):
    """A layout without a record of the savepoint can be corrected before the first batch."""
    write_layout(storage, operator, FIRST)
    named = saved(tmp_path / "first")
    assert settle(tmp_path, operator, 5, **named) == FIRST
    assert settle(tmp_path, operator, -1, **named).savepoint == f"{tmp_path}/first"


def other_keys(made):
    """Return a plan with keys of a decimal column, with two digits after the point or another number."""
    return [attrs.evolve(made, key_fields=(DecimalType(12, scale),)) for scale in (2, 4)]


@pytest.mark.parametrize("classic", [True, False])
def test_keys_of_another_type_are_refused_in_a_subtask_without_state(tmp_path, operator, classic):
    """A subtask without state refuses keys of another type too, once a batch was committed."""

    def begin(made, now, run):
        if classic:
            begins = QueryStart(None, None, operator.query, [made])
            others = [pointer(0, 5, operator.uid)] * (
                now > 4
            )  # the pointer of a subtask with state
            begins.__dict__ |= {"_skipped_batch": None, "_now": now, "_pointers": others}
            begins.write_layouts()
        return layout_in_force(made, BatchIdentity(operator.query, run, now + 1), None).key.payload

    text = attrs.evolve(plan(tmp_path), settles=not classic)
    cents, finer = other_keys(text)
    kept = [begin(made, 4, str(at)) for at, made in enumerate((text, cents, finer, cents))]
    assert kept == [None, {"scale": 2}, {"scale": 4}, {"scale": 2}]
    with pytest.raises(
        errors.StateMigrationError, match=r"scale: 4.*cast the column to the stored"
    ):
        begin(finer, 5, "later")
    if classic:
        with pytest.raises(errors.StateMigrationError, match=r"scale: 4"):
            begin(attrs.evolve(finer, parallelism=3), 5, "divided anew")
    assert begin(cents, 5, "as before") == {"scale": 2}


def test_an_operator_without_state_gets_other_keys_by_rescale(tmp_path, storage, operator):
    """Over Spark Connect, only `rescale` knows that no subtask has state, and allows another key type."""
    cents, finer = other_keys(plan(tmp_path))

    def begin(made, batch_id, run):
        return layout_in_force(made, BatchIdentity(operator.query, run, batch_id), None).key.payload

    begin(cents, 0, "first")
    with pytest.raises(errors.StateMigrationError, match="cast the column to the stored"):
        begin(finer, 6, "no command")
    write_layout(storage, operator, prepared_layout(storage, operator, [], 2, 5, LIMITS))
    assert begin(finer, 6, "prepared") == {"scale": 4}
    assert begin(finer, 6, "another task's") == {"scale": 4}
    write_layout(
        storage, operator, prepared_layout(storage, operator, [pointer(2, 7)], 2, 6, LIMITS)
    )
    with pytest.raises(errors.StateMigrationError, match="cast the column to the stored"):
        begin(cents, 7, "with state")


def test_a_classic_start_of_an_older_checkpoint_is_refused(tmp_path, operator):
    """A classic start refuses a checkpointLocation from before the last rescale."""
    settle(tmp_path, operator, 4)
    settle(tmp_path, operator, 7, parallelism=3)
    with pytest.raises(errors.RestoreError, match="ends with batch 6, but .* after batch 7"):
        settle(tmp_path, operator, 6, parallelism=3)
    assert settle(tmp_path, operator, 8, parallelism=3).number == 1


def test_the_running_query_does_not_begin_it(tmp_path, storage, operator):
    """A running query that finds a layout with another division fails, and writes nothing."""
    layout = prepared(storage, operator, 3, after=4)
    with pytest.raises(errors.UnsettledStartError, match="divided among 3"):
        start(tmp_path, operator, 5, parallelism=2)
    assert current_layout(storage, operator) == layout


def test_a_query_that_went_on_is_seen(tmp_path, storage, operator):
    """A prepared layout is refused if the query has committed a batch since."""
    prepared(storage, operator, 2, after=4)
    assert start(tmp_path, operator, 5, pointer(0, 5), parallelism=2).number == 2
    with pytest.raises(errors.UnsettledStartError, match="it went on after batch 4"):
        start(tmp_path, operator, 6, pointer(0, 6), parallelism=2)


def test_what_is_prepared_does_not_count_yet(storage, operator):
    """Until a batch begins under the prepared layout, the old one describes the committed state."""
    layout = prepared(storage, operator, 3, after=4)
    assert last_begun(storage, operator, layout, 6) == FIRST


def test_pointers_of_another_division_are_refused(tmp_path, storage):
    """A pointer with the same layout number, but other key groups, is refused."""
    found = pointer(0, 5, groups=(0, 42))
    with pytest.raises(errors.RestoreError, match="not of"):
        committed_state(plan(tmp_path), FIRST, 0, found)
    with pytest.raises(errors.RestoreError, match="does not divide the key groups"):
        committed_handles([found], FIRST, storage, LIMITS)


def test_a_run_is_settled_once(tmp_path, operator, monkeypatch):
    """A worker lists the directory only for the first batch of a run."""
    start(tmp_path, operator, 0)
    monkeypatch.setattr(module, "current_layout", None)
    assert start(tmp_path, operator, 1).number == 0
