"""What runs a function, by its kind."""

from __future__ import annotations

from millpond.functions.functions import OperatorFunction
from millpond.functions.process_function import ProcessFunction
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.operator.keyed_operator import KeyedOperator
from millpond.operator.process_operator import ProcessOperator
from millpond.operator.vectorized_operator import VectorizedOperator

__all__ = ["operator_of"]


def operator_of(function: OperatorFunction) -> type[KeyedOperator]:
    """What runs a function."""
    if isinstance(function, ProcessFunction):
        return ProcessOperator
    vectorized = isinstance(function, VectorizedProcessFunction)
    return VectorizedOperator if vectorized else KeyedOperator
