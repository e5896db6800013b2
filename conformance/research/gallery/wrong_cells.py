"""First gallery: mistakes with values, lists, merges, keys and names."""

from __future__ import annotations

import decimal
import unicodedata
from contextlib import suppress
from typing import Any

import millpond as mp
from millpond.errors import StateTypeError

from conformance.research.gallery.gallery import Opener, Wrong
from conformance.research.mutants.sabotage_tools import around, on_chosen_key, on_states, on_tables

WORDS = mp.ListStateDescriptor("l", str)
SMALL = mp.Config(buffer={"max_entries": 1})


def _value(backend: Any, kind: Any = str, name: str = "v", namespace: Any = None) -> Any:
    descriptor = mp.ValueStateDescriptor(name, kind)
    if namespace is None:
        return backend.get_partitioned_state(descriptor)
    return backend.get_partitioned_state(descriptor, namespace)


def _on_cells(backend: Any, change: Any) -> None:
    on_tables(backend, lambda table: None if hasattr(table, "items_at") else change(table))


def _merged(backend: Any, sources: list[str], order: list[str]) -> list[str]:
    backend.set_current_key("k")
    for space in order:
        backend.get_partitioned_state(WORDS, space).add(space)
    state = backend.get_partitioned_state(WORDS, "t")
    state.merge_namespaces("t", sources)
    return state.get()


class TargetLast(Wrong):
    """A merge puts the target's elements after those of the sources."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            around(raw, "_combine", lambda original, held: original([*held[1:], held[0]]))

        on_states(backend, change, "list")

    def show(self, opened: Opener) -> None:
        assert _merged(opened(), ["a"], ["t", "a"]) == ["t", "a"]


class SourcesSorted(Wrong):
    """A merge takes its sources in sorted order instead of the given one."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            def merge(original: Any, target: Any, sources: Any) -> None:
                original(target, sorted(sources))

            around(raw, "merge_namespaces", merge)

        on_states(backend, change, "list", "reducing", "aggregating")

    def show(self, opened: Opener) -> None:
        assert _merged(opened(), ["b", "a"], ["b", "a"]) == ["b", "a"]


