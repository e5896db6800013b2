"""Pickles that configuration does not allow are never decoded, wherever the bytes come from."""

import base64
import json

import attrs
import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond.operator.opening import create_backend
from millpond.plugins import get_registry
from millpond.savepoints.collect import read_contents
from millpond.types import key_codec_for
from millpond.types.key_columns import codec_from_snapshot
from millpond.types.value_columns import column_form
from millpond_cli.datasource import MillpondDataSource
from millpond_cli.main import commands

RAN = []
PICKLE = mp.PickleSerializer()
ALLOWED = mp.Config({"serialization.allow-pickle": True})
FORMS = [
    ("heap", "full"),
    ("heap", "changelog"),
    ("heap", "savepoint"),
    ("lmdb", "full"),
    ("rocksdb", "changelog"),
    ("rocksdb", "incremental"),
]


def ran():
    """The function that the payload calls."""
    RAN.append(1)
    return 7


class Payload:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self):
        return ran, ()


class Sum(mp.AggregateFunction):
    """Aggregate function that keeps its inputs."""

    def create_accumulator(self):
        return Payload()

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a


class Unchecked(mp.PickleSerializer):
    """Serializer that stores the payload without checking it."""

    def check(self, value):
        return value


RAW = Unchecked()


def _value(descriptor):
    return (
        lambda backend: backend.get_partitioned_state(descriptor).update(Payload()),
        lambda backend: backend.get_partitioned_state(descriptor).value(),
    )


def _added(descriptor):
    return (
        lambda backend: backend.get_partitioned_state(descriptor).add(Payload()),
        lambda backend: backend.get_partitioned_state(descriptor).get(),
    )


def _put(descriptor, key, value):
    return (
        lambda backend: backend.get_partitioned_state(descriptor).put(key, value),
        lambda backend: list(backend.get_partitioned_state(descriptor).items()),
    )


def _in_namespace(descriptor):
    return (
        lambda backend: backend.get_partitioned_state(descriptor, Payload(), RAW).update(1),
        lambda backend: (
            backend.get_partitioned_state(descriptor, 1, RAW),
            list(backend.keys_and_namespaces(descriptor.name)),
        ),
    )


def _timer():
    def read(backend):
        return list(backend.timer_queue("t", RAW).due(10))

    return lambda backend: backend.timer_queue("t", RAW).register(5, Payload()), read


DOORS = {
    "value": _value(mp.ValueStateDescriptor("v", RAW)),
    "list": _added(mp.ListStateDescriptor("l", RAW)),
    "map value": _put(mp.MapStateDescriptor("m", str, RAW), "k", Payload()),
    "map key": _put(mp.MapStateDescriptor("k", RAW, int), Payload(), 1),
    "reducing": _added(mp.ReducingStateDescriptor("r", lambda a, b: b, RAW)),
    "aggregating": _added(mp.AggregatingStateDescriptor("a", Sum(), RAW)),
    "folding": _added(mp.FoldingStateDescriptor("f", 0, lambda a, b: b, RAW)),
    "namespace": _in_namespace(mp.ValueStateDescriptor("n", int)),
    "timer": _timer(),
}


def opened(name, folder, *, key_type=str, strategy="full", restore=(), config=None):
    """Return a backend whose configuration allows or forbids pickles."""
    settings = {} if config is None else {"serialization.allow-pickle": True}
    settings["state.snapshot.strategy"] = strategy
    return mp.open_keyed_backend(
        name, key_type=key_type, directory=folder, restore=restore, config=mp.Config(settings)
    )


def saved(backend, form, folder):
    """Return a handle with pickles in every kind of state."""
    storage = mp.checkpoint_storage(folder.as_uri())
    take = backend.savepoint if form == "savepoint" else backend.snapshot
    return take(1, storage).result().handle


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_no_door_runs_a_pickle(name, form, tmp_path):
    """Each kind of state refuses a pickle in a snapshot, and runs nothing."""
    strategy = "full" if form == "savepoint" else form
    with opened(name, tmp_path / "a", strategy=strategy) as backend:
        backend.set_current_key("k")
        for put, _ in DOORS.values():
            put(backend)
        backend.flush()
        handle = saved(backend, form, tmp_path / "saved")
    RAN.clear()
    with opened(name, tmp_path / "b", strategy=strategy, restore=[handle]) as backend:
        backend.set_current_key("k")
        for door, (_, read) in DOORS.items():
            with pytest.raises(errors.ConfigError, match="allow-pickle"):
                read(backend)
            assert not RAN, door
        saved(backend, form, tmp_path / "again")
        if form != "savepoint":
            contents = read_contents([handle], handle, "x", get_registry())
            assert [rows for group in range(128) for _, rows in contents_rows(contents, group)]
    assert not RAN
    allowed = opened(name, tmp_path / "c", strategy=strategy, restore=[handle], config=ALLOWED)
    with allowed as backend:
        backend.set_current_key("k")
        for door, (_, read) in DOORS.items():
            RAN.clear()
            read(backend)
            assert RAN, door


