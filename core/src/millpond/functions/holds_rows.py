"""Functions of Millpond's own that store at once what several rows of a key have added."""

from __future__ import annotations

from abc import ABC, abstractmethod


class HoldsRows(ABC):
    """A function that holds what rows of the current key have added to its states.

    Attributes:
        may_hold: whether whoever calls it also has it store what it holds. A function of the
            user's around it would not.
    """

    may_hold: bool = False

    @abstractmethod
    def store_held(self) -> None:
        """Store it: what comes next is no further row of that key."""
