"""States of every kind with elements of many types, filled and then compared exactly."""

from __future__ import annotations

import copy
import random
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.comparing import assert_same, by_key, mutate
from millpond_conformance.semantics import MODES, descriptor_of, shown_result
from millpond_conformance.wide.values import ITEMS, LEAVES, draw_around

_ADDED = range(5)
"""The numbers that are added to accumulators."""
_KINDS = ("reducing", "aggregating", "folding")


@attrs.frozen
class _Typed:
    """A value, a list and a map state with elements of one type.

    Attributes:
        number: a number that makes the names of the states unique.
        declared: the type of the elements.
        values: the elements to write.
    """

    number: int
    declared: Any
    values: tuple[Any, ...]

    def fill(self, backend: Any) -> None:
        """Write all elements to the three states; in the value state each has its own key."""
        value, items, entries = self._states(backend)
        for place, each in enumerate(self._present()):
            value.at(f"k{place}").update(copy.deepcopy(each))
        backend.set_current_key("k0")
        items.update(copy.deepcopy(self._present()))
        entries.put_all({str(n): copy.deepcopy(each) for n, each in enumerate(self.values)})

    def check(self, backend: Any) -> None:
        """Compare the contents of the three states with the written elements."""
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
        """Return the elements that are not None, because only a map can contain None."""
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
    """A reducing, aggregating or folding state, whose accumulator is a list of items.

    Attributes:
        kind: the kind of the state.
        number: the index in `ITEMS` of the accumulator's type.
    """

    kind: str
    number: int

    def fill(self, backend: Any) -> None:
        """Add some items to the accumulator."""
        state, item = self._state(backend)
        for each in _ADDED:
            state.add([item(each)] if self.kind == "reducing" else each)

    def check(self, backend: Any) -> None:
        """Compare the accumulator with the expected items."""
        state, item = self._state(backend)
        added = [item(each) for each in _ADDED]
        expected = {
            "reducing": [part for each in added for part in (item(-1), each)][1:],
            "aggregating": shown_result(added, item),
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
    """States of every kind, with elements of many types.

    Args:
        depth: the number of containers around each single type, such as lists and maps.
    """

    def __init__(self, depth: int) -> None:
        draw = random.Random(depth)  # noqa: S311 - values, no secret
        types = [draw_around(draw, *leaf, depth) for leaf in LEAVES]
        self._all: list[_Typed | _Accumulator] = [
            *(_Typed(number, *each) for number, each in enumerate(types)),
            *(_Accumulator(kind, n) for kind in _KINDS for n in range(len(ITEMS))),
        ]

    def fill(self, backend: Any, first: int = 0, step: int = 1) -> None:
        """Write to every `step`-th state, from the index `first` on; by default to all states."""
        for each in self._all[first::step]:
            each.fill(backend)

    def check(self, backend: Any) -> None:
        """Compare the contents of every state with the written elements."""
        for each in self._all:
            each.check(backend)
