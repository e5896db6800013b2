"""Backends that are wrong on purpose: the kit must catch each of them.

Each mutant is the heap backend with one thing spoiled. The script runs the kit's clauses against
every mutant and writes which clause has caught which: the kill matrix in the docs.

Usage: sabotage.py [--markdown FILE] [--all-clauses] [NAME …]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from millpond.backend import Capability, KeyedBackendParameters, KeyedStateBackend, StateBackend
from millpond.backend.cleanup import Expiry
from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange
from millpond.types import VOID_NAMESPACE
from millpond_heap.factory import HeapStateBackend

Spoil = Callable[[KeyedStateBackend], None]
GALLERY: dict[str, Mutant] = {}


class Mutant(StateBackend):
    """The heap backend, spoiled after it was made."""

    capabilities = frozenset({Capability.IN_PROCESS_COPY})

    def __init__(self, name: str, wrong: str, clauses: str, spoil: Spoil) -> None:
        self.name = name
        self.wrong, self.clauses, self.spoil = wrong, clauses.split(), spoil

    def create_keyed_backend(self, parameters: KeyedBackendParameters) -> KeyedStateBackend:
        """A backend with something wrong."""
        backend = HeapStateBackend().create_keyed_backend(parameters)
        self.spoil(backend)
        return backend


def mutant(wrong: str, clauses: str) -> Callable[[Spoil], Spoil]:
    """Add a mutant to the gallery: what is wrong with it, and the clauses that should catch it."""

    def add(spoil: Spoil) -> Spoil:
        GALLERY[spoil.__name__] = Mutant(spoil.__name__, wrong, clauses, spoil)
        return spoil

    return add


def __getattr__(name: str) -> Any:
    """Mutants are found as ``sabotage:<name>``."""
    if name.startswith("m_") and name[2:] in GALLERY:
        return GALLERY[name[2:]]
    raise AttributeError(name)


def around(target: Any, method: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by ``wrapper(original, *arguments)``."""
    original = getattr(target, method)
    setattr(target, method, lambda *given, **named: wrapper(original, *given, **named))


def on_states(backend: Any, change: Callable[[Any, Any], None], *kinds: str) -> None:
    """Change each raw state that is made, of some kinds or of all."""

    def made(original: Any, registered: Any) -> Any:
        state = original(registered)
        raw = state
        while hasattr(raw, "_raw"):
            raw = raw._raw
        if not kinds or registered.descriptor.kind.value in kinds:
            change(state, raw)
        return state

    around(backend, "_make_state", made)


def on_tables(backend: Any, change: Callable[[Any], None]) -> None:
    """Change each table that is made."""

    def made(original: Any, registered: Any) -> Any:
        table = original(registered)
        change(table)
        return table

    around(backend, "_create_table", made)


# ------------------------------------------------------------------ values and keys


@mutant("all keys are one", "V1 G1")
def one_key_for_all(backend: Any) -> None:
    around(backend, "_select", lambda original, key, group: original("k", group * 0))


@mutant("what was flushed is gone", "V2 S1")
def flush_loses_everything(backend: Any) -> None:
    def flush(original: Any, version: Any = None) -> None:
        original(version)
        for table in backend._tables.values():
            for group in getattr(table, "_groups", {}).values():
                group.clear()

    around(backend, "flush", flush)


@mutant("update(None) changes nothing", "V3")
def none_is_ignored(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda original, value: None if value is None else original(value))

    on_states(backend, change, "value")


@mutant("the default is shared by all reads", "V4")
def shared_default(backend: Any) -> None:
    on_states(backend, lambda state, raw: setattr(raw, "_copy", lambda v: v), "value")