class FourSides(Wrong):
    """A merge of more than three filled namespaces loses the others."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            around(raw, "_combine", lambda original, held: original(held[:3]))

        on_states(backend, change, "list", "reducing", "aggregating")

    def show(self, opened: Opener) -> None:
        assert _merged(opened(), ["a", "b", "c"], ["t", "a", "b", "c"]) == ["t", "a", "b", "c"]


class HalfReduced(Wrong):
    """If the reduce function raises an error during a merge, the elements reduced so far are lost."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            def accumulate(original: Any, accumulator: Any, value: Any) -> Any:
                try:
                    return original(accumulator, value)
                except Exception:
                    raw._table.remove(raw._namespace)
                    raise

            around(raw, "_accumulate", accumulate)

        on_states(backend, change, "reducing")

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(
            mp.ReducingStateDescriptor("r", lambda a, b: a // b, int)
        )
        state.add(4)
        try:
            state.add(0)
        except ZeroDivisionError:
            assert state.get() == 4


class MutatedByFunction(Wrong):
    """An aggregate function gets the stored accumulator itself, so its changes remain if it raises an error."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            raw._copy = lambda stored: stored

        on_states(backend, change, "reducing", "aggregating", "folding")

    def show(self, opened: Opener) -> None:
        def grow(a: list[int], b: list[int]) -> list[int]:
            a.extend(b)
            if -1 in b:
                raise ValueError(b)
            return a

        backend = opened()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(mp.ReducingStateDescriptor("r", grow, list[int]))
        state.add([1])
        try:
            state.add([-1])
        except ValueError:
            assert state.get() == [1]


class PartOfAList(Wrong):
    """If the iterable passed to `add_all` raises an error, the elements before the error are added."""

    def spoil(self, backend: Any) -> None:
        def change(state: Any, raw: Any) -> None:
            def add_all(original: Any, values: Any) -> None:
                for value in values:
                    original([value])

            around(raw, "add_all", add_all)

        on_states(backend, change, "list")

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = backend.get_partitioned_state(WORDS)
        with suppress(StateTypeError):
            state.add_all(["a", _Bad()])
        assert state.get() == []


class _Bad:
    """A value that is not a string."""


class NegativeZero(Wrong):
    """-0.0 becomes 0.0."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def put(original: Any, namespace: Any, value: Any) -> None:
                original(namespace, 0.0 if type(value) is float and value == 0 else value)

            around(table, "put", put)

        _on_cells(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = _value(backend, float)
        state.update(-0.0)
        assert repr(state.value()) == "-0.0"


class DecimalZeros(Wrong):
    """A decimal loses trailing zeros."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def put(original: Any, namespace: Any, value: Any) -> None:
                original(namespace, value.normalize() if type(value) is decimal.Decimal else value)

            around(table, "put", put)

        _on_cells(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        state = _value(backend, decimal.Decimal)
        state.update(decimal.Decimal("1.500"))
        assert str(state.value()) == "1.500"


class ComposedKeys(Wrong):
    """The composed and the decomposed Unicode form of a string are the same key."""

    def spoil(self, backend: Any) -> None:
        def choose(original: Any, key: Any, group: int) -> None:
            original(unicodedata.normalize("NFC", key) if type(key) is str else key, group)
            if type(key) is str:
                backend.current.key_group = 0

        on_chosen_key(backend, choose)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("\u00e9")
        _value(backend).update("one")
        backend.set_current_key("e\u0301")
        assert _value(backend).value() is None


class LongKeysAlike(Wrong):
    """Keys with the same first 4,096 characters and the same key group are one key."""

    def spoil(self, backend: Any) -> None:
        def choose(original: Any, key: Any, group: int) -> None:
            original(key[:4096] if type(key) is str else key, group)

        on_chosen_key(backend, choose)

    def show(self, opened: Opener) -> None:
        backend = opened(max_parallelism=1)
        backend.set_current_key("k" * 4096 + "a")
        _value(backend).update("one")
        backend.set_current_key("k" * 4096 + "b")
        assert _value(backend).value() is None


class SmallestKey(Wrong):
    """The smallest 64-bit integer and zero are the same key."""

    def spoil(self, backend: Any) -> None:
        def choose(original: Any, key: Any, group: int) -> None:
            original(0 if key == -(1 << 63) else key, group)
            if key in (0, -(1 << 63)) and type(key) is int:
                backend.current.key_group = 0

        on_chosen_key(backend, choose)

    def show(self, opened: Opener) -> None:
        backend = opened(key_type=int)
        backend.set_current_key(0)
        _value(backend).update("zero")
        backend.set_current_key(-(1 << 63))
        assert _value(backend).value() is None


class NamesAlike(Wrong):
    """States whose names differ only in case share their entries."""

    def spoil(self, backend: Any) -> None:
        known: dict[str, Any] = {}

        def create(original: Any, registered: Any) -> Any:
            name = registered.meta.name.casefold()
            table = original(registered)
            first = known.setdefault(name, table)
            return first if type(first) is type(table) else table

        around(backend, "create_table", create)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        _value(backend, name="count").update("one")
        assert _value(backend, name="Count").value() is None


class NamesBegin(Wrong):
    """A restore gives a state's rows also to states whose names begin with the state's name."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def expect(original: Any, names: Any) -> None:
            seen.update(names)
            original(seen)

        def load(original: Any, name: str, rows: Any) -> None:
            rows = list(rows)
            for other in seen | {name}:
                if other == name or other.startswith(name + "_"):
                    original(other, rows)

        seen: set[str] = set()
        around(backend, "expect_states", expect)
        around(backend, "load_rows", load)

    def show(self, opened: Opener) -> None:
        backend, storage = opened(), mp.checkpoint_storage("memory:names-begin")
        backend.set_current_key("a")
        _value(backend, name="v").update("one")
        _value(backend, name="v_2")
        handle = backend.snapshot(1, storage).result().handle
        with_rows = opened(restore=[handle])
        with_rows.set_current_key("a")
        assert _value(with_rows, name="v_2").value() is None


class HeldAcrossFlush(Wrong):
    """If a full buffer is flushed during a write, that write is lost."""

    base = "lmdb"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def put(original: Any, namespace: Any, value: Any) -> None:
                before = table.changed_entries()
                original(namespace, value)
                if 0 < before >= table.changed_entries():
                    table.remove(namespace)

            around(table, "put", put)

        _on_cells(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened(config=SMALL)
        for key in "abc":
            backend.set_current_key(key)
            _value(backend).update(key)
        backend.flush()
        for key in "abc":
            backend.set_current_key(key)
            assert _value(backend).value() == key


class StrangersNamespaces(Wrong):
    """Clearing a value under a namespace also clears namespaces that begin with its bytes."""

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def remove(original: Any, namespace: Any) -> None:
                if type(namespace) is str and namespace:
                    for other in list(table._entries()):
                        if other.startswith(namespace):
                            original(other)
                else:
                    original(namespace)

            around(table, "remove", remove)

        _on_cells(backend, change)

    def show(self, opened: Opener) -> None:
        backend = opened()
        backend.set_current_key("k")
        _value(backend, namespace="ab").update("kept")
        _value(backend, namespace="a").clear()
        assert _value(backend, namespace="ab").value() == "kept"


class ManyGroups(Wrong):
    """`keys()` stops at the 256th key group."""

    def spoil(self, backend: Any) -> None:
        def addresses(original: Any, name: str, namespaces: Any) -> Any:
            for key, namespace in original(name, namespaces):
                backend_group = backend.current.codec.hash(key) % backend.max_parallelism
                if backend_group < 256:
                    yield key, namespace

        around(backend, "addresses", addresses)

    def show(self, opened: Opener) -> None:
        backend = opened(max_parallelism=300)
        for number in range(100):
            backend.set_current_key(str(number))
            _value(backend).update("x")
        assert len(list(backend.keys("v"))) == 100


class SharedReads(Wrong):
    """Two backends of a process share a cache of read values."""

    base = "sqlite"

    def spoil(self, backend: Any) -> None:
        def change(table: Any) -> None:
            def get(original: Any, family: str, key: bytes) -> Any:
                found = original(family, key)
                if found is None:
                    return _SEEN.get((family, key))
                _SEEN[family, key] = found
                return found

            around(table._buffer.store, "get", get)

        _on_cells(backend, change)

    def show(self, opened: Opener) -> None:
        one, two = opened(), opened()
        for backend in (one, two):
            backend.set_current_key("k")
        state = _value(one, name="shared")
        state.update("one")
        one.flush()
        assert state.value() == "one"
        assert _value(two, name="shared").value() is None


_SEEN: dict[tuple[str, bytes], bytes] = {}
