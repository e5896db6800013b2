"""Functions over two keyed inputs that share their state. Names are PyFlink's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from typing_extensions import TypeVar

from millpond.functions.functions import Context, KeyedFunction

__all__ = ["INPUTS", "KeyedCoProcessFunction"]

K = TypeVar("K", default=Any)
IN1 = TypeVar("IN1", default=Any)
IN2 = TypeVar("IN2", default=Any)
OUT = TypeVar("OUT", default=Any)

INPUTS = ("process_element1", "process_element2")
"""The methods for the rows of the first input and of the second."""


class KeyedCoProcessFunction(KeyedFunction[K, OUT], Generic[K, IN1, IN2, OUT]):
    """A function over two inputs with the same keys: rows of both see one keyed state.

    For type checkers it may be given the types of the key, of the rows of both inputs, and of what
    it yields, in Flink's order.
    """

    @abstractmethod
    def process_element1(self, row: IN1, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the first input, with its key current; yield, or return a list."""

    @abstractmethod
    def process_element2(self, row: IN2, context: Context[K]) -> Iterable[OUT] | None:
        """Handle a row of the second input, with its key current; yield, or return a list."""
