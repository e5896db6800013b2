"""Mutants that lose facts that only one of several snapshots, key groups, calls or key parts contains."""

from __future__ import annotations

from typing import Any

from millpond.snapshots.strategies import ChangelogStrategy
from millpond.spi.tables import TIMESTAMP_BYTES

from conformance.research.mutants.sabotage_tools import (
    around,
    mutant,
    on_states,
    on_strategies,
    on_tables,
)


@mutant("requesting a restored state removes it from a running snapshot", "A17")
def claimed_rows_go(backend: Any) -> None:
    def created(original: Any, registered: Any) -> None:
        waiting = list(backend._unclaimed.get(registered.meta.name, {}).values())
        original(registered)
        for rows in waiting:
            rows.clear()

    around(backend, "table_created", created)


class _Latest(ChangelogStrategy):
    """Strategy that builds on the last confirmed snapshot, even if it is older than an earlier confirmed one."""

    def notify_complete(self, checkpoint_id: int) -> None:
        """Keep the earlier snapshots for later confirmations."""
        before = dict(self._running)
        super().notify_complete(checkpoint_id)
        before.pop(checkpoint_id, None)
        self._running = before


@mutant("snapshots build on an older one that was confirmed later", "A16")
def late_confirmations_count(backend: Any) -> None:
    def change(strategy: Any) -> None:
        if strategy.name == "changelog":
            strategy.__class__ = _Latest

    on_strategies(backend, change)


@mutant("operator state of the same size counts as unchanged", "O5")
def operator_state_by_size(backend: Any) -> None:
    sizes: dict[str, int] = {}

    def written(strategy: Any, original: Any, bundle: Any, blank: Any, before: Any) -> Any:
        size = blank.operator_state_bytes
        last, sizes[strategy.name] = sizes.get(strategy.name), size
        if before is None or not before.operator_state or size != last:
            return original(bundle, blank, before)
        return before.operator_state

    def change(strategy: Any) -> None:
        if "_written_operator_state" not in vars(strategy):
            around(
                strategy,
                "_written_operator_state",
                lambda original, *given: written(strategy, original, *given),
            )

    on_strategies(backend, change)


@mutant("a restore of several snapshots takes only the states of the first one", "S25")
def states_of_the_first(backend: Any) -> None:
    known: list[str] = []

    def expect(original: Any, names: Any) -> None:
        named = list(names)
        original(named)
        known[:] = known or named

    def load(original: Any, name: str, rows: Any) -> None:
        if not known or name in known:
            original(name, rows)

    around(backend, "expect_states", expect)
    around(backend, "load_rows", load)


@mutant("a restore of more than 256 key groups omits the 256th", "S26")
def group_255_lost(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        original(
            name, [row for row in rows if backend.max_parallelism <= 256 or row[0][:2] != b"\0\xff"]
        )

    around(backend, "load_rows", load)


@mutant("values() of a map returns the stored objects", "V27")
def values_are_shared(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        table = raw._table
        state.values = lambda: (v for _, v in table.items_at(table.place(raw._namespace)))

    on_states(backend, change, "map")


@mutant("a value larger than the buffer does not replace another", "V28")
def large_values_stay_away(backend: Any) -> None:
    room = backend.parameters.config.buffer.max_bytes

    def change(table: Any) -> None:
        def put(original: Any, namespace: Any, *entry: Any) -> None:
            large = isinstance(entry[-1], bytes) and len(entry[-1]) > room
            if not (large and table._stored_object(namespace, *entry[:-1]) is not None):
                original(namespace, *entry)

        around(table, "put", put)

    on_tables(backend, change)


@mutant("a timer of a key that begins with ff is late", "M13")
def high_keys_late(backend: Any) -> None:
    start = backend.current.layout.group_bytes

    def rows(original: Any, name: str) -> Any:
        made = original(name)

        def until(of_rows: Any, timestamp: int) -> list[bytes]:
            before = set(of_rows(timestamp - 1))
            found = of_rows(timestamp)
            at = start + TIMESTAMP_BYTES
            return [row for row in found if row in before or row[at : at + 1] != b"\xff"]

        around(made, "until", until)
        return made

    around(backend, "create_timer_rows", rows)


@mutant("the clean-up uses the TTL of the first declaration", "C12")
def first_ttl_counts(backend: Any) -> None:
    planned = set()

    def plan(original: Any, meta: Any, *given: Any, **named: Any) -> None:
        if meta.name not in planned:
            original(meta, *given, **named)
        planned.add(meta.name)

    around(backend.sweeper, "plan", plan)
