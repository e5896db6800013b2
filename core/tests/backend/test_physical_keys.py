"""Stored keys: key group, key, namespace and map key, each with a recognizable end."""

import millpond as mp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millpond.errors import MillpondError
from millpond.spi.keys import end_of_prefix
from millpond.types import key_codec_for
from millpond.types.serializer_lookup import row_key_codec

from core.tests.memory_store import STORES, open_memory

TEXTS = ["", "a", "a\0", "a\0b", "b", "ü", "\U0010ffff"]
SPLIT = st.sampled_from(["\ud800", "a\udfff"])
"""Halves of surrogate pairs, which cannot be encoded."""


@pytest.mark.parametrize(("max_parallelism", "size"), [(1, 1), (128, 1), (129, 2), (32768, 2)])
def test_a_row_begins_with_its_key_group(tmp_path, max_parallelism, size):
    """A row begins with one byte for up to 128 key groups, two beyond, big-endian; a group's rows are adjacent."""
    with open_memory(tmp_path, max_parallelism=max_parallelism) as backend:
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        for number in range(100):
            backend.set_current_key(f"key {number}")
            state.update(number)
        backend.flush()
        expected = {
            mp.assign_to_key_group(f"key {number}", max_parallelism).to_bytes(size, "big")
            for number in range(100)
        }
        rows = STORES[-1].rows["v"]
        assert {row[:size] for row in rows} == expected
        groups = [int.from_bytes(row[:size], "big") for row in sorted(rows)]
        assert groups == sorted(groups)


def test_key_namespace_and_map_key_are_told_apart(tmp_path):
    """Each combination of parts is a separate entry, whatever bytes the parts have."""
    descriptor = mp.MapStateDescriptor("m", str, str)
    with open_memory(tmp_path) as backend:
        state = backend.get_partitioned_state(descriptor, namespace="")
        places = [(key, space, name) for key in TEXTS for space in TEXTS for name in TEXTS]
        for key, space, name in places:
            backend.set_current_key(key)
            state.set_current_namespace(space)
            state.put(name, repr((key, space, name)))
        backend.flush()
        assert len(STORES[-1].rows["m"]) == len(places)
        for key, space, name in places:
            backend.set_current_key(key)
            state.set_current_namespace(space)
            assert state.get(name) == repr((key, space, name))
            assert sorted(state.keys()) == sorted(TEXTS)


@given(st.binary(min_size=1, max_size=6), st.binary(max_size=6))
def test_the_end_of_a_prefix_is_the_first_key_beyond(prefix, rest):
    """All keys with the prefix are below the returned end, and no other key from the prefix on is."""
    end = end_of_prefix(prefix)
    if end is None:
        assert set(prefix) == {255}
        return
    assert prefix + rest < end
    assert prefix + b"\xff" * 9 < end
    assert not end.startswith(prefix)
    assert all(byte == 255 for byte in prefix[len(end) :])


@pytest.mark.parametrize("kind", [str, int, bytes, tuple[str, int]])
def test_codecs_delimit_themselves(kind):
    """A key can be decoded from the middle of other bytes, which are not read."""
    values = {
        str: TEXTS,
        int: [0, 1, -1, 2**63 - 1, -(2**63)],
        bytes: [b"", b"\0", b"\0\xff", b"\xff"],
        tuple[str, int]: [("", 0), ("a\0", -1)],
    }[kind]
    codec = key_codec_for(kind)
    for value in values:
        data = b"\x01\x02" + codec.encode(value) + b"\0\xff\0"
        assert codec.decode(data, 2) == (value, len(data) - 3)


COMPOSITE = [tuple[int, str], tuple[str, int | None, bytes], tuple[tuple[int, str], bool]]
PLACED = [int, str, bool, float, *COMPOSITE]
PARTS = st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats() | st.text() | SPLIT


def outcome(call):
    """Return the result of a call, or class and text of its error."""
    try:
        return call()
    except MillpondError as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", PLACED, ids=str)
@given(PARTS | st.tuples(PARTS, PARTS) | st.tuples(st.tuples(PARTS, PARTS), PARTS))
def test_a_key_is_placed_where_its_hash_says(kind, key):
    """Checking and hashing a key together, or one after the other, gives the same key, group or error."""
    codec = key_codec_for(kind)

    def slowly():
        checked = codec.check(key)
        signed = int.from_bytes(codec.hash(checked).to_bytes(8, "big"), "big", signed=True)
        return checked, signed % 100

    assert repr(outcome(lambda: codec.check_with_group(key, 100))) == repr(outcome(slowly))


@pytest.mark.parametrize("kind", [int, str, *COMPOSITE], ids=str)
@given(st.data())
def test_many_keys_are_converted_as_each_by_itself(kind, data):
    """Encoding and decoding many keys gives the same as key by key."""
    parts = {
        int: st.integers(-(2**63), 2**63 - 1),
        str: st.sampled_from(TEXTS),
        COMPOSITE[0]: st.tuples(st.integers(-9, 9), st.sampled_from(TEXTS)),
        COMPOSITE[1]: st.tuples(st.text(), st.none() | st.integers(0, 9), st.binary()),
        COMPOSITE[2]: st.tuples(st.tuples(st.integers(-9, 9), st.text()), st.booleans()),
    }
    keys, codec = data.draw(st.lists(parts[kind], max_size=12)), key_codec_for(kind)
    encoded = [codec.encode(key) for key in keys]
    assert codec.encode_many(keys) == encoded
    assert codec.decode_many([b"\0\1" + each for each in encoded], 2) == keys


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(TEXTS), st.floats()), min_size=1, max_size=5
    )
)
def test_keys_of_columns_are_those_of_their_rows(rows):
    """Parts that are checked as columns make the same keys as checked rows."""
    codec = row_key_codec([key_codec_for(kind) for kind in (int, str, float)], ["a", "b", "c"])
    columns = [
        list(map(p.check, c)) for p, c in zip(codec.parts, zip(*rows, strict=True), strict=True)
    ]
    made, expected = codec.keys_from_columns(columns), list(map(codec.check, rows))
    assert list(map(repr, made)) == list(map(repr, expected))
    assert list(map(type, made)) == list(map(type, expected))
