"""Types of plugins inside other types: containers, classes, keys; on every backend."""

import importlib
import sys
from fractions import Fraction

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.plugins import get_registry
from millpond_cli.inspection.stored_operator import open_stored, state_table

PLUGIN = '''
from fractions import Fraction

import millpond as mp

MILLPOND_API = 1
VERSION = 1


class FractionSerializer(mp.TypeSerializer):
    """Stores fractions as text.

    Version 2 has another separator, and version 3 cannot read earlier versions.
    """

    immutable = True

    def check(self, value):
        if not isinstance(value, Fraction):
            raise mp.errors.StateTypeError("Fraction", repr(value))
        return value

    def serialize(self, value):
        return "/:;"[VERSION - 1].join(map(str, value.as_integer_ratio())).encode()

    def deserialize(self, data):
        return Fraction(*map(int, data.decode().split("/:;"[VERSION - 1])))

    def snapshot(self):
        return mp.SerializerSnapshot("fraction", VERSION)

    def compatibility(self, old):
        if (old.id, old.version, VERSION) == ("fraction", 1, 2):
            migrate = lambda data: data.replace(b"/", b":")
            return mp.Compatibility(mp.Outcome.AFTER_MIGRATION, migrate)
        return super().compatibility(old)


class BytearraySerializer(mp.TypeSerializer):
    """Stores bytearrays, which a caller may change after a read or a write."""

    def check(self, value):
        return bytearray(value)

    def serialize(self, value):
        return bytes(value)

    def deserialize(self, data):
        return bytearray(data)

    def snapshot(self):
        return mp.SerializerSnapshot("bytearray")


@mp.hookimpl
def millpond_serializers():
    return {Fraction: FractionSerializer, bytearray: BytearraySerializer, range: mp.PickleSerializer}
'''


@attrs.define
class Share:
    """A class with fields of a plugin's types."""

    part: Fraction
    notes: list[bytearray]
    parts: dict[Fraction, int] = attrs.Factory(dict)


SHARE = Share(Fraction(1, 3), [bytearray(b"ab")], {Fraction(2, 3): 1})
CASES = {
    "list": (list[Fraction], [Fraction(1, 2), Fraction(-3)]),
    "tuple": (tuple[Fraction, int], (Fraction(1, 2), 7)),
    "dict": (dict[str, Fraction | None], {"a": Fraction(1, 2), "b": None}),
    "keys": (dict[Fraction, int], {Fraction(1, 2): 1}),
    "set": (frozenset[tuple[Fraction, str]], frozenset({(Fraction(1, 2), "x")})),
    "union": (list[Fraction | int | bytes], [Fraction(1, 2), 1 << 70, b"/"]),
    "class": (Share, SHARE),
    "optional": (Share | None, SHARE),
}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The installed plugin's module."""
    info = tmp_path / "site" / "fractions_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "fractions_plugin.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Name: fractions-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[millpond.plugins]\nfractions = fractions_plugin\n")
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.delitem(sys.modules, "fractions_plugin", raising=False)
    return importlib.import_module("fractions_plugin")


@pytest.fixture
def config(plugin, tmp_path):
    """A configuration with a registry of plugins made in this test."""
    return mp.Config({"plugins.block": f"none-{tmp_path.name}"})


def opened(backend, folder, config, restore=(), key_type=str):
    """Return a backend in a directory."""
    return mp.open_keyed_backend(
        backend,
        key_type=key_type,
        directory=folder,
        clock=mp.ManualClock(0),
        config=config,
        restore=list(restore),
    )


@pytest.mark.parametrize("way", ["snapshot", "savepoint"])
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_parts_come_back(tmp_path, config, backend, way):
    """Values with parts of a plugin's types are equal after a snapshot and a savepoint."""
    storage = mp.checkpoint_storage((tmp_path / "saved").as_uri())
    states = {name: mp.ValueStateDescriptor(name, kind) for name, (kind, _) in CASES.items()}
    with opened(backend, tmp_path / "one", config) as first:
        first.set_current_key("k")
        for name, (_, value) in CASES.items():
            first.get_partitioned_state(states[name]).update(value)
        handle = getattr(first, way)(1, storage).result().handle
    with opened(backend, tmp_path / "two", config, [handle]) as second:
        second.set_current_key("k")
        for name, (_, value) in CASES.items():
            assert second.get_partitioned_state(states[name]).value() == value


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_changeable_parts_are_not_shared(tmp_path, config, backend):
    """Changing a written or returned part does not change the stored one."""
    given = attrs.evolve(SHARE, notes=[bytearray(b"ab")])
    with opened(backend, tmp_path / "one", config) as first:
        first.set_current_key("k")
        state = first.get_partitioned_state(mp.ValueStateDescriptor("share", Share))
        state.update(given)
        given.notes[0].append(1)
        state.value().notes[0].append(2)
        assert state.value() == SHARE


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_keys_namespaces_and_map_keys(tmp_path, config, backend):
    """A plugin's type may be a part of a key, a namespace and a map key."""
    storage, key_type = mp.checkpoint_storage((tmp_path / "s").as_uri()), tuple[str, Fraction]
    counts = mp.MapStateDescriptor("counts", tuple[Fraction, int], list[Fraction])
    key, namespace, entry = ("a", Fraction(1, 2)), Fraction(3), (Fraction(1, 4), 5)
    with opened(backend, tmp_path / "one", config, key_type=key_type) as first:
        first.set_current_key(key)
        state = first.get_partitioned_state(counts, namespace=namespace, namespace_type=Fraction)
        state.put(entry, [Fraction(5)])
        handle = first.snapshot(1, storage).result().handle
    with opened(backend, tmp_path / "two", config, [handle], key_type) as second:
        second.set_current_key(key)
        state = second.get_partitioned_state(counts, namespace=namespace, namespace_type=Fraction)
        assert dict(state.items()) == {entry: [Fraction(5)]}
        assert list(second.keys_and_namespaces("counts")) == [(key, namespace)]


