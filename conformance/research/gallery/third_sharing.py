"""Third gallery: mistakes in snapshots that run during changes, and in the base of a snapshot."""

from __future__ import annotations

from typing import Any

import millpond as mp
from millpond.snapshots.strategies import ChangelogStrategy
from millpond_heap.backend import HeapKeyedStateBackend
from millpond_heap.cells import HeapCellTable
from millpond_lmdb.backend import LmdbKeyedStateBackend

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import (
    FULL,
    LOG,
    Gated,
    at,
    begun,
    tables,
    turned,
    works,
)
from conformance.research.mutants.mutants_parts import claimed_rows_go
from conformance.research.mutants.sabotage_tools import on_states

NUMBER = mp.ValueStateDescriptor("n", int)
LIST = mp.ListStateDescriptor("l", int)
MAP = mp.MapStateDescriptor("m", str, int)


def _alike(count: int) -> list[str]:
    """A number of keys in one key group, which is not the first group."""
    keys = (str(number) for number in range(100_000))
    return [key for key in keys if mp.assign_to_key_group(key, 128) == 5][:count]


class ClaimEmpties(Wrong):
    """A restored state that is requested while a snapshot runs is missing in that snapshot."""

    def spoil(self, backend: Any) -> None:
        claimed_rows_go(backend)

    def show(self, opened: Opener) -> None:
        config, storage = mp.Config(FULL), Gated("claims")
        storage.gate.set()
        with begun(opened(config=config)) as first:
            at(first, _alike(1)[0], NUMBER).update(7)
            handle = first.snapshot(1, storage).result().handle
        storage.gate.clear()
        backend = opened(config=config, restore=[handle])
        future = backend.snapshot(2, storage)
        backend.get_partitioned_state(NUMBER)
        storage.gate.set()
        third = opened(config=config, restore=[future.result().handle])
        assert at(third, _alike(1)[0], NUMBER).value() == 7


class MovedShared(Wrong):
    """After a merge moved a list, appends also change the list in a running snapshot."""

    def spoil(self, backend: Any) -> None:
        def change(_: Any, raw: Any) -> None:
            raw._moved = lambda stored: stored

        on_states(backend, change, "list")

    def show(self, opened: Opener) -> None:
        config, storage, key = mp.Config(FULL), Gated("moved"), _alike(1)[0]
        backend = begun(opened(config=config))
        for namespace, number in (("t", 1), ("s", 2)):
            at(backend, key, LIST, namespace=namespace).add(number)
        future = backend.snapshot(1, storage)
        state = at(backend, key, LIST, namespace="t")
        state.add(3)
        state.clear()
        state.merge_namespaces("t", ["s"])
        state.add(4)
        storage.gate.set()
        restored = opened(config=config, restore=[future.result().handle])
        assert at(restored, key, LIST, namespace="s").get() == [2]


class _BulkUnshared(HeapCellTable):
    def put_many(self, namespace: Any, keys: Any, values: list[Any]) -> None:
        self.sharing, kept = None, self.sharing
        try:
            super().put_many(namespace, keys, values)
        finally:
            self.sharing = kept


