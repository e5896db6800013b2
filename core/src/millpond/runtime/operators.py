"""What runs a function, by its kind."""

from __future__ import annotations

from millpond.runtime.functions import OperatorFunction
from millpond.runtime.keyed_operator import KeyedOperator
from millpond.runtime.process_function import ProcessFunction
from millpond.runtime.process_operator import ProcessOperator
from millpond.runtime.vectorized import VectorizedProcessFunction
from millpond.runtime.vectorized_operator import VectorizedOperator

__all__ = ["operator_of"]


def operator_of(function: OperatorFunction) -> type[KeyedOperator]:
    """What runs a function."""
    if isinstance(function, ProcessFunction):
        return ProcessOperator
    vectorized = isinstance(function, VectorizedProcessFunction)
    return VectorizedOperator if vectorized else KeyedOperator
