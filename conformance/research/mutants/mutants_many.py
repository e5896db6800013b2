"""Mutants that are wrong with bulk calls."""

from __future__ import annotations

from typing import Any

from conformance.research.mutants.sabotage_tools import around, mutant, on_tables


@mutant("reads of many keys come in another order", "B1 B5")
def many_reads_reversed(backend: Any) -> None:
    def change(table: Any) -> None:
        if hasattr(table, "get_many"):
            around(table, "get_many", lambda original, space, keys: original(space, keys)[::-1])

    on_tables(backend, change)


@mutant("a null in a bulk write writes nothing", "B2 B5")
def null_stops_many(backend: Any) -> None:
    def change(table: Any) -> None:
        def put_many(original: Any, namespace: Any, keys: Any, values: Any) -> None:
            if None not in values:
                original(namespace, keys, values)

        if hasattr(table, "put_many"):
            around(table, "put_many", put_many)

    on_tables(backend, change)


@mutant("a bulk write with an invalid value writes the values before it", "B3")
def half_of_many(backend: Any) -> None:
    def make(original: Any, registered: Any) -> Any:
        state = original(registered)
        keys = state._many_keys

        def checked(check: Any, values: Any, chosen: Any) -> Any:
            for index, value in enumerate(values):
                one = chosen.only([index])
                state.write_many(one, check([value], one))
            return check(values, chosen)

        around(keys, "checked", checked)
        return state

    around(backend, "make_state", make)


@mutant("a bulk add with a known function keeps the last value", "B4")
def last_contribution(backend: Any) -> None:
    def make(original: Any, registered: Any) -> Any:
        state = original(registered)
        keys = state._many_keys

        def contributions(original: Any, chosen: Any, values: Any, positions: Any) -> Any:
            if positions is None or keys._function is None:
                return original(chosen, values, positions)
            held = dict(zip(positions, values, strict=True))
            return chosen.only(list(held)), list(held.values())

        around(keys, "contributions", contributions)
        return state

    around(backend, "make_state", make)
