"""Steps on operator state, which is part of the backend's snapshots."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import millpond as mp

from millpond_conformance.comparing import assert_same, by_key
from millpond_conformance.wide.bench import Bench
from millpond_conformance.wide.values import Part, part_of

_NAME = "rules"


@attrs.define
class OperatorModel:
    """The expected elements of the three operator states.

    Attributes:
        split: the elements of the list.
        union: the elements of the union list.
        rules: the entries of the broadcast map.
    """

    split: list[Any] = attrs.field(factory=list)
    union: list[Any] = attrs.field(factory=list)
    rules: dict[str, Any] = attrs.field(factory=dict)


class OperatorSteps(Bench):
    """Steps on three operator states: a list, a union list and a broadcast map."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.operators = OperatorModel()

    def attach(self, handle: Any = None) -> None:
        """Give the backend operator state, restored from the snapshot `handle`.

        Without a snapshot, or with a savepoint, the operator state is empty.
        """
        restored: tuple[Any, ...] = ()
        if isinstance(handle, mp.KeyedStateHandle):
            restored = handle.operator_state
        else:
            self.operators = OperatorModel()
        self.backend.operator_state = mp.open_operator_backend(restore=restored)

    def operate(self, what: int, number: int) -> None:
        """Change an operator state.

        Args:
            what: 0 to add to the list, 1 to replace the union list, 2 to put an entry into the map,
                other numbers to empty the list.
            number: a number that determines the element.
        """
        split, union, rules = self._states()
        element, model = part_of(number), self.operators
        if what == 0:
            split.add(element)
            model.split.append(copy.deepcopy(element))
        elif what == 1:
            union.update([element, element])
            model.union = [copy.deepcopy(element)] * 2
        elif what == 2:  # noqa: PLR2004 - the third of four
            rules.put(str(number % 5), element)
            model.rules[str(number % 5)] = copy.deepcopy(element)
        else:
            split.update([])
            model.split = []
        self.coverage.note("operator state")

    def compare_operators(self) -> None:
        """Compare the elements of the operator states with the model."""
        split, union, rules = self._states()
        assert_same(split.get(), self.operators.split, "operator list")
        assert_same(union.get(), self.operators.union, "operator union list")
        found = by_key(dict(rules.items()))
        assert_same(found, by_key(self.operators.rules), "broadcast map")

    def _states(self) -> tuple[Any, Any, Any]:
        store = self.backend.operator_state
        return (
            store.get_list_state(mp.ListStateDescriptor(_NAME, Part)),
            store.get_union_list_state(mp.ListStateDescriptor(f"{_NAME} of all", Part)),
            store.get_broadcast_state(mp.MapStateDescriptor(f"{_NAME} by name", str, Part)),
        )
