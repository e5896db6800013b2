"""Key groups are computed as in Flink."""

import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond import errors


def test_ranges_as_flink_computes_them():
    """The ranges of Flink's own examples are the same."""
    found = [(r.start, r.end) for r in (mp.key_group_range(128, 3, i) for i in range(3))]
    assert found == [(0, 42), (43, 85), (86, 127)]
    assert [len(mp.key_group_range(10, 3, i)) for i in range(3)] == [4, 3, 3]


@given(st.integers(1, 500).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m))))
def test_ranges_cover_every_group_once(numbers):
    """The ranges of all subtasks are disjoint and complete, and agree with the owner of each group."""
    maximum, parallelism = numbers
    owners = [
        (group, index)
        for index in range(parallelism)
        for group in mp.key_group_range(maximum, parallelism, index)
    ]
    assert [group for group, _ in owners] == list(range(maximum))
    for group, index in owners:
        assert group * parallelism // maximum == index  # Flink computes the owner in this way


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (200, 512), (1000, 2048), (21845, 32768)],
)
def test_default_max_parallelism(parallelism, expected):
    """The default is the next power of two above 1.5 times the parallelism, within limits."""
    assert mp.default_max_parallelism(parallelism) == expected


def test_intersection():
    """The intersection of two ranges has the groups of both."""
    left, right = mp.KeyGroupRange(0, 10), mp.KeyGroupRange(8, 20)
    assert left.intersection(right) == mp.KeyGroupRange(8, 10)
    assert left.intersection(mp.KeyGroupRange(11, 12)) is None


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 3), (0, 32768)])
def test_wrong_ranges(bounds):
    """A range out of bounds is refused."""
    with pytest.raises(errors.KeyGroupRangeError):
        mp.KeyGroupRange(*bounds)


@pytest.mark.parametrize("numbers", [(0, 1, 0), (10, 11, 0), (10, 2, 2), (40000, 1, 0)])
def test_wrong_numbers(numbers):
    """A parallelism or index out of bounds is refused."""
    with pytest.raises(errors.KeyGroupRangeError):
        mp.key_group_range(*numbers)


def test_null_key_has_no_group():
    """None is refused as a key."""
    with pytest.raises(errors.NullValueError):
        mp.assign_to_key_group(None, 128)


@pytest.mark.parametrize("count", [0, -1, 32769, 10**30, 1.5, None, "x", True])
def test_impossible_numbers_of_key_groups(count):
    """Only 1 to 32,768 key groups are allowed."""
    refused = (errors.KeyGroupRangeError, errors.ArgumentTypeError)
    with pytest.raises(refused):
        mp.assign_to_key_group("a", count)
    with pytest.raises(refused):
        mp.open_keyed_backend("heap", key_type=str, max_parallelism=count)
    with pytest.raises(refused):
        mp.default_max_parallelism(count)
    with pytest.raises((errors.ArgumentTypeError, errors.ArgumentValueError)):
        mp.redistribute_operator_state([None], count)


def test_key_groups_beyond_all():
    """A backend cannot own key groups beyond the number of key groups."""
    beyond = mp.KeyGroupRange(120, 128)
    with pytest.raises(errors.KeyGroupRangeError, match="max-parallelism is 128"):
        mp.open_keyed_backend("heap", key_type=str, key_group_range=beyond)
