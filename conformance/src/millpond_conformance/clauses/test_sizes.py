"""Clauses: sizes around powers of two, the ends of a store's pages, and many entries."""

import bz2
import gzip
import lzma
import pickle
import zlib
from typing import Any

import millpond as mp
import pytest

from millpond_conformance.comparing import assert_same

pytestmark = pytest.mark.slow

BLOB = mp.ValueStateDescriptor("blob", bytes)
MANY = mp.MapStateDescriptor("many", int, int)
TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)
SIZES = sorted({(1 << power) + near for power in range(8, 25) for near in (-1, 0, 1)})


@pytest.mark.clause("V19")
def test_sizes_around_powers_of_two(open_backend, storage):
    """Values of every size around a power of two, up to 16 MiB, come back byte for byte.

    This includes values whose stored row has such a size, because a row is a few bytes longer than
    its value. It also includes values that replace a longer one.
    """
    backend = open_backend()
    state = backend.get_partitioned_state(BLOB)
    pattern = bytes(range(251)) * 67_000
    # A stored value may begin with its length; these sizes need each number of length bytes.
    small = [(1 << power) + near for power in (12, 16, 17) for near in range(-12, 3)]
    for size in sorted({*SIZES, *small}):
        backend.set_current_key(str(size))
        if size <= 1 << 17:
            state.update(pattern[: 2 * size + 9000])
            backend.flush()
        state.update(pattern[:size])
        backend.flush()
        assert len(state.value()) == size
        assert state.value() == pattern[:size]
        if size > 1 << 17:
            state.clear()
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    again = restored.get_partitioned_state(BLOB)
    for size in sorted({*SIZES, *small}):
        restored.set_current_key(str(size))
        expected = pattern[:size] if size <= 1 << 17 else None
        assert again.value() == expected


@pytest.mark.clause("V20")
@pytest.mark.parametrize("count", [1023, 1025, 20_000])
def test_many_entries_of_one_map(open_backend, count):
    """A map of thousands of entries is listed, overwritten, removed entry by entry and cleared."""
    backend = open_backend()
    state = backend.get_partitioned_state(MANY)
    backend.set_current_key("k")
    state.put_all({number: number for number in range(count)})
    assert sum(1 for _ in state.items()) == count
    backend.flush()
    state.put_all({number: -number for number in range(0, count, 2)})
    expected = {number: number if number % 2 else -number for number in range(count)}
    assert dict(state.items()) == expected
    for number in range(1, count, 2):
        state.remove(number)
    backend.flush()
    assert sorted(state.keys()) == list(range(0, count, 2))
    state.clear()
    assert state.is_empty()
    backend.flush()
    assert list(state.items()) == []
    assert backend.num_state_entries() == 0


@pytest.mark.clause("V21")
def test_a_list_of_70_000_elements(open_backend, storage):
    """A list of 70,000 elements is stored, grows, and is restored."""
    backend = open_backend()
    state = backend.get_partitioned_state(ITEMS)
    backend.set_current_key("k")
    state.add_all(range(70_000))
    backend.flush()
    state.add(-1)
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(ITEMS).get() == [*range(70_000), -1]


CROWD = 120_000


@pytest.mark.clause("V29")
def test_a_scan_of_120_000_entries(open_backend, storage):
    """No entry is missing among 120,000 keys, or among 120,000 entries of a map.

    This applies to an enumeration, a snapshot and its restore.
    """
    backend = open_backend()
    keys = [f"k{number}" for number in range(CROWD)]
    backend.get_partitioned_state(TOTAL).update_many(keys, range(CROWD))
    backend.set_current_key("k7")
    backend.get_partitioned_state(MANY).put_all(dict.fromkeys(range(CROWD), 7))
    handle = backend.snapshot(1, storage).result().handle
    for each in (backend, open_backend(restore=[handle])):
        assert set(each.keys("total")) == set(keys)
        found = each.get_partitioned_state(TOTAL).get_many(keys)
        assert found.to_pylist() == list(range(CROWD))
        each.set_current_key("k7")
        assert dict(each.get_partitioned_state(MANY).items()) == dict.fromkeys(range(CROWD), 7)


