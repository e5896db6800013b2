"""The choice of the operator class that runs a function."""

from __future__ import annotations

from millpond.functions.async_functions import AsyncCalls
from millpond.functions.functions import KeylessFunction, OperatorFunction
from millpond.functions.vectorized import VectorizedProcessFunction
from millpond.operator.async_operator import AsyncOperator
from millpond.operator.operators import KeyedOperator, ProcessOperator, VectorizedOperator


def operator_class_for(function: OperatorFunction) -> type[KeyedOperator]:
    """Return the operator class that runs functions of the class of ``function``."""
    if isinstance(function, AsyncCalls):
        return AsyncOperator
    if isinstance(function, KeylessFunction):
        return ProcessOperator
    vectorized = isinstance(function, VectorizedProcessFunction)
    return VectorizedOperator if vectorized else KeyedOperator
