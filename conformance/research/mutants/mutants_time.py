"""Mutants that are wrong with TTL, clean-up, and timers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import attrs
from millpond.spi.portable_rows import Expiry

from conformance.research.mutants.sabotage_tools import around, mutant, on_states, on_tables


def set_clock(backend: Any, clock: Any) -> None:
    """Replace the clock by which the states that are requested later expire."""
    backend.parameters = attrs.evolve(backend.parameters, clock=clock)
    backend.states._parameters = backend.parameters


@mutant("entries live a millisecond longer", "T1")
def boundary_off_by_one(backend: Any) -> None:
    clock = backend.parameters.clock

    class Slow:
        @property
        def now_ms(self) -> int:
            return max(0, clock.now_ms - 1)

    set_clock(backend, Slow())


@mutant("the clock never advances", "T1 T4 T5")
def stopped_clock(backend: Any) -> None:
    class Stopped:
        now_ms = 0

    set_clock(backend, Stopped())


@mutant("nothing is ever swept", "C1")
def no_sweeps(backend: Any) -> None:
    backend.sweeper.run = lambda: None


@mutant("the sweep removes live entries too", "C2 C3")
def sweeps_the_living(backend: Any) -> None:
    def change(table: Any) -> None:
        def sweep(original: Any, limit: int, expiry: Expiry) -> Any:
            expiry._limit = 1 << 62
            return original(limit, expiry)

        around(table, "sweep", sweep)

    on_tables(backend, change)


@mutant("a flush scans all entries", "C5")
def unbounded_sweeps(backend: Any) -> None:
    def change(table: Any) -> None:
        around(table, "sweep", lambda original, limit, expiry: original(10**9, expiry))

    on_tables(backend, change)


@mutant("timers fire in no order", "M1")
def unordered_timers(backend: Any) -> None:
    def queue(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        found.due = lambda limit: reversed(list(type(found).due(found, limit)))
        return found

    around(backend, "timer_queue", queue)


@mutant("deleted timers fire", "M2")
def deleted_timers_fire(backend: Any) -> None:
    def rows(original: Any, name: str) -> Any:
        found = original(name)
        found.discard = lambda row: None
        return found

    around(backend, "create_timer_rows", rows)


@mutant("timers are not part of snapshots", "M4")
def timers_are_lost(backend: Any) -> None:
    around(
        backend,
        "state_metas",
        lambda original: [m for m in original() if m.kind.value != "timer"],
    )


@mutant("every subtask has all timers", "M5")
def timers_everywhere(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        rows = list(rows)
        if "timers" in name:
            first = backend.key_group_range.start.to_bytes(1, "big")
            rows += [(first + key[1:], value) for key, value in rows]
        original(name, rows)

    around(backend, "load_rows", load)


@mutant("every read renews a value", "T2")
def reads_renew(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        if state is not raw:
            state._touch_on_read = state._slow_read = True

    on_states(backend, change, "value")


@mutant("expired values are always returned", "T3")
def expired_for_ever(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw.clear = lambda: None

    on_states(backend, change, "value")


@mutant("an accumulator keeps its first stamp", "T6")
def stamps_stay(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def add(original: Any, value: Any) -> None:
            before = raw.get_internal()
            original(value)
            after = raw.get_internal()
            if before is not None and after is not None and state is not raw:
                raw.update_internal((after[0], before[1]))

        around(raw, "add", add)

    on_states(backend, change, "reducing", "aggregating", "folding")


@mutant("a merge includes expired accumulators", "T7")
def expired_are_merged(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def combine(a: Any, b: Any) -> Any:
            return (max(a[0], b[0]), a[1]) if isinstance(a, tuple) else max(a, b)

        raw._merge_two = combine

    on_states(backend, change, "reducing")


@mutant("a restore renews all time stamps", "T8")
def restored_anew(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        meta = backend.restored.get(name)
        if meta is not None and meta.ttl:
            rows = [(key, (5).to_bytes(8, "big") + value[8:]) for key, value in rows]
        original(name, rows)

    around(backend, "load_rows", load)


@mutant("a disabled clean-up sweeps", "C4")
def sweeps_anyway(backend: Any) -> None:
    def plan(original: Any, fresh: Any) -> None:
        from millpond import CleanupStrategies
        from millpond.backend.ttl_sweep import Sweep

        original(fresh)
        if fresh.meta.ttl:
            table = backend.states.tables[fresh.meta.name]
            backend.sweeper._sweeps[fresh.meta.name] = Sweep(
                fresh.meta, CleanupStrategies(), fresh.times, table
            )

    around(backend.states, "_plan_cleanup", plan)


@mutant("each flush restarts the clean-up pass", "C6")
def restless_sweeps(backend: Any) -> None:
    def remove(original: Any) -> None:
        for sweep in backend.sweeper._sweeps.values():
            sweep._last_oldest = -(1 << 60)
        original()

    around(backend.sweeper, "run", remove)


@mutant("full snapshots hold expired entries", "C7")
def expired_in_snapshots(backend: Any) -> None:
    def freeze(original: Any) -> Any:
        view = original()
        view.live_rows = view.rows
        return view

    around(backend, "freeze", freeze)


@mutant("removals by the sweep are missing in deltas", "C8")
def silent_sweeps(backend: Any) -> None:
    def change(table: Any) -> None:
        def sweep(original: Any, limit: int, expiry: Expiry) -> Any:
            changed, table.changed = table.changed, None
            try:
                return original(limit, expiry)
            finally:
                table.changed = changed

        around(table, "sweep", sweep)

    on_tables(backend, change)


@mutant("timers set while others fire wait for the next advance", "M3")
def late_timers_wait(backend: Any) -> None:
    def queue(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        found.due = lambda limit: iter(list(type(found).due(found, limit)))
        return found

    around(backend, "timer_queue", queue)


@mutant("timers count as entries", "M6")
def timers_are_counted(backend: Any) -> None:
    around(
        backend,
        "count_entries",
        lambda original: (
            original() + sum(len(q._rows._rows) for _, q in backend.states._timers.values())
        ),
    )


@mutant("any timestamp is accepted", "M7")
def any_timestamp(backend: Any) -> None:
    def queue(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)

        def register(timestamp: Any, namespace: Any) -> None:
            if isinstance(timestamp, int) and not isinstance(timestamp, bool):
                type(found).register(
                    found, max(-(1 << 63), min(timestamp, (1 << 63) - 1)), namespace
                )

        found.register = register
        return found

    around(backend, "timer_queue", queue)


@mutant("event-time timers never fire", "M8 M9")
def event_time_stands_still(backend: Any) -> None:
    backend.has_timers = lambda domain: False


@mutant("processing-time timers cannot be deleted", "M10")
def clock_timers_stay(backend: Any) -> None:
    def queue(original: Any, domain: str, *arguments: Any) -> Any:
        found = original(domain, *arguments)
        if domain == "processing-time":
            found.delete = lambda timestamp, namespace: None
        return found

    around(backend, "timer_queue", queue)


@mutant("a TTL of more than a century is ignored", "T9")
def no_long_ttl(backend: Any) -> None:
    def change(state: Any, _: Any) -> None:
        ttl = getattr(state, "_ttl", None)
        if ttl is not None and ttl.ttl_ms > 100 * 365 * 86_400_000:
            state._ttl = attrs.evolve(ttl, ttl=timedelta(milliseconds=1))
            state._limit = 1 << 62

    on_states(backend, change, "value")


@mutant("entries with a time stamp in the future are expired", "T10")
def future_is_past(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def value(original: Any) -> Any:
            stamped = raw.cells.get(raw.namespace)
            if stamped is not None and stamped[1] > backend.parameters.clock.now_ms:
                raw.clear()
            return original()

        if hasattr(state, "_ttl"):
            around(state, "value", value)

    on_states(backend, change, "value")


@mutant("the watermark never advances", "T16 T18 C13")
def stopped_watermark(backend: Any) -> None:
    backend.advance_watermark = lambda ms: None


@mutant("writes ignore their own TTL", "T17 T18 C13")
def ignored_own_ttl(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        for method in ("update", "add", "add_all", "put", "put_all"):
            if state is not raw and hasattr(state, method):
                around(state, method, lambda original, *given, ttl=None: original(*given))

    on_states(backend, change, "value", "list", "map")
