"""The examples in the hooks' docstrings run unchanged and have the described effect."""

import inspect
import textwrap

import attrs
import millpond as mp
import pytest
from millpond.backend.states.raw_states import RawValueState
from millpond.config import PluginsConfig
from millpond.plugins import PluginRecord, PluginRegistry
from millpond.plugins.registry import discover
from millpond.snapshots.restore import RestoreOperation, restore_keyed
from millpond.snapshots.strategies import FullStrategy
from millpond.spi import KeyedBackendParameters
from millpond.spi import hooks as hookspecs
from millpond.state import ListState, ValueState
from millpond.storage.memory import MemoryStorage
from millpond.types import SerializerSnapshot, TypeSerializer, key_codec_for

from core.tests import memory_store

HOOKS = [name for name in vars(hookspecs) if name.startswith("millpond_")]


class PebbleKeyedBackend(memory_store.MemoryStoreBackend):
    """A third-party backend."""

    name = "pebble"


class PebbleBackend(memory_store.MemoryStoreFactory):
    """The factory of the third-party backend."""

    name = "pebble"

    def create_keyed_backend(self, parameters):
        return PebbleKeyedBackend(parameters)


class PebbleListState(ListState):
    """A list state of the third-party backend."""

    def __init__(self, backend, descriptor):
        self.backend, self.descriptor = backend, descriptor

    def get(self):
        return ["pebble"]

    add = add_all = update = merge_namespaces = clear = set_current_namespace = print


class AuditedState(ValueState):
    """A value state that records writes."""

    def __init__(self, state):
        self.state = state

    value = update = clear = set_current_namespace = print


class PebbleIncremental(FullStrategy):
    """A snapshot strategy of the third party."""

    name = "pebble-incremental"


class PebbleRestore(RestoreOperation):
    """Restore operation for the third party's format; it sets the backend's version."""

    def run(self):
        self.backend.version = "restored from pebble"


class VaultStorage(MemoryStorage):
    """A storage for a scheme of the third party."""

    @classmethod
    def open(cls, uri):
        return cls(f"memory:{uri.partition(':')[2]}")


@attrs.frozen
class Point:
    """A type whose serializer a plugin provides."""

    x: int


class PointSerializer(TypeSerializer):
    """Serializer that stores a point as text."""

    def check(self, value):
        return value

    def serialize(self, value):
        return str(value.x).encode()

    def deserialize(self, data):
        return Point(int(data))

    def snapshot(self):
        return SerializerSnapshot("point")


def example(name):
    """Return the source of the example in a docstring."""
    text = inspect.getdoc(getattr(hookspecs, name)).partition("Example::")[2]
    return textwrap.dedent(text)


@pytest.fixture
def registry_of(tmp_path, monkeypatch):
    """Return a registry with a plugin that consists of one hook's example."""

    def make(name):
        source = "import millpond\nMILLPOND_API = 1\n" + example(name)
        (tmp_path / "example_plugin.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "example_plugin", raising=False)
        plugin = __import__("example_plugin")
        for each in STANDING_IN:
            setattr(plugin, each.__name__, each)
        record = PluginRecord("pebble", "millpond-pebble", "1", "example_plugin")
        return PluginRegistry(PluginsConfig(), [*discover(), record])

    return make


STANDING_IN = (
    AuditedState,
    PebbleBackend,
    PebbleIncremental,
    PebbleKeyedBackend,
    PebbleListState,
    PebbleRestore,
    Point,
    PointSerializer,
    VaultStorage,
)


def opened(registry, folder, factory=PebbleBackend):
    """Return an open third-party backend, or another one."""
    parameters = KeyedBackendParameters(
        key_codec=key_codec_for(str),
        max_parallelism=128,
        key_group_range=mp.KeyGroupRange(0, 127),
        clock=mp.ManualClock(0),
        config=mp.Config(),
        registry=registry,
        directory=folder,
    )
    return factory().create_keyed_backend(parameters)


def state_backends(registry, _):
    assert "pebble" in registry.backend_names()
    assert type(registry.backend("pebble")) is PebbleBackend


def create_state(registry, folder):
    numbers, number = mp.ListStateDescriptor("numbers", int), mp.ValueStateDescriptor("n", int)
    pebble = opened(registry, folder)
    assert type(pebble.get_partitioned_state(numbers)) is PebbleListState
    assert isinstance(pebble.get_partitioned_state(number), RawValueState)
    other = opened(registry, folder, memory_store.MemoryStoreFactory)
    assert type(other.get_partitioned_state(numbers)).__name__ == "RawListState"


def wrap_state(registry, folder):
    backend = opened(registry, folder)
    for name, audited in (("audit-spent", True), ("spent", False)):
        state = backend.get_partitioned_state(mp.ValueStateDescriptor(name, int))
        assert (type(state) is AuditedState) is audited


def snapshot_strategies(registry, folder):
    assert type(opened(registry, folder).strategy("pebble-incremental")) is PebbleIncremental
    other = opened(registry, folder, memory_store.MemoryStoreFactory)
    assert "pebble-incremental" not in other.strategy_names()


def restore_operation(registry, folder):
    backend = opened(registry, folder)
    backend.get_partitioned_state(mp.ValueStateDescriptor("n", int))
    handle = backend.snapshot(1, MemoryStorage.private()).result().handle
    for form, version in (("pebble-native", "restored from pebble"), ("rows", None)):
        other = opened(registry, folder)
        restore_keyed(other, [attrs.evolve(handle, format=form)])
        assert (other.version == "restored from pebble") is (version is not None)


def checkpoint_storages(registry, _):
    assert type(registry.storage("vault:mine")) is VaultStorage


def serializers(registry, folder):
    backend = opened(registry, folder)
    state = backend.get_partitioned_state(mp.ValueStateDescriptor("where", Point))
    backend.set_current_key("k")
    state.update(Point(7))
    backend.flush()
    backend.set_current_key("k")
    assert state.value() == Point(7)
    assert set(memory_store.STORES[-1].rows["where"].values()) == {b"7"}


def metric_reporters(registry, _, capsys):
    registry.report(mp.Config({"metrics.reporters": "print"}), {"rows_in": 3}, {"operator": "o"})
    assert capsys.readouterr().out == "{'operator': 'o'} {'rows_in': 3}\n"


@pytest.mark.parametrize("name", HOOKS)
def test_the_example_works(name, registry_of, tmp_path, request):
    """The example of each hook is a valid plugin, and its hook has the described effect."""
    use = globals()[name.removeprefix("millpond_")]
    more = [request.getfixturevalue("capsys")] if use is metric_reporters else []
    use(registry_of(name), tmp_path / "directory", *more)
