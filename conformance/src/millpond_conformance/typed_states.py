"""States of every kind with elements of many types, and their exact comparison."""

from __future__ import annotations

import copy
import random
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.comparing import assert_same, by_key, mutate
from millpond_conformance.semantics import MODES, descriptor_of
from millpond_conformance.wide.values import ITEMS, LEAVES, draw_around

_ADDED = range(5)
"""The numbers that are added to accumulators."""
_KINDS = ("reducing", "aggregating", "folding")


@attrs.frozen
class _Typed:
    """Three states with elements of one type: a value per key, a list and a map."""

    number: int
    declared: Any
    values: tuple[Any, ...]

    def fill(self, backend: Any) -> None:
        """Write all values to the three states."""
        value, items, entries = self._states(backend)
        for place, each in enumerate(self._present()):
            value.at(f"k{place}").update(copy.deepcopy(each))
        backend.set_current_key("k0")
        items.update(copy.deepcopy(self._present()))
        entries.put_all({str(n): copy.deepcopy(each) for n, each in enumerate(self.values)})

    def check(self, backend: Any) -> None:
        """Compare the three states with the written values."""
        value, items, entries = self._states(backend)
        for _ in range(
            2
        ):  # the test modifies the results of the first reads, which must not change the store
            found = [value.at(f"k{place}").value() for place, _ in enumerate(self._present())]
            assert_same(found, self._present(), f"values of {self.declared}")
            mutate(found)
        backend.set_current_key("k0")
        assert_same(items.get(), self._present(), f"a list of {self.declared}")
        expected = {str(n): each for n, each in enumerate(self.values)}
        assert_same(by_key(dict(entries.items())), by_key(expected), f"a map of {self.declared}")

    def _present(self) -> list[Any]:
        """Return the values that are not null, because only a map can contain nulls."""
        return [each for each in self.values if each is not None]

    def _states(self, backend: Any) -> tuple[Any, Any, Any]:
        backend.set_current_key("k0")
        descriptors = (
            mp.ValueStateDescriptor(f"value {self.number}", self.declared),
            mp.ListStateDescriptor(f"list {self.number}", self.declared),
            mp.MapStateDescriptor(f"map {self.number}", str, self.declared),
        )
        value, items, entries = map(backend.get_partitioned_state, descriptors)
        return value, items, entries


@attrs.frozen
class _Accumulator:
    """A state with accumulators, whose items have a type of their own."""

    kind: str
    number: int

    def fill(self, backend: Any) -> None:
        """Add some items."""
        state, item = self._state(backend)
        for each in _ADDED:
            state.add([item(each)] if self.kind == "reducing" else each)

    def check(self, backend: Any) -> None:
        """Compare with the added items, and the items that the functions put between them."""
        state, item = self._state(backend)
        added = [item(each) for each in _ADDED]
        expected = {
            "reducing": [part for each in added for part in (item(-1), each)][1:],
            "aggregating": [*added, item(-3)],
            "folding": [*reversed(added), item(0)],
        }[self.kind]
        assert_same(state.get(), expected, f"{self.kind} state of {ITEMS[self.number][0]}")

    def _state(self, backend: Any) -> tuple[Any, Any]:
        declared, item = ITEMS[self.number]
        backend.set_current_key("k0")
        name = f"{self.kind} {self.number}"
        descriptor = descriptor_of(self.kind, MODES[0], name, declared, item=item)
        return backend.get_partitioned_state(descriptor), item


class TypedStates:
    """States of every kind, with each single type in as many containers as `depth`."""

    def __init__(self, depth: int) -> None:
        draw = random.Random(depth)  # noqa: S311 - values, no secret
        types = [draw_around(draw, *leaf, depth) for leaf in LEAVES]
        self._all: list[_Typed | _Accumulator] = [
            *(_Typed(number, *each) for number, each in enumerate(types)),
            *(_Accumulator(kind, n) for kind in _KINDS for n in range(len(ITEMS))),
        ]

    def fill(self, backend: Any, first: int = 0, step: int = 1) -> None:
        """Write to every state, or to every `step`-th one."""
        for each in self._all[first::step]:
            each.fill(backend)

    def check(self, backend: Any) -> None:
        """Compare every state with the written values."""
        for each in self._all:
            each.check(backend)