SIGNS = [*map(chr, range(0x20, 0x7F)), *(sign * 2 for sign in ":/.-_|#;,")]
NAMES = ["s", *(f"s{sign}s" for sign in SIGNS), *(f"s{sign}" for sign in SIGNS[:95])]
NAMES += [f"s{number}" for number in range(100, 160)]
"""Names of states with characters by which a store may separate a state's name from a key."""


@pytest.mark.clause("V22")
def test_many_states(open_backend, storage):
    """Each of 260 states whose names begin with the same letters has and lists its own entries.

    This also holds after a restore.
    """

    def states(backend):
        backend.set_current_key("k")
        return [backend.get_partitioned_state(mp.ValueStateDescriptor(n, int)) for n in NAMES]

    def expect_their_own(backend):
        assert [state.value() for state in states(backend)] == [*range(260)]
        listed = {name: list(backend.keys(name)) for name in NAMES}
        mixed = {name: found for name, found in listed.items() if found != ["k"]}
        assert mixed == {}, "keys under names of states that are not theirs"

    backend = open_backend()
    for number, state in enumerate(states(backend)):
        state.update(number)
    expect_their_own(backend)
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    expect_their_own(restored)


LENGTHS = range(1100)


def places_of(backend, place):
    """Return functions that put, remove, get and list numbers.

    The numbers are stored under keys, map keys or namespaces. `place` decides which of them.
    """
    backend.set_current_key(b"")
    if place == "map key":
        entries = backend.get_partitioned_state(mp.MapStateDescriptor("entries", bytes, int))
        return entries.put, entries.remove, entries.get, lambda: list(entries.keys())
    value = mp.ValueStateDescriptor("value", int)
    state = backend.get_partitioned_state(value, b"", bytes)
    chosen = backend.set_current_key if place == "key" else state.set_current_namespace

    def put(at, number):
        chosen(at)
        state.update(number)

    def remove(at):
        chosen(at)
        state.clear()

    def get(at):
        chosen(at)
        return state.value()

    def listed():
        return [pair[place == "namespace"] for pair in backend.keys_and_namespaces("value")]

    return put, remove, get, listed


@pytest.mark.clause("V23")
@pytest.mark.parametrize("place", ["key", "map key", "namespace"])
def test_keys_of_every_length(open_backend, storage, place):
    """The backend distinguishes keys, map keys and namespaces of each length up to 1,100 bytes.

    All of them can be overwritten, removed and listed, also after a restore.
    """
    keys = [b"k" * length for length in LENGTHS]
    backend = open_backend(key_type=bytes)
    put, remove, get, listed = places_of(backend, place)
    for length, key in enumerate(keys):
        put(key, length)
    backend.flush()
    assert [get(key) for key in keys] == [*LENGTHS]
    for key in keys[::3]:
        remove(key)
    for key in keys[1::3]:
        put(key, -1)
    expected = [(None, -1, length)[length % 3] for length in LENGTHS]
    left = sorted(key for key, value in zip(keys, expected, strict=True) if value is not None)
    for _ in range(2):
        assert sorted(listed()) == left
        assert [get(key) for key in keys] == expected
        backend.flush()
    restored = open_backend(key_type=bytes, restore=[backend.snapshot(1, storage).result().handle])
    _, _, get, listed = places_of(restored, place)
    assert [get(key) for key in keys] == expected
    assert sorted(listed()) == left
    if place == "key":
        values = restored.get_partitioned_state(mp.ValueStateDescriptor("value", int), b"", bytes)
        assert values.get_many(keys).to_pylist() == expected