def snapshot_of(backend, descriptor, element):
    """Return a snapshot in which a key has a list of one element."""
    backend.set_current_key("k")
    backend.get_partitioned_state(descriptor).add(element)
    return backend.snapshot(1, mp.checkpoint_storage("memory:parts")).result().handle


@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_parts_evolve_as_their_serializer_says(tmp_path, config, plugin, backend, monkeypatch):
    """A newer serializer migrates its parts wherever they are, or refuses them with the field's name."""
    share = mp.ListStateDescriptor("shares", Share)
    value = attrs.evolve(SHARE, parts={})
    with opened(backend, tmp_path / "one", config) as first:
        handle = snapshot_of(first, share, value)
    monkeypatch.setattr(plugin, "VERSION", 3)
    with opened(backend, tmp_path / "three", config, [handle]) as third:
        with pytest.raises(errors.StateMigrationError, match="types differ") as refused:
            third.get_partitioned_state(share)
        assert refused.value.field == "part"
    monkeypatch.setattr(plugin, "VERSION", 2)
    with opened(backend, tmp_path / "two", config, [handle]) as second:
        second.set_current_key("k")
        with pytest.raises(errors.StateMigrationError, match="dictionary's keys"):
            second.get_partitioned_state(share)
    whole = mp.ListStateDescriptor("parts", tuple[list[Fraction], dict[str, Fraction]])
    element = ([Fraction(1, 2)], {"a": Fraction(1, 3)})
    monkeypatch.setattr(plugin, "VERSION", 1)
    with opened(backend, tmp_path / "four", config) as first:
        handle = snapshot_of(first, whole, element)
    monkeypatch.setattr(plugin, "VERSION", 2)
    with opened(backend, tmp_path / "five", config, [handle]) as second:
        second.set_current_key("k")
        assert second.get_partitioned_state(whole).get() == [element]


def test_a_part_of_a_key_does_not_change_unnoticed(tmp_path, config, plugin, monkeypatch):
    """A new version of a key's part makes another key type, and is refused."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    key_type, last = tuple[str, Fraction], mp.ValueStateDescriptor("last", int)
    with opened("heap", tmp_path / "one", config, key_type=key_type) as first:
        first.set_current_key(("a", Fraction(1, 2)))
        first.get_partitioned_state(last).update(1)
        handle = first.snapshot(1, storage).result().handle
    monkeypatch.setattr(plugin, "VERSION", 2)
    with pytest.raises(errors.StateMigrationError):
        opened("heap", tmp_path / "two", config, [handle], key_type)


def test_what_cannot_be_a_key_of_a_dictionary(tmp_path, config):
    """A type without `immutable` is refused as a dict's key, by its place in the type."""
    refused = mp.ValueStateDescriptor("x", list[dict[bytearray, int]])
    with (
        opened("heap", tmp_path, config) as backend,
        pytest.raises(errors.ConfigError, match=r"at \[\]\[key\], is refused: a dictionary's key"),
    ):
        backend.get_partitioned_state(refused)


def test_pickles_inside_need_permission(tmp_path, config):
    """A plugin's pickles need the backend's permission, also as part of another type."""
    storage = mp.checkpoint_storage((tmp_path / "s").as_uri())
    spans = mp.ValueStateDescriptor("spans", list[range])
    with opened("heap", tmp_path / "one", config) as first:
        first.set_current_key("k")
        first.get_partitioned_state(spans).update([range(3)])
        assert first.get_partitioned_state(spans).value() == [range(3)]
        handle = first.snapshot(1, storage).result().handle
    with (
        opened("heap", tmp_path / "two", config, [handle]) as second,
        pytest.raises(errors.ConfigError, match=r"serialization\.allow-pickle"),
    ):
        second.get_partitioned_state(spans)


def test_operator_state_and_tables(tmp_path, config):
    """Elements of operator state may have such parts; savepoint tables contain their bytes."""

    class Keeping(mp.KeyedProcessFunction, mp.CheckpointedFunction):
        def initialize_state(self, context):
            store = context.operator_state_store
            descriptor = mp.ListStateDescriptor("kept", tuple[str, Fraction])
            self.kept = store.get_list_state(descriptor)

        def process_element(self, row, context):
            self.kept.add((row.k, Fraction(row.n, 3)))
            yield self.kept.get()

        def snapshot_state(self, context):
            """Do nothing: the list is complete."""

    options = {"key": "k", "config": config}
    with mp.testing.KeyedOperatorHarness(Keeping(), **options) as harness:
        harness.process({"k": "a", "n": 1})
        harness.savepoint(tmp_path / "saved")
    with mp.testing.KeyedOperatorHarness(
        Keeping(), restore=tmp_path / "saved", **options
    ) as harness:
        harness.process({"k": "b", "n": 2})
        assert harness.output == [[("a", Fraction(1, 3)), ("b", Fraction(2, 3))]]
    registry = get_registry(config.plugins)
    (operator,) = open_stored(registry.savepoint(tmp_path / "saved"), registry)
    assert state_table(operator, "kept")["value"].to_pylist() == [{"_1": "a", "_2": b"1/3"}]
