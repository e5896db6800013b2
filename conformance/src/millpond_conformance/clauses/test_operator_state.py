"""Clauses: the operator state of functions is part of the backend's snapshots."""

from typing import Any

import millpond as mp
import pytest
from typing_extensions import override

from millpond_conformance.comparing import assert_same

ITEMS = mp.ListStateDescriptor("items", int)
ALL = mp.ListStateDescriptor("all", int)
RULES = mp.MapStateDescriptor("rules", str, int)
SEEN = mp.ValueStateDescriptor("seen", int, default=0)
FORMS = ("full", "changelog", "savepoint")


class Holder(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """A function with operator state of every kind, next to keyed state."""

    groups: mp.KeyGroupRange

    @override
    def initialize_state(self, context):
        """Get the operator states, and record the raw bytes and whether there is a restore."""
        self.restored = context.is_restored
        self.items = context.operator_state_store.get_list_state(ITEMS)
        self.everywhere = context.operator_state_store.get_union_list_state(ALL)
        self.rules = context.operator_state_store.get_broadcast_state(RULES)
        self.by_group = dict(context.raw_keyed_inputs())

    @override
    def open(self, context):
        self.seen = context.get_state(SEEN)

    @override
    def process_element(self, row, context):
        self.seen.update(self.seen.value() + 1)
        self.items.add(row.n)
        self.everywhere.add(row.n)
        self.rules.put("limit", 5)

    @override
    def snapshot_state(self, context):
        """Write the number of each key group of this subtask as a raw byte."""
        for group in self.groups:
            context.raw_keyed_output.start_new_key_group(group)
            context.raw_keyed_output.write(bytes([group]))


GROUPS = 8


def subtasks(backend_name, parallelism, restore=None, form="changelog"):
    """Open all subtasks of an operator; return a pair of function and harness for each subtask."""
    made = []
    for subtask in range(parallelism):
        function = Holder()
        function.groups = mp.key_group_range(GROUPS, parallelism, subtask)
        harness = mp.testing.KeyedOperatorHarness(
            function,
            key="k",
            backend=backend_name,
            max_parallelism=GROUPS,
            subtask=subtask,
            parallelism=parallelism,
            restore=restore,
            config=mp.Config(
                {"state.snapshot.strategy": "full" if form == "full" else "changelog"}
            ),
        )
        made.append((function, harness))
    return made


def keys_of(function, count):
    """Return `count` keys whose key groups belong to the subtask of `function`."""
    named = (f"k{number}" for number in range(10_000))
    mine = (key for key in named if mp.assign_to_key_group(key, GROUPS) in function.groups)
    return [next(mine) for _ in range(count)]


def snapshot_in_form(harness, form, folder):
    """Take a savepoint if `form` says so, else a snapshot; return its handle."""
    return harness.savepoint(folder) if form == "savepoint" else harness.snapshot()


def saved(backend_name, parallelism, form, folder, restore=None, rows=2):
    """Process `rows` rows in each subtask; return the handles, and the numbers of all rows."""
    handles: list[Any] = []
    numbers: list[int] = []
    for subtask, (function, harness) in enumerate(
        subtasks(backend_name, parallelism, restore, form)
    ):
        with harness:
            for key in keys_of(function, rows):
                numbers.append(100 * subtask + len(numbers))
                harness.process({"k": key, "n": numbers[-1]})
            handles.append(snapshot_in_form(harness, form, folder / f"{parallelism}-{subtask}"))
    return handles, numbers


@pytest.mark.clause("O1")
@pytest.mark.parametrize("form", FORMS)
def test_operator_state_is_in_each_kind_of_snapshot(backend_name, tmp_path, form):
    """Lists, union lists, broadcast maps and raw bytes come back together with keyed state."""
    (handle,), numbers = saved(backend_name, 1, form, tmp_path)
    ((function, harness),) = subtasks(backend_name, 1, handle)
    with harness:
        assert function.restored
        assert_same(function.items.get(), numbers)
        assert_same(function.everywhere.get(), numbers)
        assert dict(function.rules.items()) == {"limit": 5}
        assert function.by_group == {group: bytes([group]) for group in range(GROUPS)}
        harness.process({"k": keys_of(function, 1)[0], "n": 7})
        assert function.seen.value() == 2


@pytest.mark.clause("O2")
@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 5), (4, 1)])
def test_operator_state_is_given_out_anew(backend_name, tmp_path, before, after):
    """After a rescale each list element is in one subtask; union and broadcast elements are in all.

    Raw bytes of a key group are in the subtask that has the key group.
    """
    handles, numbers = saved(backend_name, before, "changelog", tmp_path)
    split: list[int] = []
    groups: dict[int, bytes] = {}
    for function, harness in subtasks(backend_name, after, handles):
        with harness:
            split += function.items.get()
            assert sorted(function.everywhere.get()) == numbers
            assert dict(function.rules.items()) == {"limit": 5}
            assert set(function.by_group) == set(function.groups)
            groups |= function.by_group
    assert sorted(split) == numbers
    assert groups == {group: bytes([group]) for group in range(GROUPS)}


@pytest.mark.clause("O3")
def test_a_first_start_restores_nothing(backend_name):
    """Without a snapshot `is_restored` is false, and the function's operator state is empty."""
    ((function, harness),) = subtasks(backend_name, 1)
    with harness:
        assert not function.restored
        assert function.items.get() == function.everywhere.get() == []
        assert function.by_group == dict(function.rules.items()) == {}


@pytest.mark.clause("O4")
def test_operator_state_goes_on_from_snapshot_to_snapshot(backend_name, tmp_path):
    """A snapshot of a restored operator contains the old elements and the new ones."""
    handles, numbers = saved(backend_name, 1, "changelog", tmp_path)
    again, more = saved(backend_name, 1, "changelog", tmp_path, handles)
    ((function, harness),) = subtasks(backend_name, 1, again)
    with harness:
        assert_same(function.items.get(), [*numbers, *more])
    ((function, harness),) = subtasks(backend_name, 1, handles)
    with harness:
        assert function.items.get() == numbers
