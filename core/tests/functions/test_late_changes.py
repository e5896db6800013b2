"""Operator state in `close`, after the last snapshot, can be read and not changed."""

import millpond as mp
import pytest

SEEN = mp.ListStateDescriptor("seen", int)
RULES = mp.MapStateDescriptor("rules", str, int)
MORE = mp.ListStateDescriptor("more", int)

CHANGES = {
    "add": lambda function: function.seen.add(2),
    "add_all": lambda function: function.seen.add_all([2]),
    "update": lambda function: function.seen.update([]),
    "clear": lambda function: function.seen.clear(),
    "put": lambda function: function.rules.put("a", 2),
    "put_all": lambda function: function.rules.put_all({"a": 2}),
    "remove": lambda function: function.rules.remove("a"),
    "clear a map": lambda function: function.rules.clear(),
}
"""Actions that change a state, by name."""


class ChangesLate(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """Function that reads and then changes its operator state in `close`."""

    def __init__(self, change):
        self.change = change

    def initialize_state(self, context):
        self.store = context.operator_state_store
        self.seen = self.store.get_list_state(SEEN)
        self.rules = self.store.get_broadcast_state(RULES)

    def process_element(self, row, context):
        self.seen.add(row.n)
        self.rules.put(row.k, row.n)

    def snapshot_state(self, context):
        pass

    def close(self):
        self.last = self.seen.get(), dict(self.rules.items())
        self.change(self)


@pytest.mark.parametrize("change", CHANGES)
def test_operator_state_cannot_be_changed_in_close(change):
    """A change in `close` is refused, because no snapshot would contain it; reads work."""
    function = ChangesLate(CHANGES[change])
    with (
        pytest.raises(mp.errors.UserFunctionError, match=r"ChangesLate\.close") as caught,
        mp.testing.KeyedOperatorHarness(function, key="k") as harness,
    ):
        harness.process({"k": "a", "n": 1})
    assert isinstance(caught.value.__cause__, mp.errors.LateChangeError)
    assert function.last == ([1], {"a": 1})
    with pytest.raises(mp.errors.BackendClosedError):
        CHANGES[change](function)


@pytest.mark.parametrize("kind", ["get_list_state", "get_union_list_state"])
def test_a_state_requested_in_close_cannot_be_changed(kind):
    """A state that is requested in `close` cannot be changed either."""
    function = ChangesLate(lambda function: getattr(function.store, kind)(MORE).add(1))
    with pytest.raises(mp.errors.UserFunctionError, match="'more' cannot be changed in close"):
        mp.local.run(function, [{"k": "a", "n": 1}], key="k")


def test_a_refused_change_does_not_hide_the_functions_own_error():
    """If the function has already failed, the refused change is a note to its error."""
    with pytest.raises(mp.errors.UserFunctionError, match="process_element") as caught:
        mp.local.run(ChangesLate(CHANGES["add"]), [{"k": "a", "n": "not a number"}], key="k")
    assert any("'seen' cannot be changed in close" in note for note in caught.value.__notes__)
