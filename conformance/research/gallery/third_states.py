"""Third gallery: mistakes in states, namespaces and bulk calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.backend.bytestore.buffered_cells import BufferedCellTable
from millpond_heap.cells import HeapCellTable
from millpond_lmdb.store import LmdbStore
from millpond_rocksdb.store import RocksDBStore
from millpond_sqlite.backend import SqliteStore

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.gallery.wrong_tools import at, stored_by, tables
from conformance.research.mutants.sabotage_tools import around, on_states

NUMBER = mp.ValueStateDescriptor("n", int)
TEXT = mp.ValueStateDescriptor("t", str)
SUM = mp.ReducingStateDescriptor("s", lambda a, b: a + b, int)
LIST = mp.ListStateDescriptor("l", int)


class TwiceMerged(Wrong):
    """A merge target that is also among the sources is merged twice."""

    def spoil(self, backend: Any) -> None:
        def change(_: Any, raw: Any) -> None:
            def merge(original: Any, target: Any, sources: Any) -> None:
                named = list(sources or ())
                table, into = raw._table, raw._prepare(target)
                held = table.get(into)
                if target not in named or held is None or set(named) == {target}:
                    original(target, sources)
                    return
                original(target, named)
                table.put(into, raw._combine([held, table.get(into)]))

            around(raw, "merge_namespaces", merge)

        on_states(backend, change, "list", "reducing", "aggregating")

    def show(self, opened: Opener) -> None:
        backend = opened()
        for namespace, number in (("a", 1), ("b", 2)):
            at(backend, "k", SUM, namespace=namespace).add(number)
        state = backend.get_partitioned_state(SUM, namespace="a")
        state.merge_namespaces("a", ["a", "b"])
        assert state.get() == 3


class MergeOlderStamp(Wrong):
    """A merge of two accumulators keeps the newer of their time stamps instead of the current time."""

    def spoil(self, backend: Any) -> None:
        def change(_: Any, raw: Any) -> None:
            if not raw._expires:
                return

            def merged(original: Any, a: Any, b: Any) -> Any:
                made = original(a, b)
                return made and (made[0], max(side[1] for side in (a, b) if side is not None))

            around(raw, "_merge_two", merged)

        on_states(backend, change, "reducing", "aggregating")

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend = opened(clock=clock)
        descriptor = mp.ReducingStateDescriptor("s", lambda a, b: a + b, int)
        descriptor.enable_time_to_live(mp.StateTtlConfig(timedelta(milliseconds=100)))
        for moment, namespace in ((0, "a"), (10, "b")):
            clock.set(moment)
            at(backend, "k", descriptor, namespace=namespace).add(1)
        clock.set(50)
        state = backend.get_partitioned_state(descriptor, namespace="a")
        state.merge_namespaces("a", ["b"])
        clock.set(120)
        assert state.get() == 2


class ValuesAlias(Wrong):
    """`values()` of a map state returns the stored objects instead of copies."""

    def spoil(self, backend: Any) -> None:
        def change(_: Any, raw: Any) -> None:
            def values() -> Any:
                table = raw._table
                return (value for _, value in table.items_at(table.place(raw._namespace)))

            raw.values = values

        on_states(backend, change, "map")

    def show(self, opened: Opener) -> None:
        state = at(opened(), "k", mp.MapStateDescriptor("m", str, list[int]))
        state.put("a", [1])
        next(iter(state.values())).append(2)
        assert state.get("a") == [1]


class _SkipsNull(HeapCellTable):
    def put_many(self, namespace: Any, keys: Any, values: list[Any]) -> None:
        there = [place for place, value in enumerate(values) if value is not None]
        if there and len(there) < len(values):
            keys, values = keys.only(there), [values[place] for place in there]
        super().put_many(namespace, keys, values)


class BulkSkipsNull(Wrong):
    """In a bulk write, a null leaves the key's old value."""

    def spoil(self, backend: Any) -> None:
        tables(backend, HeapCellTable, _SkipsNull)

    def show(self, opened: Opener) -> None:
        state = at(opened(), "a", NUMBER)
        state.update_many(["a", "b"], [1, 2])
        state.update_many(["a", "b"], [None, 3])
        assert state.get_many(["a", "b"]).to_pylist() == [None, 3]


class RepeatedKeys(Wrong):
    """In a bulk add, the elements of a repeated key overwrite those of its first occurrence."""

    def spoil(self, backend: Any) -> None:
        def change(_: Any, raw: Any) -> None:
            def append(keys: Any, values: list[Any]) -> None:
                before = raw._accumulators(keys)
                after = [raw._accumulate(*each) for each in zip(before, values, strict=True)]
                raw._table.put_many(raw._namespace, keys, after)

            raw.append_many = append

        on_states(backend, change, "reducing", "aggregating", "folding")

    def show(self, opened: Opener) -> None:
        state = at(opened(), "a", SUM)
        state.add_many(["a", "b", "a"], [1, 2, 3])
        assert state.get_many(["a", "b"]).to_pylist() == [4, 2]


class _FirstWins(BufferedCellTable):
    def put_many(self, namespace: Any, keys: Any, values: list[Any]) -> None:
        if not keys.distinct:
            first = dict(reversed(list(zip(keys.addresses, range(len(keys)), strict=True))))
            keys, values = keys.only(list(first.values())), [values[n] for n in first.values()]
        super().put_many(namespace, keys, values)


class FirstOfRepeated(Wrong):
    """If a key is repeated in a bulk write, its first value is stored instead of the last."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        tables(backend, BufferedCellTable, _FirstWins)

    def show(self, opened: Opener) -> None:
        state = at(opened(), "a", NUMBER)
        state.update_many(["a", "b", "a"], [1, 2, 3])
        assert state.value() == 3


class _SortedBulk(SqliteStore):
    def get_many(self, family: str, keys: Any) -> list[bytes | None]:
        return super().get_many(family, sorted(keys))


class SortedBulk(Wrong):
    """A bulk read returns the values in the order of the keys' bytes instead of the given order."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _SortedBulk)

    def show(self, opened: Opener) -> None:
        backend = opened()
        state = at(backend, "a", NUMBER)
        keys = list("abcdef")
        state.update_many(keys, range(6))
        backend.flush()
        for asked in (keys, keys[::-1]):
            numbers = state.get_many(asked).to_pylist()
            assert numbers == [keys.index(key) for key in asked]
            backend.flush()


class _BulkLimit(RocksDBStore):
    def get_many(self, family: str, keys: Any) -> list[bytes | None]:
        return [*super().get_many(family, keys[:999]), *[None] * (len(keys) - 999)]


class BulkLimit(Wrong):
    """A bulk read finds only the first 999 keys in the store."""

    base = "rocksdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _BulkLimit)

    def show(self, opened: Opener) -> None:
        backend, keys = opened(), [str(number) for number in range(1001)]
        state = at(backend, "0", NUMBER)
        state.update_many(keys, range(1001))
        backend.flush()
        assert None not in state.get_many(keys).to_pylist()


class _EmptyInBulk(LmdbStore):
    def get_many(self, family: str, keys: Any) -> list[bytes | None]:
        return [value or None for value in super().get_many(family, keys)]


class EmptyInBulk(Wrong):
    """A bulk read returns None for an empty value."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        stored_by(backend, _EmptyInBulk)

    def show(self, opened: Opener) -> None:
        backend = opened()
        state = at(backend, "a", TEXT)
        state.update_many(["a", "b"], ["", "x"])
        backend.flush()
        assert state.get_many(["a", "b"]).to_pylist() == ["", "x"]
