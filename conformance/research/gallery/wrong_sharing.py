"""Second gallery: mistakes in snapshots that run during changes."""

from __future__ import annotations

from typing import Any

import millpond as mp
from millpond_heap.backend import HeapKeyedStateBackend
from millpond_heap.cells import HeapCellTable
from millpond_lmdb.store import LmdbStore
from millpond_rocksdb.store import RocksDBStore, _RocksDBReader

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import (
    FULL,
    Gated,
    at,
    begun,
    configured,
    stored_by,
    tables,
    works,
)
from conformance.research.mutants.sabotage_tools import around

TEXT = mp.ValueStateDescriptor("v", str)
NUMBERS = mp.ListStateDescriptor("l", int)


class _OwnedByKey(HeapCellTable):
    def append(self, namespace: Any, values: list[Any]) -> None:
        current, sharing = self.current, self.sharing
        if sharing is not None and sharing.claim((current.key_group, None, current.address)):
            sharing.claim((current.key_group, namespace, current.address))
        super().append(namespace, values)


class AppendsOwnedByKey(Wrong):
    """Lists that a running snapshot still reads are recorded by key, without the namespace."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _OwnedByKey)

    def show(self, opened: Opener) -> None:
        storage, backend = Gated("owned"), begun(opened(config=mp.Config(FULL)))
        for number in (1, 2):
            at(backend, "k", NUMBERS, namespace=number).add(number)
        taken = backend.snapshot(1, storage)
        for number in (1, 2):
            at(backend, "k", NUMBERS, namespace=number).add(10 * number)
        storage.gate.set()
        again = opened(restore=[taken.result().handle])
        assert [at(again, "k", NUMBERS, namespace=n).get() for n in (1, 2)] == [[1], [2]]


class _OneSharing(HeapCellTable):
    def freeze(self) -> Any:
        before = self.sharing
        frozen = super().freeze()
        self.sharing = before or self.sharing
        return frozen


class OneSharing(Wrong):
    """Writes change the dictionaries of a snapshot that began while another one was running."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _OneSharing)

    def show(self, opened: Opener) -> None:
        storage, backend = Gated("one"), begun(opened(config=mp.Config(FULL)))
        state, running = at(backend, "k", TEXT), []
        for number in range(3):
            state.update(str(number))
            running.append(backend.snapshot(number, storage))
        state.update("later")
        storage.gate.set()
        for number, taken in enumerate(running):
            assert at(opened(restore=[taken.result().handle]), "k", TEXT).value() == str(number)


class _FirstReleaseThaws(HeapKeyedStateBackend):
    def _release(self, view: Any) -> None:
        self._live.clear()
        super()._release(view)


class FirstReleaseThaws(Wrong):
    """After one of several running snapshots ends, writes change the dictionaries that the others still read."""

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _FirstReleaseThaws

    def show(self, opened: Opener) -> None:
        slow, backend = Gated("slow"), begun(opened(config=mp.Config(FULL)))
        state = at(backend, "k", TEXT)
        state.update("one")
        taken = backend.snapshot(1, slow)
        backend.snapshot(2, mp.checkpoint_storage("memory:quick")).result()
        state.update("two")
        slow.gate.set()
        assert at(opened(restore=[taken.result().handle]), "k", TEXT).value() == "one"


class _MigratesInPlace(HeapKeyedStateBackend):
    def migrate_rows(self, state_name: str, migrate: Any) -> None:
        groups = self._unclaimed.get(state_name, {})
        made = [{key: migrate(data) for key, data in rows.items()} for rows in groups.values()]
        for rows, after in zip(groups.values(), made, strict=True):
            rows.update(after)
        self.version = None
        self.report({state_name: [change for rows in made for change in rows.items()]})


class MigratesInPlace(Wrong):
    """A migration changes restored rows in place, although a snapshot may be reading them."""

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _MigratesInPlace

    def show(self, opened: Opener) -> None:
        whole, broken = (mp.ValueStateDescriptor("v", kind) for kind in (int, float))
        backend = begun(opened(config=mp.Config(FULL)))
        at(backend, "k", whole).update(5)
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:place")).result().handle
        storage, backend = Gated("place"), opened(config=mp.Config(FULL), restore=[handle])
        taken = backend.snapshot(2, storage)
        assert at(backend, "k", broken).value() == 5.0
        storage.gate.set()
        assert at(opened(restore=[taken.result().handle]), "k", whole).value() == 5


class _Lazily(dict[str, Any]):
    def __init__(self, columns: Any, at_once: int) -> None:
        self._columns = columns
        super().__init__({name: columns[name].iter() for name in list(columns)[:at_once]})

    def __missing__(self, name: str) -> Any:
        self[name] = self._columns[name].iter()
        return self[name]


class _SomeIteratorsLater(RocksDBStore):
    def reader(self) -> Any:
        self._iterated = True
        return _RocksDBReader(self, _Lazily(self._columns, 32))


class SomeIteratorsLater(Wrong):
    """A reader creates the iterators of 32 states at once, and those of other states only when they are read."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _SomeIteratorsLater)

    def show(self, opened: Opener) -> None:
        storage, backend = Gated("later"), begun(opened(config=mp.Config(FULL)))
        states = [mp.ValueStateDescriptor(f"s{number}", int) for number in range(40)]
        for descriptor in states:
            at(backend, "k", descriptor).update(1)
        taken = backend.snapshot(1, storage)
        for descriptor in states:
            at(backend, "k", descriptor).update(2)
        backend.flush()
        storage.gate.set()
        again = opened(restore=[taken.result().handle])
        assert [at(again, "k", descriptor).value() for descriptor in states] == [1] * 40


class _Kept:
    """A transaction that remains open when it should end."""

    def __init__(self, transaction: Any, kept: list[Any]) -> None:
        self._transaction, self._kept = transaction, kept

    def abort(self) -> None:
        self._kept.append(self._transaction)

    def cursor(self, **given: Any) -> Any:
        return self._transaction.cursor(**given)


class _FreedWhenConfirmed(LmdbStore):
    def reader(self) -> Any:
        made: Any = super().reader()
        made._transaction = _Kept(made._transaction, vars(self).setdefault("kept", []))
        return made

    def free(self) -> None:
        kept = vars(self).get("kept", [])
        while kept:
            kept.pop().abort()

    def _grow(self, needed: int) -> None:
        self.free()
        super()._grow(needed)

    def close(self) -> None:
        self.free()
        super().close()


class FreedWhenConfirmed(Wrong):
    """Readers of snapshots remain open until a snapshot is confirmed."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _FreedWhenConfirmed)

        def confirmed(original: Any, number: int) -> None:
            original(number)
            backend.store.free()

        around(backend, "notify_checkpoint_complete", confirmed)

    def show(self, opened: Opener) -> None:
        backend = opened(config=configured(self, "lmdb", {"max_readers": 4}))
        state, storage = at(backend, "k", TEXT), mp.checkpoint_storage("memory:freed")
        with works():
            for number in range(10):
                state.update(str(number))
                backend.snapshot(number, storage).result()
                backend.notify_checkpoint_aborted(number)
