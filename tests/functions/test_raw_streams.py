"""Raw streams: bytes by partition."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.output_streams import CheckpointStreamFactory, OperatorRawOutputStream


@pytest.fixture
def storage(tmp_path):
    """A storage in files."""
    return mp.checkpoint_storage(tmp_path.as_uri())


@pytest.fixture
def factory(storage):
    """The streams of one snapshot."""
    return CheckpointStreamFactory(storage, "job/raw", 1)


def test_partitions_are_read_back(storage, factory):
    """Every partition, also an empty one; a handle may stand for some of them."""
    with factory.create("raw") as stream:
        out = OperatorRawOutputStream(stream)
        out.write(b"first")
        out.start_new_partition()
        out.start_new_partition()
        out.write(b"third")
        handle = out.close_and_get_handle()
    assert list(handle.read(storage)) == [b"first", b"", b"third"]
    assert list(attrs.evolve(handle, partitions=(2,)).read(storage)) == [b"third"]
    with pytest.raises(errors.CorruptSnapshotError, match="no partition 5"):
        list(attrs.evolve(handle, partitions=(5,)).read(storage))
    for offsets in ((0, 9, 3), (-1, 2, 3), (0, 1, 1 << 40)):
        with pytest.raises(errors.CorruptSnapshotError, match="offsets"):
            list(attrs.evolve(handle, offsets=offsets).read(storage))
