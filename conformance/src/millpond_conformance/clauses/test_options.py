"""Clauses: options and capabilities of a backend, and its use of the core's wrappers."""

import math
import random

import millpond as mp
import pytest
from millpond import errors
from millpond.plugins import get_registry
from millpond.spi import Capability

from millpond_conformance.clauses.test_kinds import JOINED, MEAN

TOTAL = mp.ValueStateDescriptor("total", int)
SCORES = mp.MapStateDescriptor("scores", str, int)
ITEMS = mp.ListStateDescriptor("items", int)
SUM = mp.ReducingStateDescriptor("sum", int.__add__, int)


def factory_of(backend_name):
    """Return the backend's factory."""
    return get_registry().load(get_registry().resolve(backend_name))


def opened_with(backend_name, directory, options):
    """Return the backend, opened in a directory with options."""
    name = get_registry().resolve(backend_name).name
    config = mp.Config(backend={name: options})
    return mp.open_keyed_backend(backend_name, key_type=str, directory=directory, config=config)


@pytest.mark.clause("X1")
def test_an_unknown_option_is_refused(backend_name, tmp_path):
    """An unknown option raises a ConfigError that names it, and the backend creates no file."""
    with pytest.raises(errors.ConfigError, match="no-such-option"):
        opened_with(backend_name, tmp_path, {"no-such-option": 1})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.clause("X2")
def test_options_of_a_single_state(backend_name, tmp_path):
    """A wrong option of a single state raises an error, and the backend creates no file.

    With the capability per-state-options the error names the option; otherwise it names the missing
    capability.
    """
    declared = Capability.PER_STATE_OPTIONS in factory_of(backend_name).capabilities
    wanted = errors.ConfigError if declared else errors.UnsupportedCapabilityError
    named = "no-such-option" if declared else "per-state-options"
    with pytest.raises(wanted, match=named):
        opened_with(backend_name, tmp_path, {"state": {"total": {"no-such-option": 1}}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.clause("X3")
def test_what_is_declared(backend_name):
    """A backend declares only capabilities that the core knows.

    The method `native_version` returns a string.
    """
    factory = factory_of(backend_name)
    assert isinstance(factory.capabilities, frozenset)
    assert all(isinstance(capability, Capability) for capability in factory.capabilities)
    assert isinstance(factory.native_version(), str)


@pytest.mark.clause("W1")
@pytest.mark.parametrize("interval", [1, 3])
def test_metrics_add_up(backend_name, tmp_path, interval):
    """The metrics count exactly the calls of each kind of state."""
    config = mp.Config(
        {"state.latency-track.enabled": True, "state.latency-track.sample-interval": interval}
    )
    with mp.open_keyed_backend(
        backend_name, key_type=str, directory=tmp_path, config=config
    ) as backend:
        total = backend.get_partitioned_state(TOTAL)
        scores = backend.get_partitioned_state(SCORES)
        items = backend.get_partitioned_state(ITEMS)
        added = backend.get_partitioned_state(SUM)
        mean = backend.get_partitioned_state(MEAN)
        joined = backend.get_partitioned_state(JOINED)
        for number in range(10):
            backend.set_current_key(f"k{number % 3}")
            total.update(number)
            total.value()
            scores.put("a", number)
            items.add(number)
            added.add(number)
            mean.add(float(number))
            joined.add(number)
            if number % 2:
                scores.get("a")
                items.get()
        made = {"total.update": 10, "total.value": 10, "scores.put": 10, "scores.get": 5}
        made |= {"items.add": 10, "items.get": 5, "sum.add": 10}
        made |= {"mean.add": 10, "joined.add": 10}
        counted = {name: count for name, count in backend.metrics.calls().items() if count}
        assert counted == made
        sampled = {
            name: histogram.count for name, histogram in backend.metrics.histograms().items()
        }
        assert sampled == {f"{name}_ns": -(-count // interval) for name, count in made.items()}


@pytest.mark.clause("W2")
def test_counters_and_gauges(open_backend):
    """Counters are whole numbers that never fall; the store's gauges are finite numbers."""
    backend = open_backend()
    blobs = backend.get_partitioned_state(mp.ValueStateDescriptor("blobs", bytes))
    before: dict[str, int] = {}
    for number in range(5):
        for key in range(10):
            backend.set_current_key(f"k{number} {key}")
            blobs.update(random.Random(key).randbytes(20_000))  # noqa: S311 - data, no secret
        backend.flush()
        assert blobs.value() is not None
        counted, gauges = backend.counters(), backend.native_metrics()
        assert all(type(count) is int and count >= before.get(n, 0) for n, count in counted.items())
        assert before.keys() <= counted.keys()
        assert all(math.isfinite(gauge) and gauge >= 0 for gauge in gauges.values())
        before = counted


@pytest.mark.clause("W3")
def test_sizes_of_states(open_backend):
    """A size of a state that is reported as exact is the number of its keys or entries."""
    backend = open_backend()
    total = backend.get_partitioned_state(TOTAL)
    scores = backend.get_partitioned_state(SCORES)
    items = backend.get_partitioned_state(ITEMS)
    by_space = backend.get_partitioned_state(mp.ValueStateDescriptor("by_space", int), 0, int)
    for number in range(30):
        backend.set_current_key(f"k{number % 20}")
        total.update(number)
        scores.put_all({f"m{n}": n for n in range(1 + number % 3)})
        items.add_all([number] * 400)
        by_space.set_current_namespace(number % 2)
        by_space.update(number)
    for number in range(5):
        backend.set_current_key(f"k{number}")
        total.clear()
        scores.remove("m0")
    backend.flush()
    named = {"total": total, "scores": scores, "items": items, "by_space": by_space}
    keys = {name: len(list(backend.keys_and_namespaces(name))) for name in named}
    entries = keys | {"scores": 0}
    for number in range(20):
        backend.set_current_key(f"k{number}")
        entries["scores"] += len(scores)
    assert backend.num_state_entries() == sum(entries.values())
    for name, size in backend.state_sizes().items():
        assert size.keys is None or not size.keys.is_exact or size.keys.number == keys[name], name
        exact = size.entries is not None and size.entries.is_exact
        assert not exact or size.entries.number == entries[name], name
        assert size.bytes is None or size.bytes.number >= 0, name
