"""The memory of a byte store's write buffer remains within its limit, also for growing values."""

import tracemalloc
from datetime import timedelta
from typing import NamedTuple

import attrs
import millpond as mp
import pytest

SIZE, KEYS, LIMIT = 256 << 10, 48, 1 << 20
CONFIG = mp.Config({"buffer.max-bytes": LIMIT})


def blob():
    """Return a new value of a quarter of the buffer's size."""
    return bytes(SIZE)


def grown(backend):
    """Return actions by name that write something small and then a large value in its place."""
    value = backend.get_partitioned_state(mp.ValueStateDescriptor("value", bytes))
    ttl = mp.StateTtlConfig(timedelta(days=1))
    timed = mp.ValueStateDescriptor("timed", bytes)
    timed.enable_time_to_live(ttl)
    kept = backend.get_partitioned_state(timed)
    named = backend.get_partitioned_state(mp.MapStateDescriptor("map", str, bytes))
    blobs = backend.get_partitioned_state(mp.ListStateDescriptor("list", bytes))
    text = backend.get_partitioned_state(mp.ValueStateDescriptor("text", str))
    joined = backend.get_partitioned_state(
        mp.ReducingStateDescriptor("sum", lambda one, two: one + two, bytes)
    )
    return {
        "value": lambda key: (value.update(b"x"), value.update(blob())),
        "with a TTL": lambda key: (kept.update(b"x"), kept.update(blob())),
        "many": lambda key: (value.update_many([key], [b"x"]), value.update_many([key], [blob()])),
        "map": lambda key: (named.put("a", b"x"), named.put("a", blob())),
        "list": lambda key: (blobs.update([b"x"]), blobs.update([blob()])),
        "reducing": lambda key: (joined.add(b"x"), joined.add(blob())),
        "elements": lambda key: blobs.add_all([blob(), b""]),
        "a list of several": lambda key: blobs.update([blob(), b""]),
        "a text of wide characters": lambda key: text.update("😀" + "a" * 60_000),
    }


def held_after(backend, change):
    """Return the bytes in memory after a change to each of many keys."""
    backend.flush()
    tracemalloc.start()
    try:
        for key in range(KEYS):
            backend.set_current_key(key)
            change(key)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("backend_name", ["lmdb", "rocksdb"])
def test_the_limit_holds_for_what_grows(tmp_path, backend_name):
    """Values of twelve times the buffer's size, which replace small or other ones, do not remain in memory."""
    with mp.open_keyed_backend(
        backend_name, key_type=int, directory=tmp_path / "store", config=CONFIG
    ) as backend:
        for name, change in grown(backend).items():
            held = held_after(backend, change)
            assert held < 2 * LIMIT, f"{name}: {held >> 10} KiB"


@pytest.mark.parametrize("backend_name", ["lmdb", "rocksdb"])
def test_nothing_is_lost_where_growth_flushes(tmp_path, backend_name):
    """Values that grow beyond the free space, or beyond the whole buffer, are stored."""
    with mp.open_keyed_backend(
        backend_name, key_type=int, directory=tmp_path / "store", config=CONFIG
    ) as backend:
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("value", bytes))
        named = backend.get_partitioned_state(mp.MapStateDescriptor("map", str, bytes))
        blobs = backend.get_partitioned_state(mp.ListStateDescriptor("list", bytes))
        for key in range(12):
            backend.set_current_key(key)
            for power in range(6, 22, 3):
                data = bytes([key]) * (1 << power)
                value.update(data)
                named.put("a", data)
                blobs.add_all([data, b"end"])
                blobs.get()
        for key in range(12):
            backend.set_current_key(key)
            last = bytes([key]) * (1 << 21)
            assert value.value() == named.get("a") == last
            assert [len(part) for part in blobs.get()][-2:] == [1 << 21, 3]
            assert len(blobs.get()) == 12


class Custom(mp.TypeSerializer[str]):
    """Serializer of a user's type."""

    def check(self, value):
        return str(value)

    def snapshot(self):
        return mp.SerializerSnapshot("custom")

    def serialize(self, value):
        return value.encode()

    def deserialize(self, data):
        return data.decode()


@pytest.mark.parametrize("name", ["lmdb", "rocksdb"])
def test_values_of_custom_types_are_stored(name, tmp_path):
    """Values, entries and elements of a user's type are flushed like others."""
    with mp.open_keyed_backend(name, key_type=str, directory=tmp_path) as backend:
        backend.set_current_key("k")
        held = backend.get_partitioned_state(mp.ValueStateDescriptor("v", Custom()))
        named = backend.get_partitioned_state(mp.MapStateDescriptor("m", str, Custom()))
        several = backend.get_partitioned_state(mp.ListStateDescriptor("l", Custom()))
        held.update("a")
        named.put("a", "b")
        several.add_all(["c", "d"])
        backend.flush()
        assert (held.value(), named.get("a"), several.get()) == ("a", "b", ["c", "d"])


@attrs.frozen
class Inner:
    """A class with a large field."""

    data: bytes
    note: str | None = None


@attrs.define
class Outer:
    """A class that contains another class."""

    number: int
    inner: Inner


class Pair(NamedTuple):
    """A named tuple with a large field."""

    name: str
    data: bytes | int


PARTS = {
    "class": (Inner, lambda: Inner(blob())),
    "text": (Inner, lambda: Inner(b"", "a" * SIZE)),
    "class in a class": (Outer, lambda: Outer(1, Inner(blob()))),
    "tuple": (tuple[str, bytes], lambda: ("a", blob())),
    "many alike": (tuple[bytes, ...], lambda: (blob(),)),
    "named tuple": (Pair, lambda: Pair("a", blob())),
    "list": (list[bytes], lambda: [blob()]),
    "set": (set[bytes], lambda: {blob()}),
    "dict": (dict[str, Inner], lambda: {"a": Inner(blob())}),
    "dict's key": (dict[bytes, int], lambda: {blob(): 1}),
}


