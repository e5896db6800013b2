"""Savepoints: written by every backend, restored by every backend."""

import datetime as dt
import decimal
import shutil
import uuid
from typing import Any

import attrs
import millpond as mp
import pytest
from millpond import errors

from millpond_conformance.fixtures import BackendOpener

PORTABLE = "heap"
UTC = dt.UTC


@attrs.define
class Basket:
    """A structured value."""

    items: list[str]
    limits: dict[str, int]
    owner: str | None = None


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (int, 7),
    "big": (int, 1 << 90),
    "float": (float, -0.5),
    "str": (str, "é\0x"),
    "bytes": (bytes, b"\0\xff"),
    "bool": (bool, True),
    "decimal": (decimal.Decimal, decimal.Decimal("1.20")),
    "aware": (dt.datetime, dt.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)),
    "naive": (dt.datetime, dt.datetime(1, 1, 1)),  # noqa: DTZ001 - naive on purpose
    "date": (dt.date, dt.date(9999, 12, 31)),
    "uuid": (uuid.UUID, uuid.UUID(int=5)),
    "tuple": (tuple[int, str], (1, "a")),
    "basket": (Basket, Basket(["a", "b"], {"x": 1}, None)),
    "union": (int | str, "either"),
}


def put(backend, descriptor, value):
    """Put one value under one key."""
    backend.set_current_key("k")
    backend.get_partitioned_state(descriptor).update(value)


@pytest.mark.clause("P1")
@pytest.mark.parametrize("name", VALUES)
def test_every_type_survives_a_savepoint(open_backend: BackendOpener, tmp_path, name):
    """A value of each type comes back exactly from a savepoint, on this backend and on heap."""
    declared, value = VALUES[name]
    descriptor = mp.ValueStateDescriptor(name, declared)
    backend = open_backend()
    put(backend, descriptor, value)
    handle = backend.savepoint(1, mp.checkpoint_storage(tmp_path.as_uri())).result().handle
    with mp.open_keyed_backend(PORTABLE, key_type=str, restore=[handle]) as other:
        for restored in (open_backend(restore=[handle]), other):
            restored.set_current_key("k")
            found = restored.get_partitioned_state(descriptor).value()
            assert found == value
            assert type(found) is type(value)


@pytest.mark.clause("P2")
def test_every_kind_survives_a_savepoint(open_backend: BackendOpener, clock, tmp_path):
    """Lists, maps, namespaces and timestamps come back, also by the savepoint's path."""
    ttl = mp.StateTtlConfig(dt.timedelta(milliseconds=100))
    items = mp.ListStateDescriptor("items", int)
    scores = mp.MapStateDescriptor("scores", str, float | None)
    fading = mp.ValueStateDescriptor("fading", str).enable_time_to_live(ttl)
    backend = open_backend()
    backend.set_current_key("k")
    backend.get_partitioned_state(items, namespace=7).update([1, 2])
    backend.get_partitioned_state(items, namespace=8).update([3])
    backend.get_partitioned_state(scores).put_all({"a": 1.5, "b": None})
    backend.get_partitioned_state(fading).update("soon gone")
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = backend.savepoint(1, storage).result().handle
    both = [open_backend(restore=[given]) for given in (handle, tmp_path / handle.folder)]
    for restored in both:
        restored.set_current_key("k")
        assert restored.get_partitioned_state(items, namespace=7).get() == [1, 2]
        assert restored.get_partitioned_state(items, namespace=8).get() == [3]
        assert dict(restored.get_partitioned_state(scores).items()) == {"a": 1.5, "b": None}
        assert restored.get_partitioned_state(fading).value() == "soon gone"
    clock.advance(100)
    for restored in both:
        assert restored.get_partitioned_state(fading).value() is None


@pytest.mark.clause("P3")
def test_a_savepoint_is_not_a_base(open_backend: BackendOpener, tmp_path):
    """A snapshot after a savepoint is complete without it, and its delta covers all changes."""
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    total = mp.ValueStateDescriptor("total", int)
    backend = open_backend()
    put(backend, total, 1)
    backend.snapshot(1, storage).result()
    backend.notify_checkpoint_complete(1)
    put(backend, total, 2)
    saved = backend.savepoint(2, storage).result().handle
    backend.notify_checkpoint_complete(2)
    shutil.rmtree(tmp_path / saved.folder)
    handle = backend.snapshot(3, storage).result().handle
    restored = open_backend(restore=[handle])
    restored.set_current_key("k")
    assert restored.get_partitioned_state(total).value() == 2


@pytest.mark.clause("P4")
def test_parts_of_savepoints_are_restored_by_key_group(open_backend: BackendOpener, tmp_path):
    """Three new subtasks together restore what two old ones saved, each only its key groups."""
    total = mp.ValueStateDescriptor("total", int)
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handles = []
    for index in range(2):
        groups = mp.key_group_range(128, 2, index)
        backend = open_backend(key_group_range=groups)
        for number in range(200):
            if mp.assign_to_key_group(f"k{number}", 128) in groups:
                backend.set_current_key(f"k{number}")
                backend.get_partitioned_state(total).update(number)
        handles.append(backend.savepoint(1, storage).result().handle)
    found = {}
    for index in range(3):
        part = open_backend(key_group_range=mp.key_group_range(128, 3, index), restore=handles)
        state = part.get_partitioned_state(total)
        for key in list(part.keys("total")):
            part.set_current_key(key)
            assert key not in found
            found[key] = state.value()
    assert found == {f"k{number}": number for number in range(200)}


@pytest.mark.clause("P5")
def test_another_max_parallelism_is_refused(open_backend: BackendOpener, tmp_path):
    """A savepoint of 128 key groups restores into 256 only after re-keying."""
    total = mp.ValueStateDescriptor("total", int)
    backend = open_backend()
    put(backend, total, 3)
    storage = mp.checkpoint_storage(tmp_path.as_uri())
    handle = backend.savepoint(1, storage).result().handle
    with pytest.raises(errors.MaxParallelismError):
        open_backend(restore=[handle], max_parallelism=256)
    again = mp.rekey_savepoint(handle, tmp_path / "rekeyed", 256)
    restored = open_backend(restore=[again], max_parallelism=256)
    restored.set_current_key("k")
    assert restored.get_partitioned_state(total).value() == 3
