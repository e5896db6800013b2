"""Steps on maps: writes, reads by every method, and iterations that remain open between steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from millpond_conformance.comparing import assert_same
from millpond_conformance.wide.bench import Bench, Place

_NOTHING = "nothing"
_AT_ONCE = 3


@attrs.define(eq=False)
class _Open:
    """An open iteration.

    Attributes:
        number: the map state.
        at: the key and the namespace.
        entries: the iterator.
        must: the numbers of the entries that the iteration must still return, unless they expire;
            None before the first step of the iteration.
        given: the numbers of the entries that the iteration has returned. No entry may be returned
            twice.
        flushed: whether the backend was flushed since the iteration began.
        written: whether the map was changed since the iteration began.
    """

    number: int
    at: Place
    entries: Iterator[tuple[Any, Any]]
    must: set[int] | None = None
    given: set[int] = attrs.field(factory=set)
    flushed: bool = False
    written: bool = False


class MapSteps(Bench):
    """Steps on maps."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: list[_Open] = []

    def _map(self, number: int, at: Place) -> Any:
        return self.state(number, at) if self.kind(number) == "map" else None

    # ---------------------------------------------------------------- writes

    def put(self, number: int, key: int, space: int, entry: int, value: int) -> None:
        """Put an entry, by the method ``put`` or by an assignment."""
        at, spec = (key, space), self.world.states[number]
        state = self._map(number, at)
        if state is None:
            return
        if value % 2:
            state[spec.map_key(entry)] = spec.element(value)
        else:
            state.put(spec.map_key(entry), spec.element(value))
        self._noted(number, at, entry, value)
        self.wrote()

    def _noted(self, number: int, at: Place, entry: int, value: int) -> None:
        model, now = self.models[number], self.clock.now_ms
        fresh = not model.lives(at, entry, now)
        for each in self._under_way(number, at):
            each.written = True
            if fresh:
                self.coverage.note("insert into a map under iteration")
                if each.must is not None:
                    each.must.discard(entry)  # the iteration may or may not return a new entry
        model.put(at, entry, value, now)

    def _under_way(self, number: int, at: Place) -> list[_Open]:
        return [each for each in self.open if (each.number, each.at) == (number, at)]

    def put_all(self, number: int, key: int, space: int, count: int, value: int) -> None:
        """Put several entries by one call."""
        at, spec = (key, space), self.world.states[number]
        state = self._map(number, at)
        if state is None:
            return
        entries = {spec.map_key(n): spec.element(value + n) for n in range(count)}
        if len(entries) < count:  # keys that are equal in Python but stored separately
            for n in range(count):
                state.put(spec.map_key(n), spec.element(value + n))
        else:
            state.put_all(entries)
        for n in range(count):
            self._noted(number, at, n, value + n)
        self.wrote(count)

    def remove(self, number: int, key: int, space: int, entry: int, how: int) -> None:
        """Remove an entry, by the method ``remove`` or by ``del``."""
        at, spec, model = (key, space), self.world.states[number], self.models[number]
        state = self._map(number, at)
        if state is None:
            return
        if how:
            try:
                del state[spec.map_key(entry)]
                there = True
            except KeyError:
                there = False
            assert_same(
                there, model.visible(at, entry, self.clock.now_ms), self.describe(number, at)
            )
        else:
            state.remove(spec.map_key(entry))
        model.remove(at, entry)
        for each in self._under_way(number, at):
            each.written = True
            if each.must is not None:
                each.must.discard(entry)
        self.wrote()

    def forget_entries(self, number: int, at: Place) -> None:
        """Allow open iterations to omit all entries of a map that was cleared."""
        for each in self._under_way(number, at):
            each.must = set() if each.must is not None else None
            each.written = True

    # ---------------------------------------------------------------- reads

    def look(self, number: int, key: int, space: int, call: str, entry: int) -> None:
        """Read a map by one of its methods, and compare.

        Args:
            number: the map state.
            key: the key.
            space: the namespace.
            call: ``get``, ``getitem``, ``contains``, ``items``, ``keys``, ``values`` or
                ``is_empty``.
            entry: the entry to read by ``get``, ``getitem`` or ``contains``.
        """
        at = (key, space)
        state = self._map(number, at)
        if state is None:
            return
        names = {"getitem": "[]", "contains": "in"}
        self.coverage.note(f"map read by {names.get(call, call)}")
        found, expected = self._looked(state, number, at, call, entry)
        assert_same(
            found, expected, f"{self.describe(number, at)}, read by {names.get(call, call)}"
        )

    def _looked(self, state: Any, number: int, at: Place, call: str, entry: int) -> tuple[Any, Any]:
        spec, model, now = self.world.states[number], self.models[number], self.clock.now_ms
        wanted = spec.map_key(entry)
        if call in ("get", "getitem", "contains"):
            known = model.visible(at, entry, now)
            value = model.get(at, entry, now)
            if call == "contains":
                return wanted in state, known
            return self._one(state, call, wanted), value if known else _NOTHING
        if call == "is_empty":
            return state.is_empty(), model.is_empty(at, now)
        return self._all(state, number, at, call)

    @staticmethod
    def _one(state: Any, call: str, wanted: Any) -> Any:
        try:
            return state.get(wanted, _NOTHING) if call == "get" else state[wanted]
        except KeyError:
            return _NOTHING

    def _all(self, state: Any, number: int, at: Place, call: str) -> tuple[Any, Any]:
        """Return the sorted results of an iteration over the map, and the expected results."""
        spec, model, now = self.world.states[number], self.models[number], self.clock.now_ms
        pairs = [
            (spec.map_key(each), model.get(at, each, now))
            for each in list(model.held.get(at, {}))
            if model.visible(at, each, now)
        ]
        if call == "keys":
            return sorted(state.keys(), key=repr), sorted((key for key, _ in pairs), key=repr)
        if call == "values":
            values = sorted((value for _, value in pairs), key=repr)
            return sorted(state.values(), key=repr), values
        return sorted(state.items(), key=repr), sorted(pairs, key=repr)

    # ---------------------------------------------------------------- iterations

    def iterate(self, number: int, key: int, space: int) -> None:
        """Begin an iteration, which remains open between steps."""
        at = (key, space)
        state = self._map(number, at)
        if state is not None and len(self.open) < _AT_ONCE:
            self.open.append(_Open(number, at, iter(state.items())))

    def proceed(self, chosen: int) -> None:
        """Continue an open iteration by one entry while another key is current, and compare."""
        if not self.open:
            return
        each = self.open[chosen % len(self.open)]
        spec, model = self.world.states[each.number], self.models[each.number]
        now, what = self.clock.now_ms, f"{self.describe(each.number, each.at)}, in an iteration"
        if each.must is None:
            each.must = set(model.held.get(each.at, {}))
        elsewhere = (each.at[0] + 1) % len(self.world.keys)
        self.backend.set_current_key(self.world.keys[elsewhere])
        self.coverage.note("iteration open under another key")
        if each.flushed:
            self.coverage.note("iteration open across a flush")
        if each.written:
            self.coverage.note("iteration open across a write")
        found = next(each.entries, None)
        if found is None:
            self.open.remove(each)
            left = {n for n in each.must if model.lives(each.at, n, now)}
            for n in each.must - left:
                model.get(each.at, n, now)  # removes the entry, like the iteration: it has expired
            assert_same(
                sorted(map(repr, map(spec.map_key, left))), [], f"{what}, entries that never came"
            )
            return
        numbers = [
            n
            for n in {*model.held.get(each.at, {})} - each.given
            if repr(spec.map_key(n)) == repr(found[0])
        ]
        if not numbers:
            raise AssertionError(f"{what}: got {found!r}, which is not there or came before")
        each.given.add(numbers[0])
        each.must.discard(numbers[0])
        assert_same(found[1], model.get(each.at, numbers[0], now), f"{what}, entry {found[0]!r}")

    def flushed_under_way(self) -> None:
        """Mark the open iterations as flushed; called after each flush."""
        for each in self.open:
            each.flushed = True
