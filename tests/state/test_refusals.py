"""Refused arguments give the same errors with and without TTL, in operator state, and by name."""

import operator
from datetime import timedelta

import millpond as mp
import pytest
from millpond import errors, windows

DAY = mp.StateTtlConfig(timedelta(days=1))


class Nothing(mp.AggregateFunction):
    """Aggregate function that returns None at the second value."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return value if accumulator == 0 else None

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return None


def _lost(a, b):
    return b if a == 0 else None


STATES = {
    "value": lambda: mp.ValueStateDescriptor("s", int),
    "list": lambda: mp.ListStateDescriptor("s", int),
    "map": lambda: mp.MapStateDescriptor("s", str, int),
    "reducing": lambda: mp.ReducingStateDescriptor("s", _lost, int | None),
    "aggregating": lambda: mp.AggregatingStateDescriptor("s", Nothing(), int | None),
    "folding": lambda: mp.FoldingStateDescriptor("s", 0, _lost, int | None),
}
CALLS = {
    "value": [("update", "a")],
    "list": [
        *[("add", value) for value in (None, "a")],
        *[
            (verb, value)
            for verb in ("add_all", "update")
            for value in (None, 5, {7: 1}, [1, None], ["a"])
        ],
    ],
    "map": [
        *[("put", *entry) for entry in ((None, 1), ([], 1), (1, 1), ("a", None), ("a", "b"))],
        *[("put_all", value) for value in (None, 5, [("a", 1)], {"a": None}, {None: 1}, {"b": ""})],
        *[(verb, key) for verb in ("get", "contains", "remove") for key in (None, [], 1)],
    ],
    "reducing": [("add", None), ("add", "a"), ("add", 1)],
    "aggregating": [("add", None), ("add", 1)],
    "folding": [("add", None), ("add", 1)],
}
FIRST = {"value": ("update", 7), "list": ("add", 7), "map": ("put", "k", 7)}


def _refusals(backend, tmp_path, kind, ttl):
    """Return the error of each call, and the final content of the state."""
    descriptor = STATES[kind]()
    if ttl:
        descriptor.enable_time_to_live(DAY)
    folder = tmp_path / f"{kind}-{ttl}"
    with mp.open_keyed_backend(backend, key_type=str, directory=folder) as opened:
        opened.set_current_key("key")
        state = opened.get_partitioned_state(descriptor)
        first, *values = FIRST.get(kind, ("add", 7))
        getattr(state, first)(*values)
        told = []
        for verb, *arguments in CALLS[kind]:
            with pytest.raises((errors.MillpondError, TypeError)) as caught:
                getattr(state, verb)(*arguments)
            assert isinstance(caught.value, errors.MillpondError)
            told.append((verb, arguments, type(caught.value), str(caught.value)))
        read = {"value": "value", "map": "items"}.get(kind, "get")
        held = getattr(state, read)()
        return told, held if kind != "map" else list(held)


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
@pytest.mark.parametrize("kind", STATES)
def test_ttl_refuses_what_is_refused_without_it(backend, tmp_path, kind):
    """A wrong argument, and a function that returns None, give the same error with and without TTL."""
    plain = _refusals(backend, tmp_path, kind, ttl=False)
    assert _refusals(backend, tmp_path, kind, ttl=True) == plain
    assert plain[1] == {"list": [7], "map": [("k", 7)]}.get(kind, 7)


@pytest.mark.parametrize("get", ["get_list_state", "get_union_list_state", "get_broadcast_state"])
def test_operator_state_has_no_ttl_and_is_not_queryable(get):
    """TTL and query names are refused for operator state, with the state's name."""
    make = STATES["map" if get == "get_broadcast_state" else "list"]
    with mp.open_operator_backend() as backend:
        for descriptor in (make().enable_time_to_live(DAY), make().set_queryable("q")):
            with pytest.raises(errors.ConfigError, match="s: operator state has no"):
                getattr(backend, get)(descriptor)
        assert backend.get_registered_state_names() == frozenset()
        assert backend.get_registered_broadcast_state_names() == frozenset()


