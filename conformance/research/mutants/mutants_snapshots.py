"""Mutants that are wrong with snapshots, restores, savepoints and changed types."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import attrs
from millpond.backend import KeyedStateBackend
from millpond.errors import MillpondError
from millpond.keygroups import KeyGroupRange
from millpond.snapshots.snapshot_task import SnapshotTask

from conformance.research.mutants.sabotage_tools import around, mutant, on_strategies, on_tables


@mutant("a restore keeps only half of the key groups", "S1 S4 S10 S13 S14")
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


@mutant("snapshots build on unconfirmed ones", "S3")
def unconfirmed_bases(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        future = original(number, storage, version)
        future.result()
        KeyedStateBackend.notify_checkpoint_complete(backend, number)
        return future

    around(backend, "snapshot", snapshot)


@mutant("restored states that are not requested are missing in the next snapshot", "S7")
def unrequested_is_lost(backend: Any) -> None:
    around(
        backend,
        "state_metas",
        lambda original: [m for m in original() if m.name in backend.states._registered],
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
    backend.states._migration = lambda stored, fresh: None


@mutant("a snapshot contains later writes", "A1")
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


@mutant("a savepoint serves as the base of deltas", "P3")
def savepoint_as_base(backend: Any) -> None:
    def savepoint(original: Any, number: int, storage: Any) -> Any:
        future = original(number, storage)
        future.result()
        for strategy in backend._strategies:
            strategy.start(strategy.confirmed)
        return future

    around(backend, "savepoint", savepoint)


@mutant("a savepoint is restored without a check of its key groups", "P4")
def foreign_groups_restored(backend: Any) -> None:
    whole = KeyGroupRange(0, backend.max_parallelism - 1)
    if len(backend.key_group_range) < len(whole):
        backend.key_group_range = KeyGroupRange(
            max(0, backend.key_group_range.start - 1), backend.key_group_range.end
        )


@mutant("a type change migrates no rows", "E1")
def no_migration(backend: Any) -> None:
    backend.migrate_rows = lambda name, migrate: None


def _first_entries_alone(backend: Any, method: str) -> None:
    """Make a method change only the first 1,024 entries of a state."""

    def rows(original: Any, name: str, change: Any) -> None:
        done = 0

        def first(data: bytes) -> bytes:
            nonlocal done
            done += 1
            return change(data) if done <= 1024 else data

        original(name, first)

    around(backend, method, rows)


@mutant("a type change migrates only a state's first 1,024 entries", "E8")
def part_migrated(backend: Any) -> None:
    _first_entries_alone(backend, "migrate_rows")


@mutant("longer map keys are migrated only in a state's first 1,024 entries", "E9")
def part_readdressed(backend: Any) -> None:
    _first_entries_alone(backend, "readdress_rows")


@mutant("longer namespaces and map keys are not migrated", "E7")
def no_readdressing(backend: Any) -> None:
    backend.readdress_rows = lambda name, change: None


@mutant("an empty snapshot has a handle", "S5")
def handle_of_nothing(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        from millpond import ValueStateDescriptor

        backend.get_partitioned_state(ValueStateDescriptor("phantom", int))
        return original(number, storage, version)

    around(backend, "snapshot", snapshot)


@mutant("each flush drops one entry", "S9")
def leaky_flushes(backend: Any) -> None:
    def flush(original: Any, version: Any = None) -> None:
        for table in backend.states.tables.values():
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


@mutant("outdated files are kept in spite of the retention", "A6")
def no_retention(backend: Any) -> None:
    def change(strategy: Any) -> None:
        strategy._drop_outdated = lambda: None

    on_strategies(backend, change)


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


@mutant("incompatible types pass as compatible", "E2")
def all_types_fit(backend: Any) -> None:
    def migration(original: Any, stored: Any, fresh: Any) -> Any:
        try:
            return original(stored, fresh)
        except MillpondError:
            return None

    around(backend.states, "_migration", migration)


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
    def change(original: Any, stored: Any, fresh: Any) -> Any:
        try:
            return original(stored, fresh)
        except MillpondError:
            return None

    around(backend.states, "_address_change", change)


@mutant("TTL switched on or off is not noticed", "E5 E6")
def ttl_switch_unnoticed(backend: Any) -> None:
    def migration(original: Any, stored: Any, fresh: Any) -> Any:
        return None if stored.ttl != fresh.meta.ttl else original(stored, fresh)

    around(backend.states, "_migration", migration)


_NEWEST: dict[str, list[Any]] = {}


@mutant("a restore prefers the newest rows of the process", "S11")
def newest_wins(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        known = _NEWEST.get(name, [])
        mine = list(rows)
        _NEWEST[name] = mine if len(mine) > len(known) else known
        original(name, _NEWEST[name])

    around(backend, "load_rows", load)


@mutant("a handle does not name its files", "S12")
def nameless_files(backend: Any) -> None:
    def snapshot(original: Any, number: int, storage: Any, version: Any = None) -> Any:
        done = original(number, storage, version)
        result = done.result()
        task = SnapshotTask()
        task.set_result(attrs.evolve(result, handle=attrs.evolve(result.handle, files=())))
        return task

    around(backend, "snapshot", snapshot)


@mutant("a claim is ignored", "F8")
def deaf_to_claims(backend: Any) -> None:
    def change(strategy: Any) -> None:
        if "start" not in vars(strategy):
            around(strategy, "start", lambda original, restored: original(None))

    on_strategies(backend, change)


@mutant("a restore decodes pickled values", "R22")
def curious_restores(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        found = list(rows)
        for _, value in found:
            with contextlib.suppress(Exception):
                pickle.loads(value[value.find(b"\x80") :])
        original(name, found)

    around(backend, "load_rows", load)


@mutant("restored bytes are trusted like its own", "S16")
def trusted_bytes(backend: Any) -> None:
    backend.expect_outside_bytes = lambda: None


@mutant("a snapshot names at most sixteen deltas", "S20")
def short_chains(backend: Any) -> None:
    def change(strategy: Any) -> None:
        def with_files(original: Any, blank: Any, before: Any, files: Any, *rest: Any) -> Any:
            return original(blank, before, (*files[:1], *files[1:][-16:]), *rest)

        if strategy.name == "changelog" and "with_files" not in vars(strategy):
            around(strategy, "with_files", with_files)

    on_strategies(backend, change)