def contents_rows(contents, group):
    """Return the rows of a key group as a tool reads them."""
    view = contents.freeze()
    return [(name, list(rows)) for name, rows in view.rows(group)]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_pickled_keys_are_refused_at_opening(name, form, tmp_path):
    """A pickled key type is refused when the backend opens, so no key is decoded."""
    strategy = "full" if form == "savepoint" else form
    total = mp.ValueStateDescriptor("total", int)
    with opened(name, tmp_path / "a", key_type=RAW, strategy=strategy) as backend:
        backend.set_current_key(Payload())
        backend.get_partitioned_state(total).update(1)
        handle = saved(backend, form, tmp_path / "saved")
    RAN.clear()
    with pytest.raises(errors.ConfigError, match="allow-pickle"):
        opened(name, tmp_path / "b", key_type=RAW, strategy=strategy, restore=[handle])
    assert not RAN


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_rows_that_the_metadata_leave_out(name, tmp_path):
    """A state that the handle does not list, but for which rows exist, cannot be declared with pickles."""
    descriptor = mp.ValueStateDescriptor("v", RAW)
    with opened(name, tmp_path / "a") as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(descriptor).update(Payload())
        handle = saved(backend, "full", tmp_path / "saved")
    handle = attrs.evolve(handle, states=())
    RAN.clear()
    try:
        with opened(name, tmp_path / "b", restore=[handle]) as backend:
            backend.set_current_key("k")
            backend.get_partitioned_state(descriptor).value()
    except (errors.ConfigError, errors.CorruptSnapshotError):
        pass
    else:
        raise AssertionError("nothing was refused")
    assert not RAN


@pytest.mark.parametrize("door", ["split", "union", "value", "key"])
def test_operator_state_runs_no_pickle(door, tmp_path):
    """Lists and broadcast maps refuse pickled values and keys; with permission they are read."""
    lists = mp.ListStateDescriptor("l", RAW)
    maps = mp.MapStateDescriptor("m", *((str, RAW) if door == "value" else (RAW, int)))
    entry = ("k", Payload()) if door == "value" else (Payload(), 1)
    get = {
        "split": lambda backend: backend.get_list_state(lists),
        "union": lambda backend: backend.get_union_list_state(lists),
    }.get(door, lambda backend: backend.get_broadcast_state(maps))
    with mp.open_operator_backend() as backend:
        state = get(backend)
        if door in ("split", "union"):
            state.add(Payload())
        else:
            state.put(*entry)
        handle = saved(backend, "full", tmp_path)
    RAN.clear()
    with (
        mp.open_operator_backend(restore=[handle]) as backend,
        pytest.raises(errors.ConfigError, match="allow-pickle"),
    ):
        get(backend)
    assert not RAN
    with mp.open_operator_backend(restore=[handle], config=ALLOWED) as backend:
        state = get(backend)
        assert list(state.items() if door in ("value", "key") else state)
        assert RAN


def test_an_unbound_serializer_does_not_decode():
    """A serializer without a backend decodes no pickle, also as part of a key codec."""
    data = PICKLE.serialize(Payload())
    RAN.clear()
    with pytest.raises(errors.ConfigError, match="allow-pickle"):
        PICKLE.deserialize(data)
    for kind in (PICKLE, RAW):
        codec = key_codec_for(kind)
        with pytest.raises(errors.ConfigError, match="allow-pickle"):
            codec.decode(codec.encode(Payload()), 0)
    assert not RAN


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_fresh_state_reads_what_it_wrote(name, tmp_path):
    """A job without a restore reads its own pickles without permission."""
    with opened(name, tmp_path / "a") as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", PICKLE))
        state.update({1, 2})
        backend.flush()
        assert state.value() == {1, 2}


def test_a_store_that_takes_in_deltas_decodes_no_more(tmp_path):
    """When a store applies deltas from elsewhere, states in use lose the permission too."""
    with opened("lmdb", tmp_path / "a") as backend:
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", PICKLE))
        state.update({1, 2})
        backend.flush()
        backend.expect_outside_bytes()
        with pytest.raises(errors.ConfigError, match="allow-pickle"):
            state.value()


def test_a_local_copy_is_not_trusted(tmp_path):
    """A local copy of an earlier process decodes no pickle."""
    descriptor = mp.ValueStateDescriptor("v", RAW)
    with opened("lmdb", tmp_path) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(descriptor).update(Payload())
        backend.flush("one")
        parameters = attrs.evolve(backend.parameters, reuse_versions=frozenset({"one"}))
    RAN.clear()
    registry = get_registry()
    with create_backend(registry.backend("lmdb"), parameters) as backend:
        assert backend.version == "one"
        with pytest.raises(errors.ConfigError, match="allow-pickle"):
            backend.get_partitioned_state(descriptor)
    assert not RAN


def test_tools_show_pickles_as_bytes():
    """Tools and clients, which know only the snapshot, show pickles as bytes."""
    data = PICKLE.serialize(Payload())
    RAN.clear()
    assert column_form(PICKLE.snapshot(), exact=False).to_column(data) == data
    codec = codec_from_snapshot(key_codec_for(PICKLE).snapshot())
    assert codec.decode(key_codec_for(PICKLE).encode(Payload()), 0)[0] == data
    assert not RAN


@pytest.mark.parametrize("name", ["heap", "lmdb", "rocksdb"])
def test_readers_from_outside_run_no_pickle(name, tmp_path):
    """``state dump``, the query client and Spark's data source show bytes, and call nothing."""
    descriptor = mp.ValueStateDescriptor("v", RAW).set_queryable("q")
    with mp.open_keyed_backend(
        name, key_type=str, directory=tmp_path / "a", place="q/op"
    ) as backend:
        backend.set_current_key("k")
        backend.get_partitioned_state(descriptor).update(Payload())
        backend.snapshot(1, mp.checkpoint_storage(str(tmp_path / "saved"))).result()
    RAN.clear()
    stored = RAW.serialize(Payload())
    result = CliRunner().invoke(commands, ["state", "dump", str(tmp_path / "saved"), "v"])
    assert json.loads(result.stdout)["value"] == base64.b64encode(stored).decode()
    with mp.QueryableStateClient(tmp_path / "saved", backend=name) as client:
        assert client.get("q", "k") == stored
    source = MillpondDataSource({"path": str(tmp_path / "saved"), "state": "v"})
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [stored]
    assert not RAN
