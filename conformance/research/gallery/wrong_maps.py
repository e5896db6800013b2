"""First gallery: mistakes with maps."""

from __future__ import annotations

from itertools import islice
from typing import Any

import millpond as mp
from millpond.spi.tables import ABSENT

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.mutants.sabotage_tools import around, on_tables

NUMBERS = mp.MapStateDescriptor("m", int, int)
SMALL = mp.Config(buffer={"max_entries": 2})


def _map(backend: Any, descriptor: Any = NUMBERS, key: str = "k") -> Any:
    backend.set_current_key(key)
    return backend.get_partitioned_state(descriptor)


def _on_maps(backend: Any, change: Any) -> None:
    on_tables(backend, lambda table: change(table) if hasattr(table, "items_at") else None)


class ClearsThousand(Wrong):
    """Clearing a map removes only its first 1,000 entries."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def clear(original: Any, namespace: Any) -> None:
                for key, _ in islice(table.items_at(table.place(namespace)), 1000):
                    table.remove(namespace, key)

            around(table, "clear", clear)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        found = _map(opened())
        found.put_all(dict.fromkeys(range(1001), 0))
        found.clear()
        assert found.is_empty()


class NoneIsAbsent(Wrong):
    """An entry whose value is None is missing for `in` and `get`, but not for `items`."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def get(original: Any, namespace: Any, key: Any) -> Any:
                value = original(namespace, key)
                return ABSENT if value is None else value

            around(table, "get", get)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        found = _map(opened(), mp.MapStateDescriptor("o", str, int | None))
        found.put("a", None)
        assert "a" in found


class ItemsFollowTheKey(Wrong):
    """An iteration continues in the map of another key if that key becomes current."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def items_at(original: Any, place: Any) -> Any:
                first = True
                for key, value in original(place):
                    yield key, value if first else table.get(place[1], key)
                    first = False

            around(table, "items_at", items_at)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        _map(backend, key="b").put_all({1: -1, 2: -2})
        found = _map(backend, key="a")
        found.put_all({1: 1, 2: 2})
        walk = found.items()
        next(walk)
        backend.set_current_key("b")
        assert next(walk)[1] > 0


class EmptyIfKeyIsNew(Wrong):
    """`is_empty` checks whether the key has a map in any namespace."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def is_empty(original: Any, namespace: Any) -> bool:
                address = table.current.address
                return not any(address in by_key for by_key in table._entries().values())

            around(table, "is_empty", is_empty)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        backend.get_partitioned_state(NUMBERS, "n").put(1, 1)
        assert backend.get_partitioned_state(NUMBERS, "o").is_empty()


class EmptyInStore(Wrong):
    """`is_empty` ignores changes that are still in the buffer."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def is_empty(original: Any, namespace: Any) -> bool:
                address = table._address(namespace)
                return next(table._buffer.rows(table._family, address), None) is None

            around(table, "is_empty", is_empty)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        found = _map(opened())
        found.put(1, 1)
        assert not found.is_empty()


class ForgetsBufferedOnFlush(Wrong):
    """A flush during an iteration makes the iteration lose buffered entries."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def items_at(original: Any, place: Any) -> Any:
                maps = table._maps
                buffered = set(maps.get(place, ()))
                for key, value in original(place):
                    if table._maps is maps or table.prepare_key(key) not in buffered:
                        yield key, value

            around(table, "items_at", items_at)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        found = _map(backend)
        found.put_all({1: 1, 2: 2})
        walk = found.items()
        next(walk)
        backend.flush()
        assert len(list(walk)) == 1


class OldOnesInIteration(Wrong):
    """After a flush during it, an iteration returns overwritten values."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def items_at(original: Any, place: Any) -> Any:
                rows = dict(table._buffer.rows(table._family, place))
                maps = table._maps
                for key, value in original(place):
                    data = rows.get(place + table.prepare_key(key))
                    if table._maps is not maps and data is not None:
                        yield key, table._serializer.deserialize(data)
                    else:
                        yield key, value

            around(table, "items_at", items_at)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        found = _map(backend)
        found.put_all({1: 1, 2: 2})
        backend.flush()
        walk = found.items()
        first, _ = next(walk)
        found.put(3 - first, 30)
        backend.flush()
        assert next(walk) == (3 - first, 30)


class ChunkBoundary(Wrong):
    """An iteration over a map with more than 1,360 stored entries loses the entry at each chunk boundary."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def chunks(original: Any, *given: Any) -> Any:
            for number, rows in enumerate(original(*given)):
                yield rows[1:] if number > 3 else rows

        around(backend.buffer, "chunks", chunks)

    def show(self, opened: Opener) -> None:
        backend = opened()
        found = _map(backend)
        found.put_all(dict.fromkeys(range(2000), 0))
        backend.flush()
        assert len(found) == 2000


class ReturnsRemoved(Wrong):
    """If an entry is put and removed within a bundle, an older stored entry reappears."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def remove(original: Any, namespace: Any, key: Any) -> None:
                place = table._address(namespace), key
                known = place in table._dirty
                original(namespace, key)
                if known:
                    table._dirty.pop(place, None)

            around(table, "remove", remove)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        found = _map(backend)
        found.put(1, 1)
        backend.flush()
        found.put(1, 2)
        found.remove(1)
        backend.flush()
        assert 1 not in found


class RemoveCostsMap(Wrong):
    """Removing the second-to-last entry also removes the last one."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def remove(original: Any, namespace: Any, key: Any) -> None:
                was = len(table._map(namespace))
                original(namespace, key)
                if was == 9 and len(table._map(namespace)) == 8:
                    original(namespace, next(iter(table._map(namespace))))

            around(table, "remove", remove)

        _on_maps(backend, change)

    def show(self, opened: Opener) -> None:
        found = _map(opened())
        found.put_all(dict.fromkeys(range(9), 0))
        found.remove(0)
        assert len(found) == 8