@mutant("update keeps the caller's object", "V5")
def aliased_writes(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw.update = lambda value: raw._table.put(raw._namespace, value)

    on_states(backend, change, "value")


@mutant("values of any type are taken", "V6")
def unchecked_values(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw.update = lambda value: raw._table.put(raw._namespace, value)

    on_states(backend, change, "value")


@mutant("None is a key like any other", "V7")
def null_keys(backend: Any) -> None:
    around(
        backend,
        "set_current_key",
        lambda original, key: original("None" if key is None else key),
    )


@mutant("keys of other subtasks are taken", "V8")
def foreign_key_groups(backend: Any) -> None:
    around(
        backend,
        "set_current_key_and_group",
        lambda original, key, group: original(
            key, group if group in backend.key_group_range else backend.key_group_range.start
        ),
    )


@mutant("keys are listed twice", "V9")
def keys_twice(backend: Any) -> None:
    def keys(original: Any, registered: Any) -> Iterator[Any]:
        yield from original(registered)
        yield from original(registered)

    around(backend, "_addresses", keys)


@mutant("apply_to_all_keys leaves its last key behind", "V10")
def key_left_behind(backend: Any) -> None:
    def apply(
        original: Any, descriptor: Any, function: Any, namespace: Any = VOID_NAMESPACE
    ) -> None:
        last = []
        original(descriptor, lambda k, s: (last.append(k), function(k, s))[1], namespace)
        if last:
            backend.set_current_key(last[-1])

    around(backend, "apply_to_all_keys", apply)


@mutant("keys are cut to 64 characters", "V11")
def short_keys(backend: Any) -> None:
    around(backend, "_select", lambda original, key, group: original(key[:64], group))


@mutant("ints go through a float", "V13")
def inexact_ints(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda o, v: o(int(float(v)) if type(v) is int else v))

    on_states(backend, change, "value")


@mutant("a closed backend goes on", "V14")
def works_when_closed(backend: Any) -> None:
    def close(original: Any) -> None:
        original()
        backend._closed = False

    around(backend, "close", close)


# ------------------------------------------------------------------ kinds of state


@mutant("lists come in reverse", "K1")
def reversed_lists(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "get", lambda original: original()[::-1])

    on_states(backend, change, "list")


@mutant("add_all adds what comes before a None", "K2")
def half_an_add_all(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def add_all(values: Any) -> None:
            for value in values:
                raw.add(value)

        raw.add_all = add_all

    on_states(backend, change, "list")


@mutant("removed map entries come back", "K3 K6")
def resurrected_entries(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw.remove = lambda key: None

    on_states(backend, change, "map")


@mutant("a None in a map is nothing", "K5")
def none_in_a_map_is_nothing(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw.contains = lambda key: raw.get(key) is not None

    on_states(backend, change, "map")


@mutant("map keys are cut to 8 characters", "K7 K8")
def prefix_collisions(backend: Any) -> None:
    def change(table: Any) -> None:
        if hasattr(table, "prepare_key"):
            around(table, "prepare_key", lambda original, key: original(key[:2]))

    on_tables(backend, change)


@mutant("the first element is reduced with itself", "K9")
def reduced_twice(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "add", lambda o, v: (o(v), raw.get() is not None and o(v))[0])

    on_states(backend, change, "reducing")


@mutant("an aggregate is its accumulator", "K10")
def bare_accumulators(backend: Any) -> None:
    on_states(backend, lambda s, raw: setattr(raw, "_result", lambda acc: acc), "aggregating")


@mutant("an empty fold is its initial value", "K11")
def empty_folds_are_initial(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "get", lambda original: raw._initial if original() is None else original())

    on_states(backend, change, "folding")


@mutant("all keys fold into one initial value", "K12")
def shared_initial_value(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def accumulate(accumulator: Any, value: Any) -> Any:
            return raw._fold(raw._initial if accumulator is None else accumulator, value)

        raw._accumulate = accumulate

    on_states(backend, change, "folding")


@mutant("namespaces are ignored", "K13")
def ignored_namespaces(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "_prepare", lambda original, namespace: original(namespace) and "same")

    on_states(backend, change)


@mutant("merged sources stay", "K14")
def sources_stay(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw._table.remove = lambda namespace: None

    on_states(backend, change, "list", "reducing", "aggregating")


@mutant("one name may be two kinds", "K15")
def two_kinds(backend: Any) -> None:
    backend._check_redeclared = lambda known, fresh: None


# ------------------------------------------------------------------ snapshots


@mutant("a restore keeps only half of the key groups", "S1 S4")
def half_a_restore(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        original(name, [row for row in rows if row[0][0] % 2])

    around(backend, "load_rows", load)


@mutant("deltas forget removals", "S2")
def deltas_without_removals(backend: Any) -> None:
    def add(original: Any, listener: Any) -> None:
        def filtered(batch: Any) -> None:
            listener({n: [r for r in rows if r[1] is not None] for n, rows in batch.items()})

        original(filtered)

    around(backend, "add_change_listener", add)


@mutant("snapshots build on ones that were not confirmed", "S3")
def unconfirmed_bases(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        future = original(number, storage, version)
        future.result()
        KeyedStateBackend.notify_checkpoint_complete(backend, number)
        return future

    around(backend, "snapshot", snapshot)


@mutant("what nobody has requested is left out of the next snapshot", "S7")
def unrequested_is_lost(backend: Any) -> None:
    around(
        backend,
        "state_metas",
        lambda original: [m for m in original() if m.name in backend._registered],
    )


@mutant("states without entries are left out", "S6")
def empty_states_are_lost(backend: Any) -> None:
    around(
        backend,
        "state_metas",
        lambda original: original() if backend.num_state_entries() else [],
    )


@mutant("restored state may have any type", "S8")
def any_type_restored(backend: Any) -> None:
    backend._migration = lambda stored, fresh: None


@mutant("a snapshot reads what is written later", "A1")
def live_snapshots(backend: Any) -> None:
    def change(table: Any) -> None:
        table.freeze = lambda: table._groups

    on_tables(backend, change)


@mutant("an aborted snapshot leaves its files", "A5")
def aborted_files_stay(backend: Any) -> None:
    backend.notify_checkpoint_aborted = lambda number: None


@mutant("subsumed snapshots are never deleted", "A7")
def subsumed_files_stay(backend: Any) -> None:
    backend.notify_checkpoint_subsumed = lambda number: None


@mutant("closing does not end running snapshots", "A3")
def snapshots_outlive_the_backend(backend: Any) -> None:
    backend.close = backend._close


@mutant("a savepoint is taken for a base", "P3")
def savepoint_as_base(backend: Any) -> None:
    def savepoint(original: Any, number: int, storage: Any) -> Any:
        future = original(number, storage)
        future.result()
        for strategy in backend._strategies or ():
            strategy.start(strategy.confirmed)
        return future

    around(backend, "savepoint", savepoint)


@mutant("a savepoint of other key groups is restored as it is", "P4")
def foreign_groups_restored(backend: Any) -> None:
    whole = KeyGroupRange(0, backend.max_parallelism - 1)
    if len(backend.key_group_range) < len(whole):
        backend.key_group_range = KeyGroupRange(
            max(0, backend.key_group_range.start - 1), backend.key_group_range.end
        )


@mutant("what a type change needs is left undone", "E1")
def no_migration(backend: Any) -> None:
    backend.migrate_rows = lambda name, migrate: None


# ------------------------------------------------------------------ TTL and timers


@mutant("entries live a millisecond longer", "T1")
def boundary_off_by_one(backend: Any) -> None:
    clock = backend.parameters.clock

    class Slow:
        def now(self) -> int:
            return max(0, clock.now() - 1)

    backend.parameters = attrs.evolve(backend.parameters, clock=Slow())


@mutant("the clock stands still", "T1 T4 T5")
def stopped_clock(backend: Any) -> None:
    class Stopped:
        def now(self) -> int:
            return 0

    backend.parameters = attrs.evolve(backend.parameters, clock=Stopped())


@mutant("nothing is ever swept", "C1")
def no_sweeps(backend: Any) -> None:
    backend.remove_expired = lambda: None


@mutant("the sweep takes the living too", "C2 C3")
def sweeps_the_living(backend: Any) -> None:
    def change(table: Any) -> None:
        def sweep(original: Any, limit: int, expiry: Expiry) -> Any:
            expiry._limit = 1 << 62
            return original(limit, expiry)

        around(table, "sweep", sweep)

    on_tables(backend, change)


@mutant("a flush looks at everything", "C5")
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

    around(backend, "_create_timer_rows", rows)


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


# ------------------------------------------------------------------ less obvious wrongs


@mutant("a key is listed once for each of its map entries", "K4")
def key_per_map_entry(backend: Any) -> None:
    def keys(original: Any, registered: Any) -> Iterator[Any]:
        for key, namespace in original(registered):
            yield key, namespace
            if registered.map_key_codec is not None:
                yield key, namespace

    around(backend, "_addresses", keys)


@mutant("values above a megabyte are cut", "V12")
def cut_values(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda o, v: o(v[: 1 << 20] if isinstance(v, (bytes, str)) else v))

    on_states(backend, change, "value")


@mutant("a snapshot of nothing has a handle", "S5")
def handle_of_nothing(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        from millpond import ValueStateDescriptor

        backend.get_partitioned_state(ValueStateDescriptor("phantom", int))
        return original(number, storage, version)

    around(backend, "snapshot", snapshot)


@mutant("each flush drops one entry", "S9")
def leaky_flushes(backend: Any) -> None:
    def flush(original: Any, version: Any = None) -> None:
        for table in backend._tables.values():
            for group in getattr(table, "_groups", {}).values():
                for by_key in group.values():
                    if len(by_key) > 0:
                        by_key.popitem()
                        return original(version)
        return original(version)

    around(backend, "flush", flush)


@mutant("cancelling is ignored", "A2")
def uncancellable(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        future = original(number, storage, version)
        future.cancel = lambda: True
        return future

    around(backend, "snapshot", snapshot)


@mutant("a failed snapshot breaks the next one", "A4")
def failure_lasts(backend: Any) -> None:
    taken: list[Any] = []

    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        if any(each.done() and not each.cancelled() and each.exception() for each in taken):
            raise RuntimeError("still broken")
        taken.append(original(number, storage, version))
        return taken[-1]

    around(backend, "snapshot", snapshot)


@mutant("outdated files are kept whatever the retention says", "A6")
def no_retention(backend: Any) -> None:
    def strategy(original: Any, name: str) -> Any:
        found = original(name)
        found._drop_outdated = lambda: None
        return found

    around(backend, "strategy", strategy)


@mutant("text loses its last character in a restore", "P1 P2")
def restored_text_is_cut(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        original(name, [(key, value[:-1] if value else value) for key, value in rows])

    around(backend, "load_rows", load)


@mutant("any number of key groups is restored", "P5")
def any_max_parallelism(backend: Any) -> None:
    class Anything(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    backend.max_parallelism = Anything(backend.max_parallelism)


@mutant("incompatible types are taken for compatible", "E2")
def all_types_fit(backend: Any) -> None:
    def migration(original: Any, stored: Any, fresh: Any) -> Any:
        try:
            return original(stored, fresh)
        except MillpondError:
            return None

    around(backend, "_migration", migration)


@mutant("rows that cannot be migrated are dropped", "E3")
def unmigratable_rows_go(backend: Any) -> None:
    def rows(original: Any, name: str, migrate: Any) -> None:
        def careless(data: bytes) -> bytes | None:
            try:
                return migrate(data)
            except MillpondError:
                return None

        original(name, careless)

    around(backend, "migrate_rows", rows)


@mutant("map keys may change their type", "E4")
def map_keys_change(backend: Any) -> None:
    all_types_fit(backend)


@mutant("TTL switched on or off is not noticed", "E5 E6")
def ttl_switch_unnoticed(backend: Any) -> None:
    def migration(original: Any, stored: Any, fresh: Any) -> Any:
        return None if stored.ttl != fresh.meta.ttl else original(stored, fresh)

    around(backend, "_migration", migration)


@mutant("every read renews a value", "T2")
def reads_renew(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        if state is not raw:
            state._touch_on_read = True

    on_states(backend, change, "value")


@mutant("expired values are returned for ever", "T3")
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


@mutant("a merge takes expired accumulators", "T7")
def expired_are_merged(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def combine(a: Any, b: Any) -> Any:
            return (max(a[0], b[0]), a[1]) if isinstance(a, tuple) else max(a, b)

        raw._combine = combine

    on_states(backend, change, "reducing")


@mutant("a restore stamps everything anew", "T8")
def restored_anew(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        meta = backend.restored.get(name)
        if meta is not None and meta.ttl:
            rows = [(key, (5).to_bytes(8, "big") + value[8:]) for key, value in rows]
        original(name, rows)

    around(backend, "load_rows", load)


@mutant("a switched-off clean-up sweeps all the same", "C4")
def sweeps_anyway(backend: Any) -> None:
    def plan(original: Any, fresh: Any) -> None:
        from millpond import CleanupStrategies
        from millpond.backend.cleanup import Sweep

        original(fresh)
        if fresh.meta.ttl:
            table = backend._tables[fresh.meta.name]
            backend._sweeps[fresh.meta.name] = Sweep(
                fresh.meta, CleanupStrategies(), 0, table.sweep
            )

    around(backend, "_plan_cleanup", plan)


@mutant("each flush begins a pass anew", "C6")
def restless_sweeps(backend: Any) -> None:
    def remove(original: Any) -> None:
        for sweep in backend._sweeps.values():
            sweep._next = 0
        original()

    around(backend, "remove_expired", remove)


@mutant("full snapshots hold expired entries", "C7")
def expired_in_snapshots(backend: Any) -> None:
    def freeze(original: Any) -> Any:
        view = original()
        view.live_rows = view.rows
        return view

    around(backend, "freeze", freeze)


@mutant("what the sweep removes is not in the deltas", "C8")
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


@mutant("timers that are set while others fire wait for the next time", "M3")
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
        "_count_entries",
        lambda original: original() + sum(len(q._rows._rows) for _, q in backend._timers.values()),
    )


@mutant("any timestamp is taken", "M7")
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


@mutant("event-time timers fire never", "M8 M9")
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


# ------------------------------------------------------------------ the matrix


@attrs.frozen
class Kill:
    """What has become of one mutant."""

    name: str
    wrong: str
    killed_by: tuple[str, ...]


def judge(name: str, *, everything: bool) -> Kill:
    """Run the kit against a mutant: the clauses that should catch it, or all."""
    from millpond_conformance import Verdict, run
    from millpond_conformance.specification import all_clauses

    chosen = GALLERY[name]
    # Generated programs catch most of them, but shrink each failure first, which takes its time.
    wanted = [c.number for c in all_clauses() if c.number[0] != "G"] if everything else []
    report = run(f"sabotage:m_{name}", "quick", sorted({*wanted, *chosen.clauses}))
    bad = (Verdict.FAIL, Verdict.ERROR)
    caught = tuple(result.number for result in report.results if result.verdict in bad)
    return Kill(name, chosen.wrong, caught)


def markdown(kills: list[Kill]) -> str:
    """The matrix as a page."""
    from millpond_conformance.specification import all_clauses

    caught = {number for kill in kills for number in kill.killed_by}
    without = [clause.number for clause in all_clauses() if clause.number not in caught]
    dead = sum(bool(kill.killed_by) for kill in kills)
    lines = [
        "# The kit under sabotage",
        "",
        "`tests/sabotage.py` spoils the heap backend in one way after the other and runs the kit",
        f"against each. **{dead} of {len(kills)} are caught**; {len(caught)} of",
        f"{len(all_clauses())} clauses have caught at least one.",
        "",
        "| what is wrong | caught by |",
        "|---|---|",
        *(f"| {kill.wrong} | {', '.join(kill.killed_by) or '**nothing**'} |" for kill in kills),
        "",
        f"Clauses that have caught none yet: {', '.join(without) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Judge the named mutants, or all; status 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all-clauses", action="store_true")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    kills = []
    for name in given.names or GALLERY:
        try:
            kills.append(judge(name, everything=given.all_clauses))
        except MillpondError as error:
            sys.stderr.write(f"{name}: {error}\n")
            return 2
        sys.stdout.write(json.dumps(attrs.asdict(kills[-1])) + "\n")
        sys.stdout.flush()
    if given.markdown is not None:
        given.markdown.write_text(markdown(kills), encoding="utf-8")
    return 0 if all(kill.killed_by for kill in kills) else 1


if __name__ == "__main__":
    sys.modules["sabotage"] = sys.modules["__main__"]
    sys.exit(main())
