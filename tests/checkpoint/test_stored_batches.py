"""The data source reads only batches of a query that are committed and still stored."""

import json

import millpond as mp
import pytest
from millpond import errors
from millpond_cli.datasource import MillpondDataSource

from tests.checkpoint.stored import confirmed

LOWER, UPPER = mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)
CONFIG = mp.Config({"state.snapshot.strategy": "full"})


@pytest.fixture
def snapshots(tmp_path):
    """The snapshot directory of queries."""
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


@pytest.fixture
def query(tmp_path):
    """The checkpointLocation of a query that has committed batches 0 to 2."""
    commits = tmp_path / "query" / "commits"
    commits.mkdir(parents=True)
    (tmp_path / "query" / "metadata").write_text(json.dumps({"id": "q"}))
    for batch in range(3):
        (commits / str(batch)).write_text("v1\n{}")
    return tmp_path / "query"


def subtask(snapshots, groups, checkpoints, config=CONFIG):
    """Take confirmed snapshots of one subtask of the query."""
    storage = mp.checkpoint_storage(str(snapshots))
    confirmed(storage, groups, checkpoints, backend="heap", place="q/op", config=config)


def checkpoints_read(query, snapshots, **options):
    """Return the checkpoints from which the data source returns rows."""
    given = {"path": str(query), "snapshots": str(snapshots), "state": "total", **options}
    source = MillpondDataSource(given)
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return {value % 100 for batch in batches for value in batch["value"].to_pylist()}


def test_a_batch_that_one_subtask_has_written_is_no_batch_yet(query, snapshots):
    """A batch that Spark has not committed is refused, and no error suggests it."""
    subtask(snapshots, LOWER, [1, 2, 3, 4])
    subtask(snapshots, UPPER, [1, 2, 3])
    for batch in ("3", "4"):
        with pytest.raises(errors.ConfigError, match=f"no batch {batch}; there are 0 to 2"):
            checkpoints_read(query, snapshots, batchId=batch)
    assert checkpoints_read(query, snapshots, batchId="2") == {3}
    assert checkpoints_read(query, snapshots) == {3}


def test_a_batch_is_refused_where_no_committed_one_has_snapshots(query, snapshots):
    """If all snapshots are newer than the last commit, none of them is read."""
    subtask(snapshots, LOWER, [4])
    with pytest.raises(errors.ConfigError, match="no batch 3; there are none"):
        checkpoints_read(query, snapshots, batchId="3")


def test_a_batch_in_which_no_subtask_had_rows_is_there(query, snapshots):
    """The last committed batch may be newer than all snapshots."""
    subtask(snapshots, mp.KeyGroupRange(0, 127), [1])
    assert checkpoints_read(query, snapshots, batchId="2") == {1}


def test_damage_is_told_rather_than_a_batch_that_is_missing(query, snapshots):
    """If no metadata can be read, that is the error, whatever the requested batch."""
    subtask(snapshots, LOWER, [1])
    (file,) = snapshots.rglob("*.snapshot")
    file.write_bytes(b"")
    for batch in ("0", "7"):
        with pytest.raises(errors.CorruptSnapshotError, match="snapshot's metadata"):
            checkpoints_read(query, snapshots, batchId=batch)
