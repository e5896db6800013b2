"""Mutants that are wrong with growing lists."""

from __future__ import annotations

from typing import Any

from millpond.spi.portable_rows import APPENDED, join_cells, split_cells

from conformance.research.mutants.sabotage_tools import around, mutant, on_states, on_tables


def _appends(value: bytes | None) -> bool:
    return value is not None and value.startswith(APPENDED)


@mutant("appended elements are lost in a restore", "S17 S18")
def appends_are_not_restored(backend: Any) -> None:
    def load(original: Any, name: str, rows: Any) -> None:
        original(name, [row for row in rows if not _appends(row[1])])

    around(backend, "load_rows", load)


@mutant("a delta of an append holds the whole list", "S17")
def deltas_of_whole_lists(backend: Any) -> None:
    def change(table: Any) -> None:
        if getattr(table, "_listed", False):

            def append(namespace: Any, values: Any) -> None:
                table.put(namespace, [*(table.get(namespace) or ()), *values])

            table.append = append

    on_tables(backend, change)


@mutant("elements that are appended together come in reverse", "K21")
def reversed_appends(backend: Any) -> None:
    on_tables(
        backend,
        lambda table: (
            around(table, "append", lambda add, space, values: add(space, values[::-1]))
            if hasattr(table, "append")
            else None
        ),
    )


@mutant("a list updated to empty is kept", "K22")
def update_to_nothing_does_nothing(backend: Any) -> None:
    def change(_: Any, raw: Any) -> None:
        around(raw, "update", lambda original, values: original(values) if values else None)

    on_states(backend, change, "list")


@mutant("merging lists omits the last source", "K23")
def last_source_is_forgotten(backend: Any) -> None:
    def change(_: Any, raw: Any) -> None:
        def merge(original: Any, target: Any, sources: Any) -> None:
            original(target, list(sources)[:-1])

        around(raw, "merge_namespaces", merge)

    on_states(backend, change, "list")


@mutant("full snapshots hold eight elements of a list", "S19")
def snapshots_cut_lists(backend: Any) -> None:
    def cut(name: str, rows: Any) -> Any:
        if name != "items":
            return name, rows
        return name, [(key, join_cells(list(split_cells(value))[:8])) for key, value in rows]

    def freeze(original: Any) -> Any:
        view = original()
        around(view, "rows", lambda rows, group: (cut(*each) for each in rows(group)))
        return view

    around(backend, "freeze", freeze)


@mutant("lists are not cleaned up", "C10")
def lists_are_not_swept(backend: Any) -> None:
    def change(table: Any) -> None:
        if getattr(table, "_listed", False):
            table.sweep = lambda _limit, _expiry: (0, 0, True)

    on_tables(backend, change)
