"""Every family of hooks works through a third-party plugin."""

from pathlib import Path
from types import SimpleNamespace

import millpond as mp
import pytest
from millpond.backend.states.raw_states import RawValueState
from millpond.config import PluginsConfig
from millpond.plugins import PluginRecord, PluginRegistry
from millpond.plugins.registry import discover
from millpond.snapshots.restore import RestoreOperation
from millpond.snapshots.strategies import FullStrategy
from millpond.spi import KeyedBackendParameters
from millpond.state import ListState, ValueState
from millpond.storage.memory import MemoryStorage
from millpond.types import SerializerSnapshot, TypeSerializer, key_codec_for

SPENT = mp.ValueStateDescriptor("spent", float)


@pytest.fixture
def registry_with(monkeypatch):
    """Return a registry of the installed plugins and one more, which consists of functions."""
    import sys

    def make(**hooks):
        plugin = SimpleNamespace(MILLPOND_API=1, **hooks)
        monkeypatch.setitem(sys.modules, "third_party_plugin", plugin)
        extra = PluginRecord("third", "third-party", "1", "third_party_plugin")
        return PluginRegistry(PluginsConfig(), [*discover(), extra])

    return make


def open_heap(registry, config=None):
    """Open a heap backend with a registry."""
    return registry.backend("heap").create_keyed_backend(
        KeyedBackendParameters(
            key_codec=key_codec_for(str),
            max_parallelism=128,
            key_group_range=mp.KeyGroupRange(0, 127),
            clock=mp.ManualClock(0),
            config=config or mp.Config(),
            registry=registry,
        )
    )


def test_wrappers_stand_in_order(registry_with):
    """Wrappers are nested as metrics(third(ttl(raw)))."""
    from datetime import timedelta

    class Third(ValueState):
        def __init__(self, inner):
            self.inner = inner

        def value(self):
            return self.inner.value()

        def update(self, value):
            self.inner.update(value)

        def clear(self):
            self.inner.clear()

        def set_current_namespace(self, namespace):
            self.inner.set_current_namespace(namespace)

    @mp.hookimpl
    def millpond_wrap_state(descriptor):
        return [(50, Third)] if descriptor.name == "spent" else []

    registry = registry_with(millpond_wrap_state=millpond_wrap_state)
    backend = open_heap(registry, mp.Config({"state.latency-track.enabled": True}))
    descriptor = mp.ValueStateDescriptor("spent", float)
    descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(seconds=1)))
    state = backend.get_partitioned_state(descriptor)
    chain = [type(state), type(state.wrapped), type(state.wrapped.inner)]
    assert [cls.__name__ for cls in chain] == ["MeteredValueState", "Third", "TtlValueState"]
    assert isinstance(state.wrapped.inner._raw, RawValueState)
    backend.set_current_key("k")
    state.update(1.0)
    assert state.value() == 1.0
    assert backend.metrics.histograms()["spent.value_ns"].count == 1
    plain = backend.get_partitioned_state(mp.ValueStateDescriptor("other", float))
    assert isinstance(plain.wrapped, RawValueState)


def test_without_metrics_and_ttl_no_wrapper_is_made(registry_with):
    """Without TTL and metrics, the user gets the raw state."""
    state = open_heap(registry_with()).get_partitioned_state(SPENT)
    assert isinstance(state, RawValueState)


def test_create_state(registry_with):
    """A plugin may create a state itself; the core creates all others."""

    class Loud(ListState):
        def __init__(self, backend):
            self.backend = backend

        def get(self):
            return ["loud"]

        add = add_all = update = merge_namespaces = clear = set_current_namespace = print

    @mp.hookimpl
    def millpond_create_state(backend, descriptor, namespace_serializer):
        return Loud(backend) if descriptor.name == "loud" else None

    backend = open_heap(registry_with(millpond_create_state=millpond_create_state))
    assert backend.get_partitioned_state(mp.ListStateDescriptor("loud", str)).get() == ["loud"]
    backend.set_current_key("k")
    assert backend.get_partitioned_state(mp.ListStateDescriptor("usual", str)).get() == []


