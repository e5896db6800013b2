"""Stored bytes that the type cannot decode give one error, with state and key, everywhere."""

import attrs
import millpond as mp
import pytest
from millpond import errors
from millpond.snapshots.bundle import Bundle
from millpond.snapshots.row_files import RowFileWriter
from millpond.spi.keys import KeyLayout

NUMBER = mp.ValueStateDescriptor("number", float)
NUMBERS = mp.ListStateDescriptor("numbers", float)
ENTRIES = mp.MapStateDescriptor("entries", str, float)
DAMAGE = {
    "a value": ("number", lambda key: key, b"\1"),
    "a list": ("numbers", lambda key: key, b"\0\0\0\3abc"),
    "a map's value": ("entries", lambda key: key, b"\1"),
    "a map's key": ("entries", lambda key: key[:-3] + b"\xff\xff\xff", None),
    "a key": ("number", lambda key: key[:1] + b"\xff", None),
}


@pytest.mark.parametrize(("state", "change", "value"), DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("backend", ["heap", "rocksdb", "lmdb"])
def test_undecodable_bytes_are_named(tmp_path, backend, state, change, value):
    """The error is a MillpondError, and names state and stored key."""
    storage = mp.checkpoint_storage(str(tmp_path / "s"))
    rows = []
    with mp.open_keyed_backend("heap", key_type=str, place="job") as opened:
        opened.set_current_key("abc")
        opened.get_partitioned_state(NUMBER).update(1.5)
        opened.get_partitioned_state(NUMBERS).update([1.5])
        opened.get_partitioned_state(ENTRIES).put("abc", 1.5)
        opened.add_change_listener(lambda batch: rows.extend(batch.get(state, ())))
        opened.get_partitioned_state(NUMBER).update(2.5)
        opened.get_partitioned_state(NUMBERS).update([2.5])
        opened.get_partitioned_state(ENTRIES).put("abc", 2.5)
        handle = opened.snapshot(1, storage).result().handle
    ((key, old),) = rows
    with Bundle(storage, "forged") as bundle:
        writer = RowFileWriter(bundle, KeyLayout(128))
        writer.builder.add(state, [(change(key), old if value is None else value)])
        forged = bundle.finish(attrs.evolve(handle, files=(writer.finish("base", "v"),)))
    with (
        mp.open_keyed_backend(
            backend, key_type=str, directory=tmp_path / "d", restore=[forged]
        ) as opened,
        pytest.raises(errors.CorruptSnapshotError, match="stored key .*cannot be decoded"),
    ):
        use(opened)


def use(backend):
    """Read all states and keys of a backend."""
    backend.set_current_key("abc")
    states = [backend.get_partitioned_state(each) for each in (NUMBER, NUMBERS, ENTRIES)]
    for key in list(backend.keys("number")):
        backend.set_current_key(key)
    states[0].value()
    states[1].get()
    list(states[2].items())
