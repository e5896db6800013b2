"""Raw streams: bytes that functions write themselves, by key group and by partition."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.checkpoint import CheckpointStreamFactory
from millpond.checkpoint.raw_streams import KeyedRawOutputStream, OperatorRawOutputStream


@pytest.fixture
def storage(tmp_path):
    """A storage in files."""
    return mp.checkpoint_storage(tmp_path.as_uri())


@pytest.fixture
def factory(storage):
    """The streams of one snapshot."""
    return CheckpointStreamFactory(storage, "job/raw", 1)


def test_key_groups_are_read_back_by_range(storage, factory):
    """Each key group's bytes; an intersection reads its own of the same file; none is None."""
    with factory.create("raw") as stream:
        out = KeyedRawOutputStream(stream, mp.KeyGroupRange(0, 9))
        for group in (7, 2, 4):
            out.start_new_key_group(group)
            out.write(b"x" * group)
        handle = out.close_and_get_handle()
    assert dict(handle.read(storage)) == {7: b"x" * 7, 2: b"xx", 4: b"xxxx"}
    part = handle.intersection(mp.KeyGroupRange(3, 20))
    assert dict(part.read(storage)) == {7: b"x" * 7, 4: b"xxxx"}
    assert handle.intersection(mp.KeyGroupRange(10, 20)) is None


def test_a_key_group_is_written_once_and_by_its_owner(factory):
    """Foreign and repeated key groups, and bytes without one, are refused."""
    with factory.create("raw") as stream:
        out = KeyedRawOutputStream(stream, mp.KeyGroupRange(0, 9))
        with pytest.raises(errors.KeyGroupRangeError):
            out.write(b"too early")
        out.start_new_key_group(3)
        for group in (3, 10):
            with pytest.raises(errors.KeyGroupRangeError):
                out.start_new_key_group(group)
        assert out.close_and_get_handle() is None


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