def test_snapshot_strategy(registry_with):
    """A plugin's strategy is selected by its name."""

    class Mine(FullStrategy):
        name = "mine"

    @mp.hookimpl
    def millpond_snapshot_strategies(backend):
        return [Mine(backend)]

    registry = registry_with(millpond_snapshot_strategies=millpond_snapshot_strategies)
    backend = open_heap(registry, mp.Config({"state.snapshot.strategy": "mine"}))
    backend.get_partitioned_state(SPENT)
    assert type(backend.strategy("mine")) is Mine
    assert backend.snapshot(1, mp.checkpoint_storage("memory:mine")).result().handle is not None
    with pytest.raises(
        mp.errors.ConfigError, match="expected one of changelog, full, mine, savepoint, got 'yours'"
    ):
        backend.strategy("yours")


def test_restore_operation(registry_with):
    """A plugin can restore its own kind of handle."""
    from millpond.snapshots.restore import restore_keyed

    done = []

    class Mine(RestoreOperation):
        def run(self):
            done.append(self.handles)

    @mp.hookimpl
    def millpond_restore_operation(backend, handles):
        return Mine(backend, handles) if handles[0].format == "mine" else None

    registry = registry_with(millpond_restore_operation=millpond_restore_operation)
    mine, other = SimpleNamespace(format="mine"), SimpleNamespace(format="another")
    restore_keyed(open_heap(registry), [mine])
    assert done == [[mine]]
    with pytest.raises(mp.errors.RestoreError, match="reads snapshots of the format 'another'"):
        restore_keyed(open_heap(registry), [other])


def test_storages_serializers_and_reporters(registry_with, caplog):
    """Storages, serializers and reporters of plugins are used; a failing reporter is only logged."""
    reported = []

    class Blank(TypeSerializer):
        def check(self, value):
            return value

        def serialize(self, value):
            return b""

        def deserialize(self, data):
            return Path()

        def snapshot(self):
            return SerializerSnapshot("blank")

    @mp.hookimpl
    def millpond_checkpoint_storages():
        return {"vault": MemoryStorage}

    @mp.hookimpl
    def millpond_serializers():
        return {Path: Blank}

    @mp.hookimpl
    def millpond_metric_reporters():
        return {
            "broken": lambda metrics, labels: 1 / 0,
            "quiet": lambda metrics, labels: reported.append((metrics, labels)),
        }

    registry = registry_with(
        millpond_checkpoint_storages=millpond_checkpoint_storages,
        millpond_serializers=millpond_serializers,
        millpond_metric_reporters=millpond_metric_reporters,
    )
    assert set(registry.gather("millpond_checkpoint_storages", config=mp.Config())) > {
        "vault",
        "file",
        "memory",
    }
    assert registry.gather("millpond_serializers") == {Path: Blank}
    config = mp.Config({"metrics.reporters": "broken,quiet"})
    found = registry.gather("millpond_metric_reporters", config=config)
    assert set(found) == {"quiet", "broken", "log", "opentelemetry"}
    registry.report(config, {"rows_in": 3}, {"operator": "o"})
    assert reported == [({"rows_in": 3}, {"operator": "o"})]
    assert "the metric reporter 'broken' failed" in caplog.text


def test_backends_of_a_plugin(registry_with):
    """A plugin's backends can be opened by name."""

    class Mine(type(PluginRegistry(PluginsConfig()).backend("heap"))):
        name = "third"

    @mp.hookimpl
    def millpond_state_backends():
        return [Mine()]

    registry = registry_with(millpond_state_backends=millpond_state_backends)
    assert registry.backend_names() == ["heap", "lmdb", "rocksdb", "third"]
    assert type(registry.backend("third")) is Mine