def test_operator_state_names_itself_and_the_argument():
    """A wrong element, key or value names the state; a wrong whole argument names the argument."""
    with mp.open_operator_backend() as backend:
        items = backend.get_list_state(STATES["list"]())
        rules = backend.get_broadcast_state(mp.MapStateDescriptor("rules", str, int))
        for call in (lambda: items.add("a"), lambda: items.update([1, "a"])):
            with pytest.raises(errors.StateTypeError, match="operator state 's'"):
                call()
        for call in (lambda: rules.put(1, 1), lambda: rules.put("a", ""), lambda: rules.get(1)):
            with pytest.raises(errors.StateTypeError, match="broadcast state 'rules'"):
                call()
        for wrong in (5, {7: 1}):
            with pytest.raises(errors.ArgumentTypeError, match="values"):
                items.add_all(wrong)
        with pytest.raises(errors.ArgumentTypeError, match="entries"):
            rules.put_all(5)
        assert (items.get(), list(rules.items())) == ([], [])


class Untyped(mp.KeyedProcessFunction, mp.ListCheckpointed):
    """Function with a list but without its ``element_type``."""

    def process_element(self, row, context):
        return None

    def snapshot_state(self, checkpoint_id):
        return []

    def restore_state(self, elements):
        pass


def test_a_list_without_a_type_is_refused_at_the_start():
    """A list without a type is refused at the start, not only by the first snapshot."""
    with pytest.raises(errors.UserFunctionError, match="element_type: ListCheckpointed needs"):
        mp.local.run(Untyped(), [{"k": "a"}], key="k")


def test_a_trigger_is_an_instance():
    """A trigger must be an instance; a class or another object is refused."""
    hourly = windows.window(windows.TumblingEventTimeWindows.of(timedelta(hours=1)))
    for wrong in (windows.EventTimeTrigger, None, 5):
        with pytest.raises(errors.ArgumentTypeError, match="trigger"):
            hourly.trigger(wrong)


def test_a_missing_field_is_called_by_its_use():
    """A missing field is refused as the key, the event time or a window's value."""
    row = {"k": "a", "ms": 1}
    hourly = windows.window(windows.TumblingEventTimeWindows.of(timedelta(hours=1)))
    summed = hourly.reduce(operator.add, int, "n")
    for key, time, what in (("q", "ms", "key"), ("k", "q", "event_time"), ("k", "ms", "value")):
        with pytest.raises(errors.MillpondError, match=f"row: {what}: Row"):
            mp.local.run(summed, [row], key=key, event_time=time)


class Seen(mp.KeyedBroadcastProcessFunction):
    """Function that yields its rows."""

    def process_element(self, row, context):
        yield "row", row

    def process_broadcast_element(self, row, context):
        yield "broadcast", row.n


def test_local_runs_take_every_row():
    """A first row that is None is a row, and broadcast rows need no other rows."""
    assert mp.local.run(Seen(), [None, 1], key=str) == [("row", None), ("row", 1)]
    assert mp.local.run(Seen(), [], key="k", broadcast=[{"n": 1}]) == [("broadcast", 1)]
    assert mp.local.run(Seen(), [], key="k") == []


class Shared(windows.ProcessWindowFunction):
    """Function that requests states of the given names and uses, in order."""

    def __init__(self, *uses):
        self.uses = uses

    def process(self, key, context, elements):
        for use, name in self.uses:
            getattr(context, use)(mp.ListStateDescriptor(name, int)).add(1)
        yield key


@pytest.mark.parametrize(
    "uses",
    [
        [("window_state", "same"), ("global_state", "same")],
        [("global_state", "same"), ("window_state", "same")],
        [("global_state", "window-contents")],
        [("window_state", "merging-windows")],
    ],
)
def test_a_name_is_state_of_windows_or_of_the_key(uses):
    """A name cannot be used for a window's state and the key's, nor for Millpond's own states of windows."""
    hourly = windows.window(windows.TumblingEventTimeWindows.of(timedelta(hours=1)))
    rows = [{"k": "a", "ms": 1, "n": 1}]
    with pytest.raises(errors.UserFunctionError, match="StateConflictError: The state"):
        mp.local.run(hourly.process(Shared(*uses), int, "n"), rows, key="k", event_time="ms")
    apart = Shared(("window_state", "one"), ("global_state", "other"))
    assert mp.local.run(hourly.process(apart, int, "n"), rows, key="k", event_time="ms") == ["a"]
