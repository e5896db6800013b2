"""Write the golden files of the current formats; run it once when a format changes.

The files never change afterwards: later versions must read them.

Usage: make.py FOLDER
"""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import attrs
import millpond as mp


@attrs.define
class Order:
    """A structured value."""

    items: list[str]
    amounts: dict[str, int]
    note: str | None = None


TTL = mp.StateTtlConfig(timedelta(milliseconds=1000))
STATES = {
    "int": (mp.ValueStateDescriptor("int", int), -(1 << 70)),
    "float": (mp.ValueStateDescriptor("float", float), -0.5),
    "str": (mp.ValueStateDescriptor("str", str), "é\0z"),
    "bytes": (mp.ValueStateDescriptor("bytes", bytes), b"\0\xff"),
    "bool": (mp.ValueStateDescriptor("bool", bool), True),
    "decimal": (mp.ValueStateDescriptor("decimal", Decimal), Decimal("-1.20")),
    "aware": (mp.ValueStateDescriptor("aware", datetime), datetime(2024, 5, 6, 7, tzinfo=UTC)),
    "naive": (mp.ValueStateDescriptor("naive", datetime), datetime(1, 1, 1, 0, 0, 0, 1)),
    "date": (mp.ValueStateDescriptor("date", date), date(9999, 12, 31)),
    "uuid": (mp.ValueStateDescriptor("uuid", UUID), UUID(int=7)),
    "order": (mp.ValueStateDescriptor("order", Order), Order(["a"], {"x": 1 << 65}, None)),
    "items": (mp.ListStateDescriptor("items", int), [1, 2, 3]),
    "scores": (mp.MapStateDescriptor("scores", str, float | None), {"a": 1.5, "b": None}),
    "fading": (mp.ValueStateDescriptor("fading", str).enable_time_to_live(TTL), "stamped"),
    "spaced": (mp.ValueStateDescriptor("spaced", int), 9),
}
ITEMS = mp.ListStateDescriptor("items", int)
RULES = mp.MapStateDescriptor("items", str, int)
"""Operator state: a list and a broadcast state of the same name."""
KEYS = ("alice", "bob", "")
LOG = mp.ListStateDescriptor("log", bytes)
"""A list whose first elements are in the base; the delta appends the rest."""
LOGGED = [bytes([number]) * 500 for number in range(12)]


def log_of(backend, key):
    """Return the list of a key."""
    backend.set_current_key(key)
    return backend.get_partitioned_state(LOG)


def fill(backend):
    """Fill all states for every key; ``spaced`` in a namespace."""
    for key in KEYS:
        backend.set_current_key(key)
        for name, (descriptor, value) in STATES.items():
            namespace = 5 if name == "spaced" else mp.VOID_NAMESPACE
            state = backend.get_partitioned_state(descriptor, namespace=namespace)
            if name == "scores":
                state.put_all(value)
            else:
                state.update(value)


def contents(backend):
    """Return the content of all states, by key and state."""
    found = {(key, "log"): log_of(backend, key).get() for key in KEYS}
    for key in KEYS:
        backend.set_current_key(key)
        for name, (descriptor, _) in STATES.items():
            namespace = 5 if name == "spaced" else mp.VOID_NAMESPACE
            state = backend.get_partitioned_state(descriptor, namespace=namespace)
            if name == "scores":
                found[key, name] = dict(state.items())
            else:
                found[key, name] = state.get() if name == "items" else state.value()
    return found


def expected():
    """Return the expected content after a restore."""
    logs = {(key, "log"): LOGGED for key in KEYS}
    return logs | {(key, name): value for key in KEYS for name, (_, value) in STATES.items()}


WRITTEN = {
    "changelog": ("heap", {}),
    "incremental": ("rocksdb", {"state.snapshot.strategy": "incremental"}),
    "carried": ("heap", {"checkpoint.inline-threshold": 1 << 20}),
    "zstd": ("heap", {"checkpoint.compression": "zstd"}),
    "plain": ("heap", {"checkpoint.compression": "none"}),
    "together": ("heap", {"checkpoint.inline-threshold": 1}),
}
"""Backend and settings by the name of the handle's file."""


def main(folder):
    """Write changelogs, a savepoint, RocksDB's own snapshot and operator state."""
    storage = mp.checkpoint_storage(folder.resolve().as_uri())
    with mp.open_operator_backend(place="golden/operator") as own:
        own.get_list_state(ITEMS).add_all([1, 2])
        own.get_broadcast_state(RULES).put("a", 1)
        handle = own.snapshot(1, storage).result().handle
        (folder / "operator_state.json").write_text(handle.to_json())
    for strategy, (backend_name, settings) in WRITTEN.items():
        config = mp.Config(settings)
        with mp.open_keyed_backend(
            backend_name,
            key_type=str,
            directory=Path("/tmp/millpond-golden"),
            clock=mp.ManualClock(0),
            config=config,
            place=f"golden/{strategy}",
        ) as backend:
            backend.set_current_key("bob")
            backend.get_partitioned_state(STATES["str"][0]).update("overwritten by the delta")
            for key in KEYS:
                log_of(backend, key).update(LOGGED[:10])
            backend.snapshot(1, storage).result()
            backend.notify_checkpoint_complete(1)
            fill(backend)
            for key in KEYS:
                log_of(backend, key).add_all(LOGGED[10:])
            handle = backend.snapshot(2, storage).result().handle
            (folder / f"{strategy}.json").write_text(handle.to_json())
            if strategy == "changelog":
                saved = backend.savepoint(3, storage).result().handle
                (folder / saved.folder).rename(folder / "savepoint")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
