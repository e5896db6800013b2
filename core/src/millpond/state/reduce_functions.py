"""The reduce functions of ``millpond.functions``, and their implementations for many elements.

A state can use them like any other reduce function. ``add_many`` calls the implementations for many
elements if a state uses one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
_EXACT = 1 << 53
"""The largest number up to which every int is equal to a float."""
_FLOAT_BYTES = 8

_DECIMALS = Context(prec=10_000, traps=[Inexact, InvalidOperation, Overflow])
"""A context for exact sums. Python's default context rounds to 28 digits; Spark has up to 38."""


def sum(a: Any, b: Any) -> Any:  # noqa: A001 - the public name is functions.sum
    """Return the sum of two values; sums of decimals are exact."""
    return _DECIMALS.add(a, b) if type(a) is Decimal else a + b


def min(a: T, b: T) -> T:  # noqa: A001
    """Return the smaller of two values. Return `a` if they are equal, and NaN if one is NaN.

    For 0.0 and -0.0, ``add_many`` may return either.
    """
    if a != a:  # noqa: PLR0124 - NaN is not equal to itself; ``<`` raises for a Decimal NaN
        return a
    return b if b != b or b < a else a  # type: ignore[operator]  # noqa: PLR0124


def max(a: T, b: T) -> T:  # noqa: A001
    """Return the larger of two values. Return `a` if they are equal, and NaN if one is NaN.

    For 0.0 and -0.0, ``add_many`` may return either.
    """
    if a != a:  # noqa: PLR0124 - as above
        return a
    return b if b != b or b > a else a  # type: ignore[operator]  # noqa: PLR0124


def count(a: int, b: int) -> int:
    """Return the sum of two counts.

    To count rows, add 1 for each row, or call ``add_many`` with ``values=None``.
    """
    return a + b


def last(a: T, b: T) -> T:  # noqa: ARG001 - a reduce function has two
    """Return `b`, so that the state contains the element that was added last."""
    return b


KNOWN: frozenset[Callable[[Any, Any], Any]] = frozenset({sum, min, max, count, last})


def reduce_values(
    function: Callable[[Any, Any], Any], values: Sequence[Any], positions: Sequence[int]
) -> dict[int, Any]:
    """Return the reduction of the values that have the same position, by position.

    A position is the index of a key in a column. Two positions may have equal keys. So for
    ``last``, the result is sorted by the last occurrence of each position, and the newest value is
    stored last.

    Args:
        function: a function of this module.
        values: the values, of any type.
        positions: the position of each value.
    """
    found: dict[int, Any] = {}
    if function is last:
        for position, value in zip(positions, values, strict=True):
            found.pop(position, None)
            found[position] = value
        return found
    for position, value in zip(positions, values, strict=True):
        found[position] = function(found[position], value) if position in found else value
    return found


def reduce_numbers(
    function: Callable[[Any, Any], Any], kind: type | None, numbers: Any, positions: Any
) -> tuple[list[int], list[Any]] | None:
    """Return the positions, and the reduction of the numbers with each position, computed by NumPy.

    Args:
        function: a function of this module.
        kind: the type of the state.
        numbers: a NumPy array.
        positions: the position of each number, in a NumPy array of ints.

    Returns:
        None if NumPy's result could differ from Python's, because `kind` is neither int nor float,
        or because a sum could exceed 64 bits.
    """
    import numpy as np  # noqa: PLC0415 - an array implies NumPy

    if not _fits(function, kind, numbers):
        return None
    if kind is float:
        numbers = numbers.astype(np.float64, copy=False)
    elif numbers.dtype.kind == "u":
        numbers = numbers.astype(np.int64)
    if not len(numbers):
        return [], []
    order = None
    if not (positions[1:] >= positions[:-1]).all():
        order = np.argsort(positions, kind="stable")
        numbers, positions = numbers[order], positions[order]
    starts = np.flatnonzero(np.concatenate(([True], positions[1:] != positions[:-1])))
    if function is last:
        ends = np.concatenate((starts[1:], [len(numbers)])) - 1
        if order is not None:  # restore the given order, because two positions may have equal keys
            ends = ends[np.argsort(order[ends])]
        return positions[ends].tolist(), numbers[ends].tolist()
    ufuncs: dict[Any, Any] = {min: np.minimum, max: np.maximum}
    found = ufuncs.get(function, np.add).reduceat(numbers, starts)
    return positions[starts].tolist(), found.tolist()


def _fits(function: Callable[[Any, Any], Any], kind: type | None, numbers: Any) -> bool:
    """Return whether NumPy and Python reduce these numbers to the same result."""
    sort = numbers.dtype.kind
    if sort == "f" and numbers.dtype.itemsize > _FLOAT_BYTES:
        return False  # a longdouble has more digits than a Python float
    if sort == "f" or kind not in (int, float) or not len(numbers):
        return bool(kind is float or (kind is int and sort in "iu"))
    largest = abs(int(numbers.min())) + abs(int(numbers.max()))
    if kind is float:
        return largest < _EXACT
    return largest * (len(numbers) if function in (sum, count) else 1) < 1 << 63
