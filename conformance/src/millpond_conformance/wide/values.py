"""Randomly composed types of elements, with values that an inexact format would change."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import attrs

Typed = tuple[Any, tuple[Any, ...]]
"""A type and some values of this type."""

_COMPOSED, _DECOMPOSED = "\u00e9", "e\u0301"
_SIZES = tuple((1 << power) + near for power in (7, 8, 12, 15, 16) for near in (-1, 0, 1))
_SHORT = 300
"""The maximum length of strings in containers."""


class Grade(enum.Enum):
    """An enum whose values have different types."""

    LOW = 1
    HIGH = (2, "b")


@attrs.define
class Part:
    """A class with a decimal and a nullable field."""

    price: Decimal
    note: str | None = None


@attrs.frozen
class Order:
    """A class that contains another one, also in containers with nulls."""

    parts: list[Part | None]
    weights: dict[str, float | None]
    main: Part | None = None


class Point(NamedTuple):
    """A named tuple, which must not come back as a plain tuple."""

    x: float
    y: float | None


def _moment(micros: int) -> datetime:
    return datetime(2020, 2, 29, 23, 59, 59) + timedelta(microseconds=micros)  # noqa: DTZ001 - without a zone


_DECIMALS = ("0", "-0", "0.00", "1.20", "1.500", "1E+5", "-1.0", "100", "12345678901234567890.10")
LEAVES: tuple[Typed, ...] = (
    (int, (0, -1, 127, 128, (1 << 63) - 1, -(1 << 63), 1 << 63, -(1 << 70))),
    (float, (-0.0, 0.0, 1.5, 0.1, float("inf"), float("-inf"), float("nan"), 5e-324)),
    (Decimal, tuple(map(Decimal, _DECIMALS))),
    (str, ("", "\0", _COMPOSED, _DECOMPOSED, "x" * 255, "x" * 256, "\ufeffx", "x\r\n", " x ")),
    (bytes, (b"", b"\0", *(bytes(size) for size in _SIZES))),
    (bool, (False, True)),
    (datetime, tuple(map(_moment, (0, 1, 999, 999_999, -1, 1 << 57, -(1 << 55) - 1)))),
    (datetime, (datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC))),
    (date | None, (date(1, 1, 1), date(9999, 12, 31), None)),
    (timedelta, (timedelta(0), timedelta(microseconds=-1), timedelta(days=999, microseconds=1))),
    (time, (time(0), time(23, 59, 59, 999_999), time(0, 0, 0, 1))),
    (UUID, (UUID(int=0), UUID(int=(1 << 128) - 1))),
    (int | None, (None, 0, 1, -1)),
    (int | float, (1, 1.0, -0.0, 0, 2, 1 << 60)),
    (Grade, tuple(Grade)),
    (Part, (Part(Decimal("1.20")), Part(Decimal("-0.0"), ""), Part(Decimal("1E+2"), "x"))),
    (Point, (Point(-0.0, None), Point(0.0, 1.0), Point(float("nan"), -0.0))),
    (
        Order,
        (
            Order([], {}),
            Order(
                [None, Part(Decimal("0.10")), None], {"b": None, "a": -0.0}, Part(Decimal("2.0"))
            ),
            Order([Part(Decimal("1.0")), Part(Decimal("1.00"), "")], {"": 0.0}),
        ),
    ),
)
_DEPTHS = (0, 0, 0, 1, 1, 2)
"""The choices for the number of nested containers around single values."""


def is_inexact_column(declared: Any) -> bool:
    """Return whether a bulk read of this type returns an Arrow array. It may change some values."""
    return declared in (int, datetime, date, time, timedelta)


def draw_element(draw: random.Random, *, nullable: bool) -> Typed:
    """Return a random type and some values of it, with None only if `nullable` is true."""
    declared, values = draw_around(draw, *draw.choice(LEAVES), draw.choice(_DEPTHS))
    if None in values and not nullable:
        declared, values = _listed(draw, declared, values)
    return declared, values


def draw_around(draw: random.Random, declared: Any, values: tuple[Any, ...], depth: int) -> Typed:
    """Return a random type with `depth` containers around `declared`, and some values of it."""
    for _ in range(depth):
        declared, values = draw.choice(_CONTAINERS)(draw, declared, values)
    return declared, values


def _some(draw: random.Random, values: tuple[Any, ...], count: int) -> list[Any]:
    short = [each for each in values if not isinstance(each, bytes) or len(each) < _SHORT]
    return draw.choices(short, k=count)


def _listed(draw: random.Random, declared: Any, values: tuple[Any, ...]) -> Typed:
    return list[declared], tuple(_some(draw, values, n) for n in (0, 1, 1, 2, 2, 3, 5))


def _sparse(draw: random.Random, declared: Any, values: tuple[Any, ...]) -> Typed:
    """Compose lists with several nulls, also at their ends."""
    given = (*values, None, None)
    lists = [[None, *_some(draw, given, n), None] for n in (0, 1, 2, 3)]
    return list[declared | None], ([None], *_some_lists(draw, given), *lists)


def _some_lists(draw: random.Random, values: tuple[Any, ...]) -> list[Any]:
    return [_some(draw, values, n) for n in (0, 1, 2, 4)]


def _mapped(draw: random.Random, declared: Any, values: tuple[Any, ...]) -> Typed:
    given = (*values, None)
    names = [draw.sample(("b", "a", "", _COMPOSED, "\0"), n) for n in (0, 1, 2, 3, 5)]
    made = [dict(zip(each, _some(draw, given, len(each)), strict=True)) for each in names]
    return dict[str, declared | None], tuple(made)


def _paired(draw: random.Random, declared: Any, values: tuple[Any, ...]) -> Typed:
    """Compose pairs of a number and a value. The number makes each pair different."""
    given = _some(draw, (*values, None), 8)
    return tuple[int, declared | None], tuple(enumerate(given))


def _repeated(draw: random.Random, declared: Any, values: tuple[Any, ...]) -> Typed:
    return tuple[declared, ...], tuple(tuple(_some(draw, values, n)) for n in (0, 1, 2, 3))


_CONTAINERS = (_listed, _sparse, _sparse, _mapped, _paired, _repeated)


def _decimal(number: int) -> Decimal:
    return Decimal(number).scaleb(-1)


def _weight(number: int) -> float | None:
    return None if number % 4 == 1 else -0.5 * number


def part_of(number: int) -> Part:
    """Return the `Part` for a number; its price has two digits after the point."""
    return Part(Decimal(number).scaleb(-2), None if number % 3 == 0 else str(number))


ITEMS: tuple[tuple[Any, Callable[[int], Any]], ...] = (
    (list[int], int),
    (list[Decimal], _decimal),
    (list[float | None], _weight),
    (list[Part], part_of),
)
"""Types of accumulators, each with a function from a number to an item."""
