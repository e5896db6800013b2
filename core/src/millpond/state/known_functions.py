"""Reduce functions that Millpond knows, so that it can reduce many elements at once.

Their public names are in ``millpond.functions``. Row by row they act like any reduce function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
_EXACT = 1 << 53
"""Up to here a float can represent every int."""
_FLOAT_BYTES = 8

_DECIMALS = Context(prec=10_000, traps=[Inexact, InvalidOperation, Overflow])
"""Python's own context rounds to 28 digits, and Spark's decimals have up to 38."""


def sum(a: Any, b: Any) -> Any:  # noqa: A001 - the public name is functions.sum
    """Return the sum of two values; sums of decimals are exact."""
    return _DECIMALS.add(a, b) if type(a) is Decimal else a + b


def min(a: T, b: T) -> T:  # noqa: A001
    """Return the smaller of two values, the first if they are equal, NaN if one is NaN.

    For 0.0 and -0.0, ``add_many`` may return either.
    """
    if a != a:  # noqa: PLR0124 - NaN differs from itself, and one of Decimal compares with nothing
        return a
    return b if b != b or b < a else a  # type: ignore[operator]  # noqa: PLR0124


def max(a: T, b: T) -> T:  # noqa: A001
    """Return the larger of two values, the first if they are equal, NaN if one is NaN.

    For 0.0 and -0.0, ``add_many`` may return either.
    """
    if a != a:  # noqa: PLR0124 - as above
        return a
    return b if b != b or b > a else a  # type: ignore[operator]  # noqa: PLR0124


def count(a: int, b: int) -> int:
    """Return the sum of counts: add 1 for each row, or call ``add_many`` with ``values=None``."""
    return a + b


def last(a: T, b: T) -> T:  # noqa: ARG001 - a reduce function has two
    """Return the value that came last."""
    return b


KNOWN: frozenset[Callable[[Any, Any], Any]] = frozenset({sum, min, max, count, last})


def reduce_values(
    function: Callable[[Any, Any], Any], values: Sequence[Any], positions: Sequence[int]
) -> dict[int, Any]:
    """Return the reduction of the values at each position, for values of any type.

    For ``last``, the result is in the order of the last values: two positions may be of one key.
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
    """Return the distinct positions, and the reduction of the numbers at each, computed by NumPy.

    Args:
        function: a known function.
        kind: int or float, the type of the state.
        numbers: a NumPy array.
        positions: an array of ints of the same length.

    Returns:
        None if NumPy's result could differ from Python's: for another type, or if a sum could
        exceed 64 bits.
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
        if order is not None:  # in the given order: two positions may be of one key
            ends = ends[np.argsort(order[ends])]
        return positions[ends].tolist(), numbers[ends].tolist()
    ufuncs: dict[Any, Any] = {min: np.minimum, max: np.maximum}
    found = ufuncs.get(function, np.add).reduceat(numbers, starts)
    return positions[starts].tolist(), found.tolist()


def _fits(function: Callable[[Any, Any], Any], kind: type | None, numbers: Any) -> bool:
    sort = numbers.dtype.kind
    if sort == "f" and numbers.dtype.itemsize > _FLOAT_BYTES:
        return False  # a longdouble
    if sort == "f" or kind not in (int, float) or not len(numbers):
        return bool(kind is float or (kind is int and sort in "iu"))
    largest = abs(int(numbers.min())) + abs(int(numbers.max()))
    if kind is float:
        return largest < _EXACT
    return largest * (len(numbers) if function in (sum, count) else 1) < 1 << 63
