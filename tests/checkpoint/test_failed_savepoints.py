"""Savepoints that cannot be written or sealed leave everything as it was."""

import millpond as mp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.checkpoint.savepoint.table_writer import _row_groups
from millpond.cli.main import commands


@pytest.fixture
def savepoint(tmp_path):
    """A savepoint of two states; its folder."""

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
    """The bytes of all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(path, column, values):
    """Write a table anew with other values in a column."""
    table = pq.read_table(path)
    data = {**table.to_pydict(), column: values(table.num_rows)}
    pq.write_table(pa.table(data, table.schema), path)


def test_a_failed_rekey_leaves_nothing(savepoint, tmp_path):
    """Where the second table is damaged, the first one's copy is deleted, and a repair can be rekeyed."""
    (table,) = savepoint.glob("*/b/*.parquet")
    sound = table.read_bytes()
    table.write_bytes(sound[:-9] + b"x" + sound[-8:])
    call = ["savepoint", "rekey", str(savepoint), str(tmp_path / "new"), "--max-parallelism", "64"]
    assert CliRunner().invoke(commands, call).exit_code == 1
    assert not files(tmp_path / "new")
    table.write_bytes(sound)
    assert CliRunner().invoke(commands, call).exit_code == 0


def test_a_refused_seal_changes_nothing(savepoint):
    """Where the second table is refused, the first one, which was edited well, is not written."""
    (first,), (second,) = (savepoint.glob(f"*/{name}/*.parquet") for name in "ab")
    changed(first, "value", lambda count: [7] * count)
    changed(second, "value", lambda count: [None] * count)
    before = files(savepoint)
    with pytest.raises(errors.CorruptSnapshotError, match="b/"):
        mp.seal_savepoint(savepoint)
    assert files(savepoint) == before


def test_a_table_of_very_many_rows():
    """Row groups are cut one after the other, however many there are."""
    rows = pa.table({"value": pa.nulls(70_000_000)})
    assert sum(part.num_rows for part in _row_groups(rows)) == rows.num_rows
