"""Mutants that are wrong with values, keys and kinds of state."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from millpond.errors import NoCurrentKeyError
from millpond.types import VOID_NAMESPACE

from conformance.research.mutants.sabotage_tools import (
    around,
    mutant,
    on_chosen_key,
    on_states,
    on_tables,
)


@mutant("all keys are one", "V1 G1")
def one_key_for_all(backend: Any) -> None:
    def choose(original: Any, key: Any, group: int) -> None:
        original("k", group)
        backend.current.key_group = 0

    on_chosen_key(backend, choose)


@mutant("flushed entries are lost", "V2 S1")
def flush_loses_everything(backend: Any) -> None:
    def flush(original: Any, version: Any = None) -> None:
        original(version)
        for table in backend.states.tables.values():
            if hasattr(table, "_release_held"):
                table._release_held()
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


@mutant("values of any type are accepted", "V6")
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


@mutant("without a key only the first write is refused", "V7")
def refused_once(backend: Any) -> None:
    def change(table: Any) -> None:
        refused = False

        def put(original: Any, *entry: Any) -> None:
            nonlocal refused
            try:
                original(*entry)
            except NoCurrentKeyError:
                if not refused:
                    refused = True
                    raise

        around(table, "put", put)

    on_tables(backend, change)


@mutant("keys of other subtasks are accepted", "V8")
def foreign_key_groups(backend: Any) -> None:
    around(
        backend.current,
        "select",
        lambda original, key, group: original(
            key, group if group in backend.key_group_range else backend.key_group_range.start
        ),
    )


@mutant("keys are listed twice", "V9")
def keys_twice(backend: Any) -> None:
    def keys(original: Any, registered: Any) -> Iterator[Any]:
        yield from original(registered)
        yield from original(registered)

    around(backend, "addresses", keys)


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
    on_chosen_key(backend, lambda original, key, group: original(key[:64], group))


@mutant("ints go through a float", "V13")
def inexact_ints(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda o, v: o(int(float(v)) if type(v) is int else v))

    on_states(backend, change, "value")


@mutant("a closed backend accepts calls", "V14")
def works_when_closed(backend: Any) -> None:
    def close(original: Any) -> None:
        original()
        backend.current.closed = False

    around(backend, "close", close)


@mutant("lists come in reverse", "K1")
def reversed_lists(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "get", lambda original: original()[::-1])

    on_states(backend, change, "list")


@mutant("add_all adds the elements before a None", "K2")
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


@mutant("a None in a map counts as missing", "K5")
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
        def same(original: Any, namespace: Any) -> Any:
            return original(namespace) and "same"

        around(raw, "_prepare", same)
        around(raw._prepared, "_prepare", same)

    on_states(backend, change)


@mutant("merged sources are not removed", "K14")
def sources_stay(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        raw._table.remove = lambda namespace: None

    on_states(backend, change, "list", "reducing", "aggregating")


@mutant("one name can be used for two kinds of state", "K15")
def two_kinds(backend: Any) -> None:
    backend.states._check_redeclared = lambda known, fresh: None


@mutant("a key is listed once for each of its map entries", "K4")
def key_per_map_entry(backend: Any) -> None:
    def keys(original: Any, registered: Any) -> Iterator[Any]:
        for key, namespace in original(registered):
            yield key, namespace
            if registered.map_key_codec is not None:
                yield key, namespace

    around(backend, "addresses", keys)


@mutant("values above a megabyte are cut", "V12")
def cut_values(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "update", lambda o, v: o(v[: 1 << 20] if isinstance(v, (bytes, str)) else v))

    on_states(backend, change, "value")


@mutant("negative keys lose their sign", "V15")
def unsigned_keys(backend: Any) -> None:
    def select(original: Any, key: Any, group: int) -> None:
        original(abs(key) if type(key) is int else key, group)

    backend.current.prepares = True
    around(backend.current, "select", select)


@mutant("falsy values count as missing", "V16")
def false_is_nothing(backend: Any) -> None:
    on_states(
        backend,
        lambda _, raw: around(raw, "update", lambda original, value: original(value or None)),
        "value",
    )


@mutant("an enum that is an int comes back as the int", "V17")
def enums_as_ints(backend: Any) -> None:
    def plain(original: Any) -> Any:
        value = original()
        return int(value) if isinstance(value, enum.IntEnum) else value

    on_states(backend, lambda state, raw: around(raw, "value", plain), "value")


@mutant("keys that Python calls equal are one", "V18")
def keys_by_equality(backend: Any) -> None:
    def change(table: Any) -> None:
        seen: dict[Any, Any] = {}
        if hasattr(table, "prepare_key"):
            around(table, "prepare_key", lambda o, key: o(seen.setdefault(key, key)))

    on_tables(backend, change)


@mutant("the results of a user's serializer are stored unchecked", "V30")
def unchecked_bytes(backend: Any) -> None:
    def change(table: Any) -> None:
        table._serializer = getattr(table._serializer, "_given", table._serializer)

    on_tables(backend, change)


@mutant("a merge takes at most three non-empty namespaces", "G4")
def merges_take_three(backend: Any) -> None:
    def change(state: Any, raw: Any) -> None:
        around(raw, "_combine", lambda original, held: original(held[:3]))

    on_states(backend, change, "list")
