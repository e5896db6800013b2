"""Mutants that lose changes when an operation fails."""

from __future__ import annotations

from typing import Any

import attrs
from millpond.spi.byte_store import named

from conformance.research.mutants.sabotage_tools import around, mutant


@mutant("a failed flush forgets its changes", "D1")
def forgetful_flushes(backend: Any) -> None:
    def created(original: Any, *arguments: Any) -> Any:
        table = original(*arguments)

        def changes(plain: Any) -> Any:
            try:
                return plain()
            except Exception:
                table.flushed()
                raise

        around(table, "changes", changes)
        return table

    around(backend, "create_table", created)


@mutant("a backend continues after a listener missed changes", "D2")
def deaf_listeners(backend: Any) -> None:
    backend.fail = lambda cause: None


@mutant("a snapshot that never began is confirmed", "D3")
def confirmed_anyhow(backend: Any) -> None:
    def complete(original: Any, number: int) -> None:
        original(number)
        for strategy in backend.strategies():
            if strategy.name == "changelog" and number not in strategy._running:
                del strategy._log[: len(strategy._log)]

    around(backend, "notify_checkpoint_complete", complete)


@mutant("rows are claimed by a request that fails", "D4")
def claimed_too_soon(backend: Any) -> None:
    def made(original: Any, fresh: Any) -> None:
        try:
            original(fresh)
        except Exception:
            backend._unclaimed.pop(fresh.meta.name, None)
            raise

    around(backend.states, "_make", made)


@mutant("a failed request migrates again", "D5")
def migrated_twice(backend: Any) -> None:
    def migrate(original: Any, fresh: Any) -> None:
        before = dict(backend.restored)
        original(fresh)
        backend.restored.update(before)

    around(backend.states, "_migrate_restored", migrate)


@mutant("work continues after a full disk stopped a migration half-way", "D9")
def migrated_and_refused(backend: Any) -> None:
    directory = backend.parameters.directory

    def migrate(original: Any, state_name: str, cell: Any) -> None:
        original(state_name, cell)
        with named("heap", directory):
            (directory / "migrated").write_bytes(bytes(1 << 20))

    around(backend, "migrate_rows", migrate)


@mutant("a migration changes rows that a snapshot reads", "A11")
def migrated_in_place(backend: Any) -> None:
    def migrate(state_name: str, cell: Any) -> None:
        changes = []
        for rows in backend._unclaimed.get(state_name, {}).values():
            for key, value in rows.items():
                rows[key] = cell(value)
                changes.append((key, rows[key]))
        backend.version = None
        backend.report({state_name: changes})

    backend.migrate_rows = migrate


@mutant("a confirmation deletes the base of a running snapshot", "A12")
def bases_go(backend: Any) -> None:
    def complete(original: Any, number: int) -> None:
        for strategy in backend.strategies():
            for at, running in strategy._running.items():
                strategy._running[at] = attrs.evolve(running, base=None)
        original(number)

    around(backend, "notify_checkpoint_complete", complete)
