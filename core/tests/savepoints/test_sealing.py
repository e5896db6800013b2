"""Edited savepoints: rows that can be sealed, and folders of tables."""

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millpond import errors
from millpond.savepoints.savepoint_file import Savepoint, read_savepoint, write_savepoint
from millpond.snapshots.handles import SavepointHandle

from tests.checkpoint.stored import TOTAL, locate_savepoint, reseal

ITEMS = mp.ListStateDescriptor("items", int)
HALF = mp.KeyGroupRange(0, 63)
OF_HALF = [key for key in map(str, range(20)) if mp.assign_to_key_group(key, 128) in HALF]
OF_OTHER = next(key for key in map(str, range(20)) if key not in OF_HALF)


def saved(folder, groups=None, lists=False):
    """A savepoint of some keys of the first half of the key groups, and its only table."""
    with mp.open_keyed_backend(
        "heap", key_type=str, place="job", key_group_range=groups or mp.KeyGroupRange(0, 127)
    ) as backend:
        for key in OF_HALF:
            backend.set_current_key(key)
            if lists:
                backend.get_partitioned_state(ITEMS).update([1, 2])
            else:
                backend.get_partitioned_state(TOTAL).update(1)
        backend.strategy("savepoint").save(1, mp.checkpoint_storage(str(folder)), "").result()
    (table,) = folder.rglob("*.parquet")
    return table


def edit(table, change):
    """Change the rows of a table."""
    found = pq.read_table(table)
    pq.write_table(pa.Table.from_pylist(change(found.to_pylist()), found.schema), table)


@pytest.mark.parametrize(
    ("lists", "change", "message"),
    [
        (False, lambda rows: [*rows, {**rows[0], "key": OF_OTHER}], "key group.*holds 0..63"),
        (False, lambda rows: [*rows, {**rows[2], "value": 7}], "an earlier one has the same key"),
        (True, lambda rows: [*rows[:-1], {**rows[-1], "value": []}], "its list is empty"),
    ],
)
def test_rows_that_no_restore_would_give_are_not_sealed(tmp_path, lists, change, message):
    """Rows that could not be restored are refused with file and row, and the savepoint is unchanged."""
    table = saved(tmp_path, HALF, lists)
    metadata, original = (tmp_path / "savepoint.json").read_bytes(), table.read_bytes()
    edit(table, change)
    number = len(pq.read_table(table)) - 1
    with pytest.raises(errors.CorruptSnapshotError, match=f"row {number}: .*{message}") as caught:
        mp.seal_savepoint(tmp_path)
    assert caught.value.file.endswith(table.name)
    assert (tmp_path / "savepoint.json").read_bytes() == metadata
    table.write_bytes(original)
    mp.open_keyed_backend("heap", key_type=str, place="job", restore=[tmp_path]).close()


@pytest.mark.parametrize("name", ["!first.parquet", "z-last.parquet"])
@pytest.mark.parametrize("changed", [False, True])
def test_a_key_that_two_files_hold_is_not_sealed(tmp_path, name, changed):
    """A key in two files is refused with both files, whether the edited one is in the metadata or not."""
    table = saved(tmp_path)
    metadata = (tmp_path / "savepoint.json").read_bytes()
    rows = pq.read_table(table)
    pq.write_table(rows.slice(2, 1), table.with_name(name))
    if changed:
        edit(table, lambda rows: [{**row, "value": 7} for row in rows])
    key = rows["key"][2].as_py()
    with pytest.raises(errors.CorruptSnapshotError, match=f"the key '{key}' is in ") as caught:
        mp.seal_savepoint(tmp_path, added=True)
    assert {table.name, name} <= set(
        str(caught.value).replace("'", "/").replace(",", "/").split("/")
    )
    assert (tmp_path / "savepoint.json").read_bytes() == metadata
    pq.write_table(rows.slice(2, 1), table.with_name(name))
    edit(table, lambda rows: rows[:2] + rows[3:])
    mp.seal_savepoint(tmp_path, added=True)
    with mp.open_keyed_backend("heap", key_type=str, place="job", restore=[tmp_path]) as backend:
        assert backend.num_state_entries() == len(rows)


