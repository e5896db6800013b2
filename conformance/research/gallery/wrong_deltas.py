"""Second gallery: mistakes in snapshots that build on others, and in their restore."""

from __future__ import annotations

import os
from typing import Any

import millpond as mp
from millpond.snapshots.restore import catch_up
from millpond_heap.cells import HeapCellTable
from millpond_heap.maps import HeapMapTable
from millpond_rocksdb.backend import RocksDBKeyedStateBackend
from millpond_rocksdb.incremental import IncrementalStrategy
from millpond_rocksdb.native_files import name_of

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import LOG, NATIVE, at, tables, turned, works

DATA = mp.ValueStateDescriptor("v", bytes)
NUMBER = mp.ValueStateDescriptor("n", int)


class _AppendsAfterUpdates(HeapCellTable):
    def append(self, namespace: Any, values: list[Any]) -> None:
        super().append(namespace, values)
        current = self.current
        noted = self._changes_of(current.key_group, namespace)
        new = self.get(namespace) is values
        if noted is not None and noted.get(current.address, 0) is None and not new:
            noted[current.address] = len(values)


class AppendsAfterUpdates(Wrong):
    """If a bundle replaces a list and then appends to it, the delta contains only the appended elements."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _AppendsAfterUpdates)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:appends")
        descriptor = mp.ListStateDescriptor("l", int)
        state = at(backend, "k", descriptor)
        state.update([1, 2, 3])
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        state.update([7])
        state.add(8)
        handle = backend.snapshot(2, storage).result().handle
        assert at(opened(restore=[handle]), "k", descriptor).get() == [7, 8]


class _BulkUnnoted(HeapCellTable):
    def put_many(self, namespace: Any, keys: Any, values: list[Any]) -> None:
        known = self.changed
        before = None if known is None else {place: dict(each) for place, each in known.items()}
        there = self.get_many(namespace, keys)
        super().put_many(namespace, keys, values)
        if all(each is not None for each in there):
            self.changed = before


class BulkUnnoted(Wrong):
    """Values that a bulk write overwrites are missing in the next delta."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _BulkUnnoted)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:bulk")
        state = at(backend, "a", NUMBER)
        for number in (1, 2):
            state.update_many(["a", "b"], [number, number])
            handle = backend.snapshot(number, storage).result().handle
            backend.notify_checkpoint_complete(number)
        assert at(opened(restore=[handle]), "a", NUMBER).value() == 2


class _GhostMaps(HeapMapTable):
    def load(self, key: bytes, value: bytes | None) -> None:
        group, namespace, address, _ = self._parse(key)
        there = address in self._groups[group].get(namespace, {})
        super().load(key, value)
        if value is None and there:
            self._groups[group].setdefault(namespace, {}).setdefault(address, {})


class GhostMaps(Wrong):
    """A delta that removes the last entry of a map leaves the empty map, so its key is still listed."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapMapTable, _GhostMaps)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(LOG)), mp.checkpoint_storage("memory:ghost")
        descriptor, handles = mp.MapStateDescriptor("m", str, int), []
        state = at(backend, "k", descriptor)
        for number, change in enumerate((lambda: state.put("e", 1), lambda: state.remove("e"))):
            change()
            handles.append(backend.snapshot(number, storage).result().handle)
            backend.notify_checkpoint_complete(number)
        behind = opened(config=mp.Config(LOG), restore=handles[:1])
        behind.flush(handles[0].version)
        behind.get_partitioned_state(descriptor)
        assert catch_up(behind, handles[1])
        assert list(behind.keys("m")) == []


class _NeverSentTwice(IncrementalStrategy):
    def _upload(self, links: Any, known: Any, *rest: Any) -> Any:
        sent: dict[str, Any] = vars(self).setdefault("sent", {})
        for file in super()._upload(links, {**sent, **known}, *rest):
            if file.kind == "sst" and not file.inline:
                sent[name_of(file)] = file
            yield file


class NeverSentTwice(Wrong):
    """A snapshot refers to a file that was uploaded for an aborted snapshot."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        turned(backend, "incremental", _NeverSentTwice)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(config=mp.Config(NATIVE)), mp.checkpoint_storage("memory:sent")
        state = at(backend, "k", DATA)
        for number, size in enumerate((1, 50_000, 50_000)):
            state.update(os.urandom(size))
            handle = backend.snapshot(number, storage).result().handle
            if number:
                backend.notify_checkpoint_aborted(number)
            else:
                backend.notify_checkpoint_complete(number)
        handle = backend.snapshot(4, storage).result().handle
        with works():
            assert len(at(opened(restore=[handle]), "k", DATA).value()) == 50_000


class _AllFilesAlike(IncrementalStrategy):
    def _upload(self, links: Any, known: Any, *rest: Any) -> Any:
        if self.confirmed is not None and known:
            known = {name_of(file): file for file in self.confirmed.files}
        return super()._upload(links, known, *rest)


class AllFilesAlike(Wrong):
    """Files with the same name and size are taken for the same file, even the file that names the current manifest."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        turned(backend, "incremental", _AllFilesAlike)

    def show(self, opened: Opener) -> None:
        config = mp.Config({**NATIVE, "checkpoint.claim": True})
        storage, restore = mp.checkpoint_storage("memory:alike"), []
        for number in (1, 2):
            with works(), opened(config=config, restore=restore) as backend:
                at(backend, "k", NUMBER).update(number)
                restore = [backend.snapshot(number, storage).result().handle]
        with works():
            assert at(opened(restore=restore), "k", NUMBER).value() == 2


class _ClipsBelow(RocksDBKeyedStateBackend):
    def _clip(self, family: str, first: bytes, end: bytes | None, size: int) -> None:
        super()._clip(family, first, None, size)


class ClipsBelow(Wrong):
    """After files are taken over at a rescale, key groups above the subtask's range remain in the store."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        backend.__class__ = _ClipsBelow

    def show(self, opened: Opener) -> None:
        backend = opened(config=mp.Config(NATIVE))
        for number in range(100):
            at(backend, str(number), NUMBER).update(number)
        handle = backend.snapshot(1, mp.checkpoint_storage("memory:clips")).result().handle
        count = 0
        for start in (0, 64):
            groups = mp.KeyGroupRange(start, start + 63)
            part = opened(restore=[handle], key_group_range=groups)
            part.get_partitioned_state(NUMBER)
            count += part.num_state_entries()
        assert count == 100
