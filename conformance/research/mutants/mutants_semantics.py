"""Mutants that share values with callers or confuse keys, and show entries that should be hidden."""

from __future__ import annotations

import functools
from typing import Any

from conformance.research.mutants.sabotage_tools import around, mutant, on_states


@mutant("a merge hands its functions the stored objects", "K16 A10")
def shared_accumulators(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def combine(stored: list[Any]) -> Any:
            return raw._check(functools.reduce(raw._merge_two, stored))

        def shared(original: Any) -> Any:
            found = raw._table.get(raw._namespace)
            return None if found is None else raw._result(found)

        raw._combine = combine
        around(raw, "get", shared)

    on_states(backend, change, "reducing", "aggregating")


@mutant("a merge removes the sources before its functions run", "K17")
def removed_too_soon(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def combine(original: Any, stored: list[Any]) -> Any:
            for space in ("one", "two"):
                raw._table.remove(raw._prepare(space))
            return original(stored)

        around(raw, "_combine", combine)

    on_states(backend, change, "reducing", "aggregating")


@mutant("a merge keeps the first stamp", "T13")
def first_stamps(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def combine(original: Any, stored: list[Any]) -> Any:
            merged = original(stored)
            return (merged[0], stored[0][1]) if raw._expires and merged is not None else merged

        around(raw, "_combine", combine)

    on_states(backend, change, "reducing", "aggregating")


@mutant("an iteration follows the current key", "K18 T14")
def wandering_iterations(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def items() -> Any:
            yield from raw._table.items_at(raw._table.place(raw._namespace))

        class Walk:
            put, remove = raw.put, raw.remove

            def __iter__(self) -> Any:
                return items()

        raw.items, raw.walk = items, Walk

    on_states(backend, change, "map")


@mutant("an iteration goes through the map that a snapshot reads", "K19")
def frozen_iterations(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def items(place: Any) -> Any:
            entries = raw._table._map_at(place)
            return ((key, entries[key]) for key in list(entries) if key in entries)

        raw._table.items_at = items

    on_states(backend, change, "map")


@mutant("an iteration yields the entries from its start only", "K19 K20")
def stale_iterations(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw._table, "items_at", lambda original, place: iter(list(original(place))))

    on_states(backend, change, "map")


@mutant("an iteration yields an entry twice if another one is put during it", "K24")
def repeating_iterations(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def items_at(original: Any, place: Any) -> Any:
            for key, value in original(place):
                entries = len(raw._table._map_at(place))
                yield key, value
                if len(raw._table._map_at(place)) > entries:
                    yield key, value

        around(raw._table, "items_at", items_at)

    on_states(backend, change, "map")


@mutant("an add starts from empty although reads return expired values", "T11 G3")
def adds_begin_anew(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        def add(original: Any, value: Any) -> None:
            stamped = raw.get_internal()
            if state is not raw and stamped is not None and state._expired(stamped):
                raw.clear()
            original(value)

        around(raw, "add", add)

    on_states(backend, change, "reducing", "aggregating", "folding")


@mutant("a map is called empty while its iteration gives entries", "T12")
def empty_with_entries(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        if state is not raw:
            state.is_empty = lambda: all(state._expired(each) for _, each in raw.items())

    on_states(backend, change, "map")


@mutant("an explicit clean-up goes with the background's", "C9")
def only_in_background(backend: Any) -> None:
    def plan(original: Any, fresh: Any) -> None:
        original(fresh)
        ttl = fresh.descriptor.ttl_config
        if ttl is not None and not ttl.cleanup.in_background:
            backend.sweeper._sweeps.pop(fresh.meta.name, None)

    around(backend.states, "_plan_cleanup", plan)


@mutant("only requested states are enumerated", "S15")
def unrequested_is_hidden(backend: Any) -> None:
    def pairs(original: Any, name: str) -> Any:
        return original(name) if name in backend.states._registered else iter(())

    around(backend, "keys_and_namespaces", pairs)


@mutant("a map that a delta has grown is listed twice until it is requested", "S15")
def listed_twice(backend: Any) -> None:
    def addresses(original: Any, name: str, namespaces: Any) -> Any:
        if name in backend.states.tables:
            return original(name, namespaces)
        groups = backend._unclaimed.get(name, {}).values()
        rows = (row for group in groups for row in list(group))
        return backend.current.layout.addresses(rows, backend.key_codec, namespaces)

    around(backend, "addresses", addresses)