@pytest.mark.parametrize("kind", PARTS)
def test_the_limit_holds_for_parts(tmp_path, kind):
    """Strings and bytes inside classes count, for each way into the buffer."""
    declared, make = PARTS[kind]
    with mp.open_keyed_backend("lmdb", key_type=int, directory=tmp_path, config=CONFIG) as backend:
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("value", declared))
        several = backend.get_partitioned_state(mp.ListStateDescriptor("list", declared))
        named = backend.get_partitioned_state(mp.MapStateDescriptor("map", int, declared))
        changes = (
            lambda _: value.update(make()),
            lambda key: value.update_many([key], [make()]),
            lambda _: several.add(make()),
            lambda _: named.put(1, make()),
        )
        for change in changes:
            assert held_after(backend, change) < 2 * LIMIT


def test_the_limit_holds_for_map_keys(tmp_path):
    """A map with large keys is flushed like one with large values."""
    with mp.open_keyed_backend("lmdb", key_type=int, directory=tmp_path, config=CONFIG) as backend:
        state = backend.get_partitioned_state(mp.MapStateDescriptor("map", bytes, int))
        assert held_after(backend, lambda key: state.put(bytes([key]) * SIZE, 1)) < 2 * LIMIT
        assert held_after(backend, lambda key: state.remove(bytes([key]) * SIZE)) < 2 * LIMIT


SMALL_PARTS = {
    "numbers": (list[int], lambda: list(range(1000, 5000))),
    "pairs": (list[tuple[int, int]], lambda: [(number, 1) for number in range(1000)]),
    "texts": (list[str], lambda: [str(number) for number in range(2000)]),
    "entries": (dict[int, int], lambda: dict.fromkeys(range(2000), 1)),
}


@pytest.mark.parametrize("backend_name", ["lmdb", "rocksdb"])
@pytest.mark.parametrize("kind", SMALL_PARTS)
def test_the_limit_holds_for_what_is_read(tmp_path, kind, backend_name):
    """Values of many small parts count by their stored size when they are read."""
    declared, make = SMALL_PARTS[kind]
    with mp.open_keyed_backend(
        backend_name, key_type=int, directory=tmp_path, config=CONFIG
    ) as backend:
        value = backend.get_partitioned_state(mp.ValueStateDescriptor("value", declared))
        several = backend.get_partitioned_state(mp.ListStateDescriptor("list", declared))
        named = backend.get_partitioned_state(mp.MapStateDescriptor("map", int, declared))
        keys = range(100)
        for key in keys:
            backend.set_current_key(key)
            value.update(make())
            several.update([make()])
            named.put(1, make())
        for read in (value.value, several.get, lambda: named.get(1)):
            backend.flush()
            tracemalloc.start()
            for key in keys:
                backend.set_current_key(key)
                read()
            assert tracemalloc.get_traced_memory()[1] < 6 * LIMIT
            tracemalloc.stop()


def peak(change):
    """Return the maximum number of bytes in memory during a call."""
    tracemalloc.start()
    try:
        change()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("backend_name", ["lmdb", "rocksdb"])
def test_passing_over_large_rows_holds_few_of_them(tmp_path, backend_name):
    """Iterating, counting, clearing, clean-up and visiting all keys read 16 rows of 256 KiB at a time."""
    clock, rows, most = mp.ManualClock(0), 100, 10 << 20
    with mp.open_keyed_backend(
        backend_name, key_type=int, directory=tmp_path / "store", config=CONFIG, clock=clock
    ) as backend:
        timed = mp.ValueStateDescriptor("timed", bytes)
        timed.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=10)))
        kept = backend.get_partitioned_state(timed)
        listed = mp.ListStateDescriptor("listed", bytes)
        listed.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=10)))
        kept_lists = backend.get_partitioned_state(listed)
        descriptor = mp.ValueStateDescriptor("value", bytes)
        value = backend.get_partitioned_state(descriptor)
        entries = backend.get_partitioned_state(mp.MapStateDescriptor("map", int, bytes))
        for key in range(rows):
            backend.set_current_key(key)
            kept.update(blob())
            kept_lists.add(blob())
            value.update(blob())
            backend.set_current_key(0)
            entries.put(key, blob())
        backend.flush()
        assert peak(lambda: [None for _ in entries.items()]) < most
        assert peak(backend.num_state_entries) < most
        assert peak(lambda: backend.apply_to_all_keys(descriptor, lambda *_: None)) < most
        clock.advance(10)
        assert peak(backend.flush) < most
        backend.set_current_key(0)
        assert peak(entries.clear) < most
        assert backend.num_state_entries() == rows


@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("backend_name", ["lmdb", "rocksdb"])
def test_the_first_entry_of_a_buffered_map_is_had_alone(tmp_path, backend_name, stored):
    """`is_empty` and the first entry of a buffered map read neither all other entries nor removed ones."""
    count, little = 20_000, 16 << 10
    with mp.open_keyed_backend(backend_name, key_type=int, directory=tmp_path / "store") as backend:
        backend.set_current_key(1)
        entries = backend.get_partitioned_state(mp.MapStateDescriptor("map", int, int))
        for key in range(stored):
            entries.put(key, key)
        backend.flush()
        backend.set_current_key(1)
        for key in range(count):
            entries.put(key, key)
        assert peak(entries.is_empty) < little
        assert peak(lambda: next(iter(entries.keys()))) < little
        for key in range(count - 1):
            entries.remove(key)
        assert peak(lambda: list(entries.items())) < little
        assert list(entries.items()) == [(count - 1, count - 1)]