BEGINNINGS = (
    *(b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00sNaPpY", b"\x1f\x8b", b"PK\3\4"),
    *(b"\x78\x9c", b"\x78\x01", b"\x80\x04", b"SQLite format 3\0", b"ARROW1", b"PAR1", b"MILLHNDL"),
    *(b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\xef\xbb\xbf", b"\xff\xfe", b"{", b"null", b"\0"),
)
"""The first bytes of known file formats, and of Millpond's own rows."""


@pytest.mark.clause("V24")
def test_bytes_are_nobodys_format(open_backend, storage):
    """Bytes that look compressed, pickled or otherwise encoded come back unchanged."""
    text = b"Millpond" * 20
    whole = [zlib.compress(text), gzip.compress(text), bz2.compress(text), lzma.compress(text)]
    shown = [*whole, pickle.dumps({"a": 1}), b'{"a": 1}']
    shown += [start + rest for start in BEGINNINGS for rest in (b"", b"\0" * 8, text * 40)]
    backend = open_backend()
    blob, items, many = (
        mp.ValueStateDescriptor("blob", bytes),
        mp.ListStateDescriptor("items", bytes),
        mp.MapStateDescriptor("many", bytes, bytes),
    )
    for at, data in enumerate(shown):
        backend.set_current_key(str(at))
        backend.get_partitioned_state(blob).update(data)
        backend.get_partitioned_state(items).add_all([data, b"", data])
        backend.get_partitioned_state(many).put(data[:40], data)
    backend.flush()
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    for each in (backend, restored):
        for at, data in enumerate(shown):
            each.set_current_key(str(at))
            assert_same(each.get_partitioned_state(blob).value(), data)
            assert_same(each.get_partitioned_state(items).get(), [data, b"", data])
            assert_same(dict(each.get_partitioned_state(many).items()), {data[:40]: data})


TINY = mp.Config({"buffer.max-bytes": "64kb", "buffer.max-entries": 1000})
BLOBS = mp.ListStateDescriptor("blobs", bytes)
TABLE = mp.MapStateDescriptor("table", int, bytes)
JOINED = mp.ReducingStateDescriptor("joined", bytes.__add__, bytes)


@pytest.mark.clause("V28")
@pytest.mark.parametrize("size", [100, 7_000, 65_536, 200_000])
def test_values_that_fill_the_buffer(open_backend, storage, size):
    """No value is lost, even if it is as large as the write buffer, or larger.

    This includes values that are read first, overwritten or grow, by single calls or bulk calls.
    """
    backend = open_backend(config=TINY)
    keys = [f"k{number}" for number in range(12)]
    expected: dict[str, tuple[Any, ...]] = {}
    for turn in range(4):
        for number, key in enumerate(keys):
            data = bytes([turn, number]) * (size // 2)
            backend.set_current_key(key)
            blob = backend.get_partitioned_state(BLOB)
            before = expected.get(key, (None, [], {}, b""))
            if turn == number % 3:
                assert blob.value() == before[0]
            blob.update(data)
            backend.get_partitioned_state(BLOBS).add(data)
            backend.get_partitioned_state(TABLE).put(turn % 2, data)
            backend.get_partitioned_state(JOINED).add(data)
            rest = before[1:]
            expected[key] = (data, [*rest[0], data], {**rest[1], turn % 2: data}, rest[2] + data)
        if turn == 2:
            many = [bytes([9, number]) * (size // 2) for number in range(12)]
            blob.update_many(keys, many)
            expected = {k: (m, *expected[k][1:]) for k, m in zip(keys, many, strict=True)}
        found = zip(keys, blob.get_many(keys).to_pylist(), strict=True)
        assert not [key for key, data in found if data != expected[key][0]]
    restored = open_backend(restore=[backend.snapshot(1, storage).result().handle])
    for each in (backend, restored):
        for key in keys:
            each.set_current_key(key)
            blob, items, table, joined = map(
                each.get_partitioned_state, (BLOB, BLOBS, TABLE, JOINED)
            )
            held = (blob.value(), items.get(), dict(table.items()), joined.get())
            same = [one == other for one, other in zip(held, expected[key], strict=True)]
            assert same == [True] * 4, key
