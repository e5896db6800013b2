"""Iterations over a map that changes during the iteration, compared with a dictionary."""

from __future__ import annotations

import random
from typing import NamedTuple

from millpond.state import MapState


class Walk(NamedTuple):
    """The record of one iteration over a map.

    Attributes:
        before: the keys in the map when the iteration began.
        seen: the keys that the iteration returned, in order.
        removed: the keys that were removed during the iteration, even if they were put again.
        ended: whether the iteration was continued to its end.
    """

    before: set[int]
    seen: list[int]
    removed: set[int]
    ended: bool


class WalkedMap:
    """A map state and a dictionary that get the same changes.

    Attributes:
        rng: the source of the changes.
        model: the dictionary.
    """

    def __init__(self, state: MapState[int, int], seed: int) -> None:
        self._state = state
        self.rng = random.Random(seed)  # noqa: S311 - a program, no secret
        self.model: dict[int, int] = {}
        self._removed: set[int] = set()

    def change(self) -> None:
        """Put, remove or read a random entry."""
        key, what = self.rng.randrange(8), self.rng.choice("pprg")
        if what == "p":
            self.model[key] = self.rng.randrange(100)
            self._state.put(key, self.model[key])
        elif what == "r":
            self._state.remove(key)
            self.model.pop(key, None)
            self._removed.add(key)
        else:
            assert self._state.get(key) == self.model.get(key)

    def walk(self) -> Walk:
        """Iterate over the map, and change the map between steps of the iteration.

        At each step, the iteration is ended early with a probability of 10 %.
        """
        before, seen = set(self.model), []
        removed = self._removed = set()
        for key, value in self._state.items():
            assert self.model.get(key) == value
            seen.append(key)
            for _ in range(self.rng.randrange(3)):
                self.change()
            if self.rng.random() < 0.1:  # noqa: PLR2004 - now and then
                return Walk(before, seen, removed, ended=False)
        return Walk(before, seen, removed, ended=True)