class BulkUnshared(Wrong):
    """A bulk write to many keys also changes the values in a running snapshot."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _BulkUnshared)

    def show(self, opened: Opener) -> None:
        config, storage, keys = mp.Config(FULL), Gated("bulk"), _alike(2)
        backend = begun(opened(config=config))
        state = at(backend, keys[0], NUMBER)
        state.update_many(keys, [1, 2])
        future = backend.snapshot(1, storage)
        state.update_many(keys, [3, 4])
        storage.gate.set()
        restored = opened(config=config, restore=[future.result().handle])
        assert at(restored, keys[0], NUMBER).get_many(keys).to_pylist() == [1, 2]


class _Late(ChangelogStrategy):
    def notify_complete(self, checkpoint_id: int) -> None:
        before = dict(self._running)
        super().notify_complete(checkpoint_id)
        before.pop(checkpoint_id, None)
        self._running = before


class LateConfirmation(Wrong):
    """After a late confirmation of an older snapshot, new snapshots build on the older one."""

    def spoil(self, backend: Any) -> None:
        turned(backend, "changelog", _Late)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:late")
        for number, key in ((1, "a"), (2, "b")):
            at(backend, key, NUMBER).update(number)
            backend.snapshot(number, storage).result()
        backend.notify_checkpoint_complete(2)
        backend.notify_checkpoint_complete(1)
        at(backend, "c", NUMBER).update(3)
        handle = backend.snapshot(3, storage).result().handle
        assert at(opened(restore=[handle]), "b", NUMBER).value() == 2


class _SameSize(ChangelogStrategy):
    def _written_operator_state(self, bundle: Any, pending: Any, before: Any) -> Any:
        size = sum(frozen.size for frozen in pending.operator_state)
        seen = vars(self).get("seen")
        vars(self)["seen"] = size
        if before is not None and before.operator_state and size == seen:
            return before.operator_state
        return super()._written_operator_state(bundle, pending, before)


class SameSizeOperatorState(Wrong):
    """Changed operator state is not written if its size is the same as in the last snapshot."""

    def spoil(self, backend: Any) -> None:
        turned(backend, "changelog", _SameSize)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:same")
        backend.operator_state = mp.open_operator_backend()
        state = backend.operator_state.get_list_state(LIST)
        for number in (1, 2):
            state.update([number])
            handle = backend.snapshot(number, storage).result().handle
            backend.notify_checkpoint_complete(number)
        again = mp.open_operator_backend(restore=list(handle.operator_state))
        assert list(again.get_list_state(LIST).get()) == [2]


class _Unsorted(HeapKeyedStateBackend):
    def addresses(self, name: str, namespaces: Any) -> Any:
        if name in self.states.tables:
            yield from super().addresses(name, namespaces)
            return
        for rows in list(self._unclaimed.get(name, {}).values()):
            yield from self._key.layout.addresses(list(rows), self.key_codec, namespaces)


class UnsortedUnclaimed(Wrong):
    """A map that was restored from a base and a delta, and not requested, lists a key twice."""

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _Unsorted

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:twice")
        keys = sorted(_alike(2))
        for number, key in enumerate((*keys, keys[0])):
            at(backend, key, MAP).put(str(number), number)
            if number:
                handle = backend.snapshot(number, storage).result().handle
                backend.notify_checkpoint_complete(number)
        assert sorted(opened(restore=[handle]).keys("m")) == keys


class _OfKnown(LmdbKeyedStateBackend):
    def savepoint(self, checkpoint_id: int, storage: Any) -> Any:
        known = [meta for meta in self.state_metas() if meta.name in self.states.tables]
        vars(self)["state_metas"] = lambda: known
        try:
            return super().savepoint(checkpoint_id, storage)
        finally:
            del vars(self)["state_metas"]


class SavepointOfKnown(Wrong):
    """A savepoint omits restored states that have not been requested since."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _OfKnown

    def show(self, opened: Opener) -> None:
        storage, handles = mp.checkpoint_storage("memory:known"), []
        for number, descriptor in enumerate((NUMBER, LIST), 1):
            backend = opened(restore=handles)
            at(backend, "k", descriptor)
            if number == 1:
                at(backend, "k", NUMBER).update(5)
            handles = [backend.savepoint(number, storage).result().handle]
        assert at(opened(restore=handles), "k", NUMBER).value() == 5


class _FirstStates(LmdbKeyedStateBackend):
    def expect_states(self, names: Any) -> None:
        super().expect_states(names)
        vars(self)["adopted"] = vars(self).get("adopted", 0) + 1

    def load_rows(self, state_name: str, rows: Any) -> None:
        loaded = vars(self).setdefault("loaded", set())
        if vars(self).get("adopted", 0) < 2:
            loaded.add(state_name)
        if state_name in loaded:
            super().load_rows(state_name, rows)


class FirstHandleStates(Wrong):
    """A restore of several snapshots drops states of which the first snapshot has no rows."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _FirstStates

    def show(self, opened: Opener) -> None:
        storage, handles = mp.checkpoint_storage("memory:first"), []
        for start, descriptor in ((0, NUMBER), (64, LIST)):
            groups = mp.KeyGroupRange(start, start + 63)
            backend = opened(config=mp.Config(FULL), key_group_range=groups)
            for key in map(str, range(20)):
                if mp.assign_to_key_group(key, 128) in groups:
                    at(backend, key, NUMBER).update(1)
                    at(backend, key, descriptor)
                    if descriptor is LIST:
                        backend.get_partitioned_state(LIST).add(2)
            handles.append(backend.snapshot(1, storage).result().handle)
        with works():
            backend = opened(restore=handles)
        backend.get_partitioned_state(LIST)
        late = [key for key in map(str, range(20)) if mp.assign_to_key_group(key, 128) > 63]
        assert sorted(backend.keys("l")) == sorted(late)
