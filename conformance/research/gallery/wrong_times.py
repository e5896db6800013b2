"""First gallery: mistakes with timers, TTL, and the order of snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.spi.tables import CellTable
from millpond.types import VoidNamespace

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.mutants.sabotage_tools import around, on_states, on_strategies, on_tables

TTL = mp.StateTtlConfig(timedelta(milliseconds=100))


def _timers(backend: Any, kind: Any = VoidNamespace) -> Any:
    backend.set_current_key("k")
    return backend.timer_queue("t", kind)


def _on_rows(backend: Any, change: Any) -> None:
    def made(original: Any, name: str) -> Any:
        rows = original(name)
        change(rows)
        return rows

    around(backend, "create_timer_rows", made)


class OneOfATie(Wrong):
    """Of several timers with the same key and time, only one namespace's timer fires."""

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            def until(original: Any, timestamp: int) -> Any:
                found: dict[bytes, bytes] = {}
                for row in sorted(original(timestamp)):
                    found.setdefault(row[:11], row)
                return list(found.values())

            around(rows, "until", until)

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        timers = _timers(opened(), str)
        timers.register(5, "a")
        timers.register(5, "b")
        assert len(list(timers.due(5))) == 2


class LastMoment(Wrong):
    """A timer at the largest possible time never fires."""

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            last = b"\xff" * 8
            around(rows, "until", lambda original, at: [r for r in original(at) if r[1:9] != last])

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        timers = _timers(opened())
        timers.register((1 << 63) - 1, mp.VOID_NAMESPACE)
        assert len(list(timers.due((1 << 63) - 1))) == 1


class BeforeTime(Wrong):
    """The earliest timer is never reported as before 1970."""

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            def earliest(original: Any) -> Any:
                found = original()
                return found if found is None else max(found, 0)

            around(rows, "earliest", earliest)

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        timers = _timers(opened())
        timers.register(-5, mp.VOID_NAMESPACE)
        assert timers.earliest() == -5


class DeletedTimers(Wrong):
    """A stored timer that the bundle has deleted still fires."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            def until(original: Any, timestamp: int) -> Any:
                gone = {row: there for row, there in rows._changed.items() if not there}
                for row in gone:
                    del rows._changed[row]
                found = original(timestamp)
                rows._changed.update(gone)
                return found

            around(rows, "until", until)

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        timers = _timers(backend)
        timers.register(5, mp.VOID_NAMESPACE)
        backend.flush()
        timers.delete(5, mp.VOID_NAMESPACE)
        assert not list(timers.due(5))


class EarliestDeleted(Wrong):
    """The earliest timer ignores changes of the current bundle."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            def earliest(original: Any) -> Any:
                changed, rows._changed = rows._changed, {}
                try:
                    stored = original()
                finally:
                    rows._changed = changed
                return original() if stored is None else stored

            around(rows, "earliest", earliest)

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        timers = _timers(backend)
        timers.register(5, mp.VOID_NAMESPACE)
        backend.flush()
        timers.register(3, mp.VOID_NAMESPACE)
        assert timers.earliest() == 3


class ManyDue(Wrong):
    """At most 1,000 timers fire at once."""

    def spoil(self, backend: Any) -> None:
        def change(rows: Any) -> None:
            around(rows, "until", lambda original, at: sorted(original(at))[:1000])

        _on_rows(backend, change)

    def show(self, opened: Opener) -> None:
        timers = _timers(opened())
        for when in range(1001):
            timers.register(when, mp.VOID_NAMESPACE)
        assert len(list(timers.due(2000))) == 1001


class SweptEarly(Wrong):
    """The clean-up removes entries one millisecond before they expire."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def sweep(original: Any, limit: int, expiry: Any) -> Any:
                expiry._limit += 1
                return original(limit, expiry)

            around(table, "sweep", sweep)

        on_tables(backend, change)

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend = opened(clock=clock)
        descriptor = mp.ValueStateDescriptor("v", int)
        descriptor.enable_time_to_live(TTL)
        state = backend.get_partitioned_state(descriptor)
        for key in "ab":
            backend.set_current_key(key)
            state.update(1)
            clock.advance(1)
        clock.set(100)
        backend.flush()
        assert state.value() == 1


class SweptLists(Wrong):
    """The clean-up removes a whole list when its first element expires."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def sweep(original: Any, limit: int, expiry: Any) -> Any:
                kept = expiry.of_object

                def of_object(value: Any) -> Any:
                    left = kept(value)
                    return None if left is not value else value

                expiry.of_object = of_object
                return original(limit, expiry)

            around(table, "sweep", sweep)

        on_tables(backend, change)

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend = opened(clock=clock)
        backend.set_current_key("k")
        descriptor = mp.ListStateDescriptor("l", int)
        descriptor.enable_time_to_live(TTL)
        state = backend.get_partitioned_state(descriptor)
        state.add(1)
        clock.set(60)
        state.add(2)
        clock.set(120)
        for _ in range(3):
            backend.flush()
        assert state.get() == [2]


