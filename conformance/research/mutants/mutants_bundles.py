"""Mutants that are wrong if changes, snapshots and calls come in an unusual order or are repeated."""

from __future__ import annotations

import zlib
from typing import Any

import attrs
from millpond.errors import StoreFullError

from conformance.research.mutants.sabotage_tools import around, mutant, on_strategies, on_tables

_PAST: dict[tuple[Any, ...], Any] = {}


@mutant("the end of one running snapshot exposes the others to later writes", "A14")
def first_release_thaws(backend: Any) -> None:
    def release(original: Any, view: Any) -> None:
        backend._live.clear()
        original(view)

    around(backend, "_release", release)


@mutant("a running snapshot protects only 64 states from later writes", "A15")
def sixty_four_are_shielded(backend: Any) -> None:
    def freeze(original: Any) -> Any:
        view = original()
        for table in list(backend.states.tables.values())[64:]:
            table.thaw()
        return view

    around(backend, "freeze", freeze)


@mutant("a snapshot holds a reader until its confirmation", "R19")
def readers_run_out(backend: Any) -> None:
    taken = []

    def freeze(original: Any) -> Any:
        if len(taken) == 126:
            raise StoreFullError("heap", "", "all 126 readers are taken")
        taken.append(1)
        return original()

    def confirmed(original: Any, number: int) -> None:
        taken.clear()
        original(number)

    around(backend, "freeze", freeze)
    around(backend, "notify_checkpoint_complete", confirmed)


@mutant("a delta with a replacement and appends holds the appends only", "S21")
def appends_hide_updates(backend: Any) -> None:
    def change(table: Any) -> None:
        def append(original: Any, namespace: Any, values: list[Any]) -> None:
            original(namespace, values)
            current = table.current
            noted = table._changes_of(current.key_group, namespace)
            grown = table.get(namespace) is not values
            if noted is not None and noted[current.address] is None and grown:
                noted[current.address] = len(values)

        if hasattr(table, "append"):
            around(table, "append", append)

    on_tables(backend, change)


@mutant("the next delta builds on an aborted snapshot", "S22 A5")
def aborted_bases(backend: Any) -> None:
    def change(strategy: Any) -> None:
        if strategy.name != "changelog" or hasattr(strategy, "_spoiled"):
            return
        strategy._spoiled = True

        def aborted(original: Any, number: int) -> None:
            running = strategy._running.get(number)
            original(number)
            if running is not None and strategy.confirmed is not None:
                strategy.confirmed = running.task.result().handle

        around(strategy, "notify_aborted", aborted)

    on_strategies(backend, change)


@mutant("the first delta after a claim builds on the base without its deltas", "S23")
def claims_the_base(backend: Any) -> None:
    def change(strategy: Any) -> None:
        def start(original: Any, restored: Any) -> None:
            if restored is not None:
                restored = attrs.evolve(restored, files=restored.files[:1])
            original(restored)

        if strategy.name == "changelog":
            around(strategy, "start", start)

    on_strategies(backend, change)


@mutant("catching up does not remove entries of a state in use", "S24")
def catching_up_removes_nothing(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        used = name in backend.states.tables
        original(name, [row for row in rows if row[1] is not None] if used else rows)

    around(backend, "load_rows", load)


@mutant("a timer set and deleted in one bundle is kept", "M11")
def timers_cancelled_out(backend: Any) -> None:
    def make(original: Any, name: str) -> Any:
        rows, added = original(name), set()

        def add(original: Any, row: bytes) -> None:
            added.add(row)
            original(row)

        def discard(original: Any, row: bytes) -> None:
            if row in added and row in rows._rows:
                added.discard(row)
            else:
                original(row)

        around(rows, "add", add)
        around(rows, "discard", discard)
        return rows

    around(backend, "create_timer_rows", make)


@mutant("a clean-up that removes an entry changes the current key", "C11")
def sweeps_move_the_key(backend: Any) -> None:
    def change(table: Any) -> None:
        def sweep(original: Any, limit: int, expiry: Any) -> Any:
            found = original(limit, expiry)
            last = list(table._all_places())[-1:] if found[1] else []
            for group, _, key, *_ in last:
                table.current.set_place(group, key)
            return found

        around(table, "sweep", sweep)

    on_tables(backend, change)


@mutant("bulk writes are missing in deltas", "B6")
def many_values_unnoted(backend: Any) -> None:
    def change(table: Any) -> None:
        def put_many(original: Any, namespace: Any, keys: Any, values: Any) -> None:
            known = table.changed
            before = None if known is None else {place: dict(each) for place, each in known.items()}
            original(namespace, keys, values)
            table.changed = before

        if hasattr(table, "put_many"):
            around(table, "put_many", put_many)

    on_tables(backend, change)


@mutant("a bulk read returns at most 2,000 keys", "B7")
def two_thousand_are_read(backend: Any) -> None:
    def change(table: Any) -> None:
        def get_many(original: Any, namespace: Any, keys: Any) -> Any:
            found = original(namespace, keys)
            return found[:2000] + [None] * len(found[2000:])

        if hasattr(table, "get_many"):
            around(table, "get_many", get_many)

    on_tables(backend, change)


@mutant("bytes with a compression header are decompressed", "V24")
def takes_bytes_for_compressed(backend: Any) -> None:
    def change(table: Any) -> None:
        def get(original: Any, *address: Any) -> Any:
            found = original(*address)
            compressed = isinstance(found, bytes) and found[:2] == b"\x78\x9c"
            return zlib.decompress(found) if compressed else found

        around(table, "get", get)

    on_tables(backend, change)


@mutant("a missing value is read from the directory's previous owner", "R20")
def past_owners_values(backend: Any) -> None:
    place = str(backend.parameters.directory)

    def make(original: Any, registered: Any) -> Any:
        table = original(registered)

        def get(original: Any, *address: Any) -> Any:
            at = (place, registered.meta.name, table.current.address, *address)
            found = original(*address)
            return _PAST.get(at) if found is None else _PAST.setdefault(at, found)

        if registered.map_key_codec is None:
            around(table, "get", get)
        return table

    around(backend, "create_table", make)


@mutant("a value equal to the previous one is not written", "V25")
def equals_are_skipped(backend: Any) -> None:
    def change(table: Any) -> None:
        def put(original: Any, *given: Any) -> None:
            *address, value = given
            if table.get(*address) != value:
                original(*given)

        around(table, "put", put)

    on_tables(backend, change)


@mutant("state names are cut to 100 letters", "V26")
def cut_names(backend: Any) -> None:
    known: dict[str, Any] = {}

    def make(original: Any, registered: Any) -> Any:
        return known.setdefault(registered.meta.name[:100], original(registered))

    around(backend, "create_table", make)


@mutant("no timer is due at the largest time", "M12")
def never_at_the_end(backend: Any) -> None:
    def queue(original: Any, *given: Any) -> Any:
        found = original(*given)
        if not hasattr(found, "_spoiled"):
            found._spoiled = True
            around(found, "due", lambda due, until: due(min(until, (1 << 63) - 2)))
        return found

    around(backend, "timer_queue", queue)
