"""An accepted value comes back equal and of the same type; other values are refused at once."""

import datetime as dt
import enum
import random
import shutil
from decimal import Decimal
from typing import get_origin

import millpond as mp
import pyarrow as pa
import pytest
from millpond import errors
from millpond.backend.operator_state import Mode, OperatorStateMeta
from millpond.savepoints.operator_tables import OperatorTableCodec, _fitting_table
from millpond.state import StateKind
from millpond.types import key_codec_for, serializer_for
from millpond.types.value_columns import column_form

from tests.types import type_language as tl

BACKENDS = ["heap", "rocksdb", "lmdb"]
DEPTH = 3
PER_PROGRAM = 12


def _map_of(name, declared):
    return mp.MapStateDescriptor(name, int, declared)


def _values(case, count):
    """Return the values of a case; None is no value of a state."""
    drawn = (case.draw() for _ in range(20 * count))
    return [value for value in drawn if value is not None][:count]


class Program:
    """Some types, in turn in a value, a list and a map state; types for keys are also used as keys."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.states = []
        for number in range(PER_PROGRAM):
            case = tl.any_type(rng, DEPTH)
            values = _values(case, 3)
            if values:
                kind = [mp.ValueStateDescriptor, mp.ListStateDescriptor, _map_of][number % 3]
                self.states.append((kind(f"s{number}", case.declared), case.declared, values))
        self.places = []
        for number in range(2):
            self._place(f"k{number}", tl.key_type(rng))

    def _place(self, name, case):
        codec = key_codec_for(case.declared)
        values = {}
        for _ in range(6):
            try:
                value = codec.check(case.draw())
            except errors.StateTypeError:  # beyond 64 bits, not finite, too many digits
                continue
            values[codec.encode(value)] = value
        self.places.append(
            (
                mp.MapStateDescriptor(f"m{name}", case.declared, int),
                mp.ValueStateDescriptor(f"n{name}", int),
                case.declared,
                list(values.values()),
            )
        )

    def fill(self, backend):
        """Write all values of all states under one key."""
        backend.set_current_key("k")
        for descriptor, _, values in self.states:
            state = backend.get_partitioned_state(descriptor)
            if descriptor.kind is StateKind.MAP:
                state.put_all(dict(enumerate(values)))
            else:
                state.update(values if descriptor.kind is StateKind.LIST else values[0])
        for mapping, value, kind, keys in self.places:
            backend.get_partitioned_state(mapping).put_all({})
            for number, key in enumerate(keys):
                backend.get_partitioned_state(mapping).put(key, number)
                backend.get_partitioned_state(value, key, kind).update(number)

    def check(self, backend):
        """Fail unless all states return the values that ``fill`` wrote."""
        backend.set_current_key("k")
        for descriptor, declared, values in self.states:
            state = backend.get_partitioned_state(descriptor)
            if descriptor.kind is StateKind.VALUE:
                same([state.value()], values[:1], declared)
            elif descriptor.kind is StateKind.LIST:
                same(state.get(), values, declared)
            else:
                same([state[number] for number in sorted(state)], values, declared)
        for mapping, value, kind, keys in self.places:
            codec = key_codec_for(kind)
            found = {codec.encode(k): k for k, _ in backend.get_partitioned_state(mapping).items()}
            for number, key in enumerate(keys):
                same(found.pop(codec.encode(key)), key, kind)
                assert backend.get_partitioned_state(mapping).get(key) == number
                assert backend.get_partitioned_state(value, key, kind).value() == number
            assert not found, kind


def same(found, given, declared):
    """Fail unless two values are equal and of the same type at each depth."""
    assert tl.fingerprint(found) == tl.fingerprint(given), f"{declared}: {given!r} is {found!r}"


def opened(name, folder, *, strategy="full", restore=(), groups=None):
    """Return a backend with a snapshot strategy."""
    config = mp.Config({"state.snapshot.strategy": strategy})
    return mp.open_keyed_backend(
        name, key_type=str, directory=folder, restore=restore, config=config, key_group_range=groups
    )


def round_trip(seed, folder):
    """Run a program on each backend: read, flush, snapshot, rescale, and a savepoint for the next one."""
    program = Program(seed)
    storage = mp.checkpoint_storage(f"memory:types-{seed}")
    halves = [mp.KeyGroupRange(0, 63), mp.KeyGroupRange(64, 127)]
    group = mp.assign_to_key_group("k", 128)
    half = halves[group // 64]
    savepoint = None
    order = random.Random(seed).sample(BACKENDS, len(BACKENDS))
    for number, name in enumerate(order):
        strategy = ["full", "changelog"][(seed + number) % 2]
        place = folder / name
        restore = () if savepoint is None else [savepoint]
        with opened(name, place / "a", strategy=strategy, restore=restore) as backend:
            if savepoint is None:
                program.fill(backend)
            program.check(backend)
            backend.flush()
            program.check(backend)
            handle = backend.snapshot(1, storage).result().handle
        with opened(name, place / "b", strategy=strategy, restore=[handle], groups=half) as backend:
            program.check(backend)
            saved = mp.checkpoint_storage(f"memory:types-{seed}-{name}")
            savepoint = backend.savepoint(2, saved).result().handle
    with opened(order[0], folder / "last", restore=[savepoint], groups=half) as backend:
        program.check(backend)
    operator_states(program, storage)


def operator_states(program, storage):
    """Return the same values as elements of operator lists and in broadcast maps."""
    lists = [(mp.ListStateDescriptor(d.name, kind), v) for d, kind, v in program.states]
    maps = [(_map_of(f"b{d.name}", kind), v) for d, kind, v in program.states]
    with mp.open_operator_backend() as backend:
        for descriptor, values in lists:
            backend.get_list_state(descriptor).update(values)
        for descriptor, values in maps:
            backend.get_broadcast_state(descriptor).put_all(dict(enumerate(values)))
        handle = backend.snapshot(1, storage).result().handle
    found = {descriptor.name: [] for descriptor, _ in lists}
    for restored in mp.redistribute_operator_state([handle], 2):
        with mp.open_operator_backend(restore=restored) as backend:
            for descriptor, _ in lists:
                found[descriptor.name] += backend.get_list_state(descriptor).get()
            for descriptor, values in maps:
                entries = dict(backend.get_broadcast_state(descriptor).items())
                same([entries[n] for n in sorted(entries)], values, descriptor.value_type)
    for descriptor, values in lists:
        texts = sorted(repr(tl.fingerprint(value)) for value in found[descriptor.name])
        expected = sorted(repr(tl.fingerprint(value)) for value in values)
        assert texts == expected, descriptor.element_type
        operator_savepoint(descriptor, values)


def operator_savepoint(descriptor, values):
    """Return the values of an operator list after a savepoint."""
    serializer = serializer_for(descriptor.element_type)
    meta = OperatorStateMeta(descriptor.name, Mode.SPLIT, serializer.snapshot())
    parts = [serializer.serialize(serializer.check(value)) for value in values]
    exact, table = _fitting_table(meta, {0: parts})
    codec = OperatorTableCodec(meta, exact=exact)
    again = [codec.element(row) for row in table.to_pylist()]
    same([serializer.deserialize(data) for data in again], values, descriptor.element_type)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_accepted_comes_back(seed, tmp_path):
    """Generated types come back from reads, snapshots, rescales and savepoints of each backend."""
    round_trip(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1000, 1400, 20))
def test_what_is_accepted_comes_back_at_length(start, tmp_path):
    """Thousands of generated types come back from reads, snapshots, rescales and savepoints."""
    for seed in range(start, start + 20):
        round_trip(seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))


class Moment(enum.IntEnum):
    """An enum that is an int."""

    NOW = 5


def test_a_timestamp_is_exactly_an_int():
    """A number that is not exactly an int is refused at once as a timestamp."""
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        timers = backend.timer_queue("event-time")
        for timestamp in (Moment.NOW, True, 5.0, 10**30):
            with pytest.raises(errors.StateTypeError, match="timestamp"):
                timers.register(timestamp, mp.VOID_NAMESPACE)


@pytest.mark.parametrize(
    "text", ["1E+20000000", "1E-99999999999", "0E+20000000", "1E+1000", "1E-1001", "9" * 1001]
)
def test_decimal_keys_have_a_limit(text):
    """A Decimal with more than 1,000 digits is refused as a key before it is hashed."""
    with pytest.raises(errors.StateTypeError, match="digits"):
        mp.assign_to_key_group(Decimal(text), 128)


@pytest.mark.parametrize("text", ["1E+999", "1E-1000", "9" * 1000, "-0." + "9" * 1000])
def test_decimal_keys_up_to_the_limit(text):
    """A Decimal with 1,000 digits before or after the point comes back as a key."""
    codec = key_codec_for(Decimal)
    key = codec.check(Decimal(text))
    assert codec.decode(codec.encode(key), 0)[0] == key


def test_a_damaged_decimal_key_is_not_blown_up():
    """A stored key that claims to have two billion digits raises an error, and needs no memory."""
    codec = key_codec_for(Decimal)
    data = bytearray(codec.encode(Decimal(1)))
    data[1:5] = b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="digits"):
        codec.decode(bytes(data), 0)


@pytest.mark.parametrize("declared", [int, float, str, bool, bytes, Decimal, dt.datetime])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("value", [None, 1.5, "x", 7, [], {}, Moment.NOW])
def test_an_edited_column_is_refused_at_once(declared, exact, value):
    """A null or a value of another type in an edited column raises an error, at any depth."""
    for kind in (declared, tuple[declared, int], list[declared], dict[str, declared]):
        form = column_form(serializer_for(kind).snapshot(), exact=exact)
        given = {tuple: {"_1": value, "_2": 1}, list: [value], dict: [("a", value)]}
        try:
            made = form.from_column(given.get(get_origin(kind), value))
        except (ValueError, TypeError, AttributeError, errors.MillpondError):
            continue
        again = serializer_for(kind).deserialize(made)
        assert type(serializer_for(kind).check(again)) is type(again)


def test_dictionaries_with_any_key_in_a_savepoint(tmp_path):
    """Dictionary keys that are None or composite pass through a savepoint, and so do older tables."""
    kind = dict[int | None, dict[tuple[int, str], dict[Moment, int]]]
    value = {None: {(1, "a"): {Moment.NOW: 1}}, 2: {}}
    with mp.open_keyed_backend("heap", key_type=str) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind)).update(value)
        storage = mp.checkpoint_storage(tmp_path.as_uri())
        handle = backend.savepoint(1, storage).result().handle
    with mp.open_keyed_backend("heap", key_type=str, restore=[handle]) as backend:
        backend.set_current_key("k")
        found = backend.get_partitioned_state(mp.ValueStateDescriptor("v", kind)).value()
    assert tl.fingerprint(found) == tl.fingerprint(value)
    form = column_form(serializer_for(dict[str | None, int]).snapshot(), exact=False)
    older = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())).cast(form.arrow_type)
    (entries,) = older.to_pylist()
    assert serializer_for(dict[str | None, int]).deserialize(form.from_column(entries)) == {"a": 1}