@pytest.mark.parametrize("added", [False, True])
def test_a_name_of_a_keyed_and_of_an_operator_state(tmp_path, caplog, added):
    """Tables of a keyed state and of an operator state with the same name are sealed separately."""
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        backend.operator_state = mp.open_operator_backend()
        backend.operator_state.get_list_state(mp.ListStateDescriptor("total", int)).add(5)
        backend.set_current_key("a")
        backend.get_partitioned_state(TOTAL).update(1)
        backend.strategy("savepoint").save(1, mp.checkpoint_storage(str(tmp_path)), "").result()
    for table in tmp_path.rglob("*.parquet"):
        edit(table, lambda rows: [{**row, "value": row["value"] * 100} for row in rows])
    mp.seal_savepoint(tmp_path, added=added)
    assert not caplog.messages
    (operator,) = read_savepoint(locate_savepoint(tmp_path)).operators
    paths = operator.states[0].files[0].path, operator.operator_states[0].file.path
    assert [pq.read_table(tmp_path / path)["value"].to_pylist() for path in paths] == [[100], [500]]


def test_rows_outside_of_a_savepoints_key_groups_are_refused(tmp_path):
    """Files with key groups outside of the operator's are refused."""
    saved(tmp_path)
    outside = mp.assign_to_key_group(OF_HALF[0], 128)

    def narrowed(body):
        body["operators"][0]["key_group_range"] = {"start": outside + 1, "end": 127}

    reseal(tmp_path, narrowed)
    with pytest.raises(errors.CorruptSnapshotError, match="has other key groups"):
        mp.open_keyed_backend("heap", key_type=str, place="job", restore=[tmp_path])


def test_rows_beyond_what_the_metadata_says_are_damage(tmp_path):
    """A table with rows outside of the file's stated key groups is damage, because a restore would skip them."""
    saved(tmp_path)

    def narrowed(body):
        (file,) = body["operators"][0]["states"][0]["files"]
        file["last_group"] -= 1

    reseal(tmp_path, narrowed)
    with pytest.raises(errors.CorruptSnapshotError, match="it holds others than the key groups"):
        mp.open_keyed_backend("heap", key_type=str, place="job", restore=[tmp_path])


class Reminders(mp.KeyedProcessFunction):
    """Function with timers, and a state with the name of the timers' table in version 0.1.0."""

    def open(self, context):
        """Get the state."""
        self.seen = context.get_state(mp.ValueStateDescriptor("timers_event-time", int))

    def process_element(self, row, context):
        """Count, and set a timer for time 10."""
        self.seen.update((self.seen.value() or 0) + 1)
        context.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp, context):
        """Yield the count."""
        yield context.current_key, timestamp, self.seen.value()


def harness(restore=None):
    """Return the function in a harness."""
    return mp.testing.KeyedOperatorHarness(Reminders(), key="k", restore=restore)


def fires(folder):
    """Return whether the timer and the count of a savepoint are restored."""
    with harness(folder) as restored:
        restored.advance_watermark(10)
        return restored.output == [("a", 10, 1)]


def test_no_state_shares_the_folder_of_the_timers(tmp_path):
    """No state has the same folder as the timers, whatever the state's name."""
    with harness() as operator:
        operator.process({"k": "a"})
        operator.savepoint(tmp_path / "s")
    assert fires(tmp_path / "s")


def test_names_that_are_too_long_for_a_folder(tmp_path):
    """Names that are too long for a folder are shortened to different folders, and both states are restored."""
    names = ["金額" * 40 + end for end in "ab"]
    states = [mp.ValueStateDescriptor(name, int) for name in names]
    with mp.open_keyed_backend("heap", key_type=str, place="job") as backend:
        backend.set_current_key("k")
        for number, state in enumerate(states):
            backend.get_partitioned_state(state).update(number)
        backend.strategy("savepoint").save(1, mp.checkpoint_storage(str(tmp_path)), "").result()
    assert len(list((tmp_path / "job").iterdir())) == 2
    mp.seal_savepoint(tmp_path, added=True)
    with mp.open_keyed_backend("heap", key_type=str, place="job", restore=[tmp_path]) as backend:
        backend.set_current_key("k")
        assert [backend.get_partitioned_state(state).value() for state in states] == [0, 1]


def test_what_could_not_be_read_is_not_written(tmp_path):
    """A writer that names a file twice fails, because the savepoint could not be read."""
    saved(tmp_path / "s")
    savepoint = read_savepoint(locate_savepoint(tmp_path / "s"))
    target = SavepointHandle(1, "", mp.checkpoint_storage(str(tmp_path / "t")))
    with pytest.raises(errors.CorruptSnapshotError, match="named twice"):
        write_savepoint(target, Savepoint(1, savepoint.operators * 2))
    assert not (tmp_path / "t").exists()
