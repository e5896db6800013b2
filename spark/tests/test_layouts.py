"""Layouts: each key group is restored by one subtask, from its previous owner."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond import KeyedStateHandle, KeyGroupRange, errors, key_group_range
from millpond.config import RestoreConfig
from millpond.operator_id import OperatorId
from millpond.storage.memory import MemoryStorage
from millpond.types import key_codec_for
from millpond_spark.driver.savepoints import committed_handles
from millpond_spark.plan.layout import Layout, current_layout, read_layout, write_layout
from millpond_spark.plan.pointer import Pointer

KEY = key_codec_for(str).snapshot()
LIMITS = RestoreConfig()


def handle(groups, number=1, storage=None):
    """Return the handle of a snapshot of some key groups."""
    version = f"{number}-{groups}"
    return KeyedStateHandle(number, version, groups, 128, KEY, (), (), storage=storage)


def left_by(parallelism):
    """Return the handles of a number of subtasks."""
    return tuple(handle(key_group_range(128, parallelism, at)) for at in range(parallelism))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 128), st.integers(1, 128))
def test_every_key_group_is_restored_once(before, after):
    """Each key group is restored from its previous owner into its new one."""
    layout = Layout(1, after, 128, left_by(before))
    found = {}
    shares = layout.shares(LIMITS)
    for index in range(after):
        groups = layout.key_groups(index)
        for part in layout.sources_of(index, shares):
            for group in part.key_group_range:
                assert group in groups
                assert found.setdefault(group, part.version) is part.version
                found[group] = part.version
                (owner,) = (each for each in layout.sources if group in each.key_group_range)
                assert part.version == owner.version
    assert sorted(found) == list(range(128))
    parts = (part for index in range(after) for part in layout.sources_of(index, shares))
    total = sum(len(part.key_group_range) for part in parts)
    assert total == 128


def test_a_layout_comes_back_and_the_highest_number_counts():
    """A layout is read with all its fields, and the highest number is used: 10 is higher than 9."""
    storage = MemoryStorage.private()
    assert current_layout(storage, OperatorId("q", "u")) is None
    for number in (0, 9, 10):
        sources = tuple(attrs.evolve(each, storage=storage) for each in left_by(2))
        given = Layout(number, 3, 128, sources, "file:///s", ("u", "w"), 7, "prepared", "r")
        write_layout(storage, OperatorId("q", "u"), given)
        assert read_layout(storage, OperatorId("q", "u"), number) == given
    assert current_layout(storage, OperatorId("q", "u")).number == 10
    assert current_layout(storage, OperatorId("q", "other")) is None


def test_a_layout_under_another_number_is_refused():
    """A layout file that was copied to another number is refused."""
    storage = MemoryStorage.private()
    write_layout(storage, OperatorId("q", "u"), Layout(0, 1, 128))
    storage.write("q/u/layout/00000001.json", [storage.read_all("q/u/layout/00000000.json")])
    with pytest.raises(errors.CorruptSnapshotError, match="number is 0"):
        current_layout(storage, OperatorId("q", "u"))


def pointer(groups, layout, number, storage):
    """Return a subtask's pointer under a layout."""
    left = handle(groups, number, storage)
    return Pointer("u", left.version, number, groups.start, groups.end, left.to_json(), "", layout)


def test_a_pointer_counts_under_its_own_layout_only():
    """A subtask that has not run since a rescale has the state of the layout's sources, not of an old pointer."""
    storage = MemoryStorage.private()
    sources = tuple(attrs.evolve(h, storage=storage) for h in left_by(4))
    layout = Layout(1, 2, 128, sources, settled_after=3)
    first, second = layout.key_groups(0), layout.key_groups(1)
    pointers = [pointer(first, 1, 5, storage), pointer(second, 0, 4, storage)]
    found = committed_handles(pointers, layout, storage, LIMITS)
    assert [(each.checkpoint_id, each.key_group_range) for each in found] == [
        (5, first),
        (1, KeyGroupRange(64, 95)),
        (1, KeyGroupRange(96, 127)),
    ]
