"""Reduce functions that Millpond knows, so that it reduces many contributions at once.

``millpond.functions`` is their public name. Row by row they are as any other reduce function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
_EXACT = 1 << 53
"""Up to here a float is every whole number."""
_FLOAT_BYTES = 8

_DECIMALS = Context(prec=10_000, traps=[Inexact, InvalidOperation, Overflow])
"""Python's own context rounds to 28 digits, and Spark's decimals have up to 38."""


def sum(a: Any, b: Any) -> Any:  # noqa: A001 - the public name is functions.sum
    """The sum of two values, exact where they are decimals."""
    return _DECIMALS.add(a, b) if type(a) is Decimal else a + b


def min(a: T, b: T) -> T:  # noqa: A001
    """The smaller of two values, the first of equal ones; NaN where one of them is.

    Of 0.0 and -0.0 either, where ``add_many`` reduces an array of floats.
    """
    if a != a:  # noqa: PLR0124 - NaN differs from itself, and one of Decimal compares with nothing
        return a
    return b if b != b or b < a else a  # type: ignore[operator]  # noqa: PLR0124


def max(a: T, b: T) -> T:  # noqa: A001
    """The larger of two values, the first of equal ones; NaN where one of them is.

    Of 0.0 and -0.0 either, where ``add_many`` reduces an array of floats.
    """
    if a != a:  # noqa: PLR0124 - as above
        return a
    return b if b != b or b > a else a  # type: ignore[operator]  # noqa: PLR0124


def count(a: int, b: int) -> int:
    """The sum of counts: add 1 for each row, or have ``add_many`` count by ``values=None``."""
    return a + b


def last(a: T, b: T) -> T:  # noqa: ARG001 - a reduce function has two
    """The value that came last."""
    return b


KNOWN: frozenset[Callable[[Any, Any], Any]] = frozenset({sum, min, max, count, last})


def reduce_values(
    function: Callable[[Any, Any], Any], values: Sequence[Any], positions: Sequence[int]
) -> dict[int, Any]:
    """What the function makes of the values at each position, by position, of any type.

    The last values come in the order in which they were given, for two positions may be of one key.
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
    """The positions that occur, and what is made of the numbers at each; by NumPy.

    Args:
        function: one of those known.
        kind: int or float, the type of the state.
        numbers: an array of NumPy's.
        positions: as many whole numbers, an array too.

    Returns:
        None where NumPy could not give what Python gives: another type, or a sum that could
        be beyond 64 bits.
    """
    import numpy as np  # noqa: PLC0415 - whoever has an array has NumPy

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
        if order is not None:  # as they were given, for two positions may be of one key
            ends = ends[np.argsort(order[ends])]
        return positions[ends].tolist(), numbers[ends].tolist()
    ufuncs: dict[Any, Any] = {min: np.minimum, max: np.maximum}
    found = ufuncs.get(function, np.add).reduceat(numbers, starts)
    return positions[starts].tolist(), found.tolist()


def _fits(function: Callable[[Any, Any], Any], kind: type | None, numbers: Any) -> bool:
    sort = numbers.dtype.kind
    if sort == "f" and numbers.dtype.itemsize > _FLOAT_BYTES:
        return False  # a longdouble, which no float is
    if sort == "f" or kind not in (int, float) or not len(numbers):
        return bool(kind is float or (kind is int and sort in "iu"))
    largest = abs(int(numbers.min())) + abs(int(numbers.max()))
    if kind is float:
        return largest < _EXACT
    return largest * (len(numbers) if function in (sum, count) else 1) < 1 << 63
