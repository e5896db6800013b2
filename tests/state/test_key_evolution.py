"""Types of keys, namespaces and map keys that change: nothing is lost, or the restore is refused."""

from datetime import timedelta
from operator import add
from typing import NamedTuple

import attrs
import millpond as mp
import pytest
from millpond import errors, windows
from millpond.plugins import get_registry
from millpond.savepoints.collect import collect_savepoint
from millpond.types import SerializerSnapshot, TypeSerializer

BACKENDS = ["heap", "rocksdb", "lmdb"]


@attrs.frozen
class Old:
    """A composite key."""

    customer: str
    shop: int


@attrs.frozen
class New:
    """The key `Old` with optional fields at the end."""

    customer: str
    shop: int
    region: str | None = None
    kind: int | None = None


@attrs.frozen
class Grouped:
    """The key `Old` with a field that stored keys have no value for."""

    customer: str
    shop: int
    region: str = "north"


@attrs.frozen
class Swapped:
    """A key with the same field types under exchanged names."""

    shop: str
    customer: int


class Plain(NamedTuple):
    """The old key as a named tuple, with a second part that may be None."""

    customer: str
    shop: int | None


KEYS = [Old(f"c{n}", n) for n in range(40)]
LONG = [f"element {n}" * 30 for n in range(60)]
"""A list that byte stores divide into pieces."""
COUNT = mp.ValueStateDescriptor("count", int)
SPACED = mp.ListStateDescriptor("spaced", str)


def by(key_type):
    """Return a map descriptor with keys of a type."""
    return mp.MapStateDescriptor("by", key_type, str)


def opened(backend, folder, key_type, restore=(), **options):
    """Return a backend in a directory."""
    return mp.open_keyed_backend(
        backend,
        key_type=key_type,
        directory=folder,
        clock=mp.ManualClock(0),
        restore=list(restore),
        **options,
    )


def fill(backend, keys=KEYS):
    """Put a value, a list in a namespace, and a map under each key."""
    for key in keys:
        backend.set_current_key(key)
        backend.get_partitioned_state(COUNT).update(key.shop)
        spaced = backend.get_partitioned_state(
            SPACED, namespace=Old("n", key.shop), namespace_type=Old
        )
        spaced.update(LONG if key.shop == 7 else [key.customer])
        backend.get_partitioned_state(by(Old)).put_all({Old("m", n): str(n) for n in range(3)})


def check(backend, make):
    """Check that everything is found under the new keys, namespaces and map keys."""
    for old in KEYS:
        backend.set_current_key(make(old))
        assert backend.get_partitioned_state(COUNT).value() == old.shop
        spaced = backend.get_partitioned_state(
            SPACED, namespace=New("n", old.shop), namespace_type=New
        )
        assert spaced.get() == (LONG if old.shop == 7 else [old.customer])
        found = dict(backend.get_partitioned_state(by(New)).items())
        assert found == {New("m", n): str(n) for n in range(3)}


def new(old):
    """Return the new form of a key."""
    return New(old.customer, old.shop)


