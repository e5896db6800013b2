"""Operator state at another parallelism: Flink's rules, and each element exactly once."""

from itertools import chain

import millpond as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millpond.storage.memory import MemoryStorage

SPLIT = mp.ListStateDescriptor("split", int)
UNION = mp.ListStateDescriptor("union", int)
RULES = mp.MapStateDescriptor("rules", str, int)


def subtasks(*lists):
    """Return the handles of subtasks with the given elements, each in its own storage."""
    handles = []
    for at, elements in enumerate(lists):
        with mp.open_operator_backend() as backend:
            backend.get_list_state(SPLIT).update(elements)
            backend.get_union_list_state(UNION).update(elements)
            backend.get_broadcast_state(RULES).put("from", at)
            handles.append(backend.snapshot(1, MemoryStorage.private()).result().handle)
    return handles


def held(handles):
    """Return the content of a subtask that restores handles."""
    with mp.open_operator_backend(restore=handles) as backend:
        split = list(backend.get_list_state(SPLIT).get())
        union = list(backend.get_union_list_state(UNION).get())
        return split, union, dict(backend.get_broadcast_state(RULES).items())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.integers(1, 6))
def test_every_element_goes_to_one_subtask(sizes, parallelism):
    """Elements are divided in order into consecutive chunks that differ by one; union lists go to all."""
    numbers = iter(range(100))
    lists = [[next(numbers) for _ in range(size)] for size in sizes]
    found = [held(each) for each in mp.redistribute_operator_state(subtasks(*lists), parallelism)]
    everything = list(chain(*lists))
    assert sorted(chain(*(split for split, _, _ in found))) == everything
    for split, union, rules in found:
        assert split == sorted(split)
        assert union == everything
        assert rules in [{"from": at} for at in range(len(sizes))]
    if len(sizes) == parallelism:
        assert [split for split, _, _ in found] == lists
    else:
        counts = [len(split) for split, _, _ in found]
        assert max(counts) - min(counts) <= 1


def test_broadcast_copies_go_round():
    """New subtask i gets the broadcast copy of old subtask i modulo their number."""
    found = mp.redistribute_operator_state(subtasks([], [], []), 7)
    assert [held(each)[2]["from"] for each in found] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_subtask_without_state_changes_nothing_for_others(missing):
    """A subtask without state counts as a place, and all elements of the others are kept."""
    handles = subtasks([0, 1], [2, 3], [4, 5])
    handles[missing] = None
    found = [held(each)[0] for each in mp.redistribute_operator_state(handles, 2)]
    rest = [n for n in range(6) if n // 2 != missing]
    assert found == [rest[:2], rest[2:]]