class ReAddedReported(Wrong):
    """An entry that is removed and written again in one bundle is reported to listeners as removed."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            gone: set[Any] = set()

            def remove(original: Any, *address: Any) -> None:
                current = table.current
                gone.add((current.key_group, address[0], current.address, *address[1:]))
                original(*address)

            def changes(original: Any) -> Any:
                return [
                    (row, None if any(table._physical(*g[:3]) == row for g in gone) else value)
                    for row, value in original()
                ]

            def flushed(original: Any) -> None:
                gone.clear()
                original()

            around(table, "remove", remove)
            around(table, "changes", changes)
            around(table, "flushed", flushed)

        on_tables(backend, lambda t: None if hasattr(t, "items_at") else change(t))

    def show(self, opened: Opener) -> None:
        config = mp.Config(state={"snapshot": {"strategy": "changelog"}})
        backend, storage = opened(config=config), mp.checkpoint_storage("memory:re-added")
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        state.update(1)
        backend.snapshot(1, storage).result()
        backend.notify_checkpoint_complete(1)
        state.clear()
        state.update(2)
        handle = backend.snapshot(2, storage).result().handle
        found = opened(restore=[handle])
        found.set_current_key("k")
        assert found.get_partitioned_state(mp.ValueStateDescriptor("v", int)).value() == 2


class EightDeltas(Wrong):
    """A snapshot names at most its base and the last six deltas."""

    def spoil(self, backend: Any) -> None:
        def change(strategy: Any) -> None:
            if strategy.name == "changelog" and not hasattr(strategy, "_short"):
                strategy._short = True

                def with_files(
                    original: Any, blank: Any, before: Any, files: Any, *rest: Any
                ) -> Any:
                    kept = (*files[:1], *files[1:][-6:])
                    return original(blank, before, kept, *rest)

                around(strategy, "with_files", with_files)

        on_strategies(backend, change)

    def show(self, opened: Opener) -> None:
        config = mp.Config(state={"snapshot": {"strategy": "changelog", "base_ratio": 1000.0}})
        backend, storage = opened(config=config), mp.checkpoint_storage("memory:eight")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        for number in range(1, 10):
            backend.set_current_key(str(number))
            state.update(number)
            handle = backend.snapshot(number, storage).result().handle
            backend.notify_checkpoint_complete(number)
        found = opened(restore=[handle])
        assert len(_keys(found)) == 9


def _keys(backend: Any) -> list[Any]:
    return list(backend.keys("v"))


class AbortForgets(Wrong):
    """After an aborted snapshot, the next one contains only the changes since the aborted one."""

    def spoil(self, backend: Any) -> None:
        def change(strategy: Any) -> None:
            if strategy.name == "changelog" and not hasattr(strategy, "_short"):
                strategy._short = True

                def aborted(original: Any, number: int) -> None:
                    original(number)
                    del strategy._log[:]

                around(strategy, "notify_aborted", aborted)

        on_strategies(backend, change)

    def show(self, opened: Opener) -> None:
        config = mp.Config(state={"snapshot": {"strategy": "changelog"}})
        backend, storage = opened(config=config), mp.checkpoint_storage("memory:aborted")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        for number in range(1, 4):
            backend.set_current_key(str(number))
            state.update(number)
            handle = backend.snapshot(number, storage).result().handle
            if number == 2:
                backend.notify_checkpoint_aborted(2)
            else:
                backend.notify_checkpoint_complete(number)
        assert len(_keys(opened(restore=[handle]))) == 3


class ThawedEarly(Wrong):
    """After any running snapshot ends, writes change the dictionaries that all others still read."""

    def spoil(self, backend: Any) -> None:
        def release(original: Any, view: Any) -> None:
            for table in backend.states.tables.values():
                table.thaw()
            original(view)

        around(backend, "_release", release)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ValueStateDescriptor("v", int))
        state.update(1)
        one, two = backend.freeze(), backend.freeze()
        two.close()
        state.update(2)
        rows = [row for group in range(128) for _, chunk in one.rows(group) for row in chunk]
        data = state._table._serializer.serialize(1) if hasattr(state, "_table") else rows[0][1]
        one.close()
        assert [value for _, value in rows] == [data]


class ListGrowsInSnapshot(Wrong):
    """A list that grows while a snapshot runs also grows in the snapshot."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def append(namespace: Any, values: Any) -> None:
                CellTable.append(table, namespace, values)

            table.append = append

        on_tables(backend, lambda t: change(t) if hasattr(t, "append") else None)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ListStateDescriptor("l", int))
        state.add(1)
        view = backend.freeze()
        state.add(2)
        before = [row for group in range(128) for _, chunk in view.rows(group) for row in chunk]
        view.close()
        later = backend.freeze()
        after = [row for group in range(128) for _, chunk in later.rows(group) for row in chunk]
        later.close()
        assert before != after


class HandlesInOrder(Wrong):
    """A restore of several handles with different states keeps only those of the last handle."""

    def spoil(self, backend: Any) -> None:
        def load(original: Any, name: str, rows: Any) -> None:
            if seen and seen[-1] != name and name in seen:
                return
            seen.append(name)
            original(name, rows)

        seen: list[str] = []
        around(backend, "load_rows", load)

    def show(self, opened: Opener) -> None:
        storage = mp.checkpoint_storage("memory:handles")
        handles = []
        for low, high in ((0, 63), (64, 127)):
            backend = opened(key_group_range=mp.KeyGroupRange(low, high))
            for name in ("v", "w"):
                state = backend.get_partitioned_state(mp.ValueStateDescriptor(name, int))
                for group in range(low, high + 1):
                    backend.current.select(f"{group}", group)
                    state.update(group)
            handles.append(backend.snapshot(1, storage).result().handle)
        whole = opened(restore=handles)
        assert len(list(whole.keys("v"))) == 128
        assert len(list(whole.keys("w"))) == 128


class TtlReadStamps(Wrong):
    """Reading a value renews its TTL, although only writes should."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            if state is not raw:
                state._touch_on_read = True

        on_states(backend, change, "aggregating", "reducing")

    def show(self, opened: Opener) -> None:
        clock = mp.ManualClock(0)
        backend = opened(clock=clock)
        backend.set_current_key("k")
        descriptor = mp.ReducingStateDescriptor("r", max, int)
        descriptor.enable_time_to_live(TTL)
        state = backend.get_partitioned_state(descriptor)
        state.add(1)
        clock.set(60)
        state.get()
        clock.set(120)
        assert state.get() is None