@pytest.mark.parametrize("strategy", ["full", "changelog", "incremental", "savepoint"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_optional_fields_are_added(tmp_path, backend, strategy):
    """Entries move to the longer keys once; the next snapshot can be read with the new types."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    config = mp.Config()
    if strategy in ("full", "changelog") or (strategy, backend) == ("incremental", "rocksdb"):
        config = mp.Config({"state.snapshot.strategy": strategy})
    with opened(backend, tmp_path / "one", Old, config=config) as first:
        fill(first)
        way = first.savepoint if strategy == "savepoint" else first.snapshot
        handle = way(1, storage).result().handle
    with opened(backend, tmp_path / "two", New, [handle], config=config) as second:
        check(second, new)
        assert second.num_state_entries() == 40 + 40 + 120
        again = second.snapshot(2, storage).result().handle
        second.notify_checkpoint_complete(2)
        second.set_current_key(New("c1", 1, "south"))
        second.get_partitioned_state(COUNT).update(-1)
        last = second.snapshot(3, storage).result().handle
    for handle in (again, last):
        with opened(backend, tmp_path / f"then-{handle.checkpoint_id}", New, [handle]) as third:
            check(third, new)
            third.set_current_key(New("c1", 1, "south"))
            assert third.get_partitioned_state(COUNT).value() == (-1 if handle is last else None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rescale_reads_old_and_new_keys_side_by_side(tmp_path, backend):
    """If one subtask has run with the new type and another has not, a rescale restores both."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    ranges = [mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)]

    def mine(keys, groups, kind):
        found = [k for k in keys if mp.assign_to_key_group(k, 128, kind) in groups]
        assert found
        return found

    with opened(backend, tmp_path / "a", Old, key_group_range=ranges[0]) as one:
        fill(one, mine(KEYS, ranges[0], Old))
        first = one.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "b", Old, key_group_range=ranges[1]) as two:
        fill(two, mine(KEYS, ranges[1], Old))
        second = two.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "c", New, [second], key_group_range=ranges[1]) as moved:
        second = moved.snapshot(2, storage).result().handle
    with opened(backend, tmp_path / "d", New, [first, second]) as whole:
        check(whole, new)

    target = get_registry().savepoint(tmp_path / "saved")
    collect_savepoint({"op": [first, second]}, target, get_registry())
    with opened(backend, tmp_path / "e", New, [target], place="op") as saved:
        check(saved, new)


@pytest.mark.parametrize("backend", BACKENDS)
def test_names_and_nulls(tmp_path, backend):
    """A class may become a named tuple of the same fields, and a part may become optional."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    with opened(backend, tmp_path / "one", tuple[str, int]) as first:
        first.set_current_key(("a", 1))
        first.get_partitioned_state(COUNT).update(5)
        handle = first.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "two", Plain, [handle]) as second:
        assert list(second.keys("count")) == [Plain("a", 1)]
        second.set_current_key(Plain("a", 1))
        assert second.get_partitioned_state(COUNT).value() == 5
        second.set_current_key(Plain("a", None))
        assert second.get_partitioned_state(COUNT).value() is None


class Timed(mp.KeyedProcessFunction):
    """Function with a timer per row, and a count."""

    def open(self, context):
        self.count = context.get_state(COUNT)

    def process_element(self, row, context):
        self.count.update((self.count.value() or 0) + 1)
        context.timer_service().register_event_time_timer(row.at)

    def on_timer(self, timestamp, context):
        yield context.current_key, self.count.value(), timestamp


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_fire_under_the_new_key(backend):
    """A timer that was set with the old key type fires with the new key."""

    def harness(make, **options):
        return mp.testing.KeyedOperatorHarness(
            Timed(), key=lambda row: make(row.c, row.at), key_type=make, backend=backend, **options
        )

    with harness(Old) as operator:
        for at in (10, 20):
            operator.process({"c": "ann", "at": at})
        handle = operator.snapshot()
    with harness(New, restore=handle) as operator:
        operator.process({"c": "ann", "at": 10})
        operator.advance_watermark(30)
        assert sorted(operator.output, key=lambda row: row[2]) == [
            (New("ann", 10), 2, 10),
            (New("ann", 20), 1, 20),
        ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_sessions_live_on(backend):
    """Namespaces, timers and merged windows of sessions are found under a longer key."""
    sessions = windows.EventTimeSessionWindows.with_gap(timedelta(milliseconds=10))

    def harness(make, **options):
        return mp.testing.KeyedOperatorHarness(
            windows.window(sessions).reduce(add, int, "n"),
            key=lambda row: make(row.c, 1),
            key_type=make,
            backend=backend,
            **options,
        )

    with harness(Old) as operator:
        for at in (0, 15):
            operator.process({"c": "ann", "n": 1}, at)
        handle = operator.snapshot()
    with harness(New, restore=handle) as operator:
        operator.process({"c": "ann", "n": 5}, 8)
        operator.advance_watermark(100)
        assert operator.output == [(New("ann", 1), 0, 25, 7)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("key_type", "reason"),
    [
        (Grouped, "a new part of it needs a type such as"),
        (Swapped, "new ones may only follow"),
        (tuple[str, float], "int cannot become float"),
        (tuple[str], "would be lost"),
        (tuple[str, int, int], "a new part of it needs a type such as"),
        (str, "cannot become str"),
    ],
)
def test_what_would_lose_keys_is_refused(tmp_path, backend, key_type, reason):
    """A change that would lose keys is refused with both types and the reason; the old type still reads the data."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    with opened(backend, tmp_path / "one", Old) as first:
        fill(first, KEYS[:3])
        handle = first.snapshot(1, storage).result().handle
    with pytest.raises(errors.StateMigrationError, match=reason) as refused:
        opened(backend, tmp_path / "two", key_type, [handle])
    assert refused.value.part == "key"
    with opened(backend, tmp_path / "three", Old, [handle]) as third:
        third.set_current_key(KEYS[0])
        with pytest.raises(errors.StateMigrationError, match="map key"):
            third.get_partitioned_state(by(Swapped))
        assert len(dict(third.get_partitioned_state(by(Old)).items())) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_moves_are_in_deltas(tmp_path, backend):
    """A delta contains moved entries, also those in pieces."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    config = mp.Config(
        {
            "state.snapshot.strategy": "changelog",
            "state.snapshot.base-ratio": "1000",
            "checkpoint.claim": "true",
        }
    )
    with opened(backend, tmp_path / "one", Old, config=config) as first:
        fill(first)
        handle = first.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "two", Old, [handle], config=config) as second:
        check(second, lambda old: old)
        handle = second.snapshot(2, storage).result().handle
        assert [file.kind for file in handle.files] == ["base", "delta"]
    with opened(backend, tmp_path / "three", Old, [handle], config=config) as third:
        check(third, lambda old: old)
        assert third.num_state_entries() == 40 + 40 + 120


def test_broadcast_keys_grow():
    """Keys of broadcast maps may get optional fields; other changes are refused."""
    storage = mp.checkpoint_storage("memory:")
    with mp.open_operator_backend() as backend:
        backend.get_broadcast_state(by(Old)).put(Old("a", 1), "x")
        handle = backend.snapshot(1, storage).result().handle
    with mp.open_operator_backend(restore=[handle]) as backend:
        with pytest.raises(errors.StateMigrationError, match="map key"):
            backend.get_broadcast_state(by(Swapped))
        grown = backend.get_broadcast_state(by(New))
        assert dict(grown.items()) == {New("a", 1): "x"}
        with pytest.raises(errors.StateConflictError):
            backend.get_broadcast_state(by(Old))


class Folded(TypeSerializer):
    """String keys; every version of the serializer writes the same bytes."""

    immutable = True

    def __init__(self, version=1):
        self.version = version

    def check(self, value):
        return value

    def serialize(self, value):
        return value.encode()

    def deserialize(self, data):
        return data.decode()

    def snapshot(self):
        return SerializerSnapshot("folded", self.version)

    def compatibility(self, old):
        return mp.Compatibility(mp.Outcome.RECONFIGURED)


@pytest.mark.parametrize("backend", BACKENDS)
def test_reconfigured_serializers_of_keys(tmp_path, backend):
    """A changed key serializer that reports that it writes the stored bytes is accepted."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    with opened(backend, tmp_path / "one", Folded()) as first:
        first.set_current_key("Ann")
        first.get_partitioned_state(COUNT).update(1)
        handle = first.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "two", Folded(2), [handle]) as second:
        second.set_current_key("Ann")
        assert second.get_partitioned_state(COUNT).value() == 1
        assert second.snapshot(2, storage).result().handle.key.version == 2
