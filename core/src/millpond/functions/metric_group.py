"""Metrics of a user's function: counters, gauges, distributions. Names are PyFlink's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import attrs

from millpond.arguments import check_type
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.state.names import check_label

_PARTS = ("count", "sum", "min", "max")
_LEAST_AND_GREATEST = (".min", ".max")


@attrs.define
class Counter:
    """A count."""

    _name: str
    _count: int = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n`` to the count."""
        self._count += _number(self._name, n)

    def dec(self, n: int = 1) -> None:
        """Subtract ``n`` from the count."""
        self._count -= _number(self._name, n)

    def get_count(self) -> int:
        """Return the count."""
        return self._count


@attrs.define
class Distribution:
    """The number of values, their sum, minimum and maximum."""

    _name: str
    _count: int = 0
    _sum: float = 0
    _min: float = 0
    _max: float = 0

    def update(self, value: float) -> None:
        """Add a value."""
        value = _number(self._name, value)
        self._min = value if not self._count else min(self._min, value)
        self._max = value if not self._count else max(self._max, value)
        self._count += 1
        self._sum += value

    def values(self, name: str) -> dict[str, float]:
        """Return the reported numbers by name; nothing without a value."""
        if not self._count:
            return {}
        values = (self._count, self._sum, self._min, self._max)
        return {f"{name}.{part}": value for part, value in zip(_PARTS, values, strict=True)}


class MetricGroup:
    """A group of metrics by name; the same name returns the same metric.

    A counter, a gauge and a distribution cannot share a name: that raises ArgumentValueError. On
    Spark a function lives for one micro-batch of one subtask, and so do its metrics.
    """

    def __init__(self, prefix: str = "", taken: dict[str, _Owner] | None = None) -> None:
        self._prefix = prefix
        self._taken: dict[str, _Owner] = {} if taken is None else taken
        self._groups: dict[str, MetricGroup] = {}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self._distributions: dict[str, Distribution] = {}

    def add_group(self, name: str) -> MetricGroup:
        """Return a group within this one; its metrics are reported as ``group.metric``."""
        _check_name(name)
        return self._groups.setdefault(name, MetricGroup(f"{self._prefix}{name}.", self._taken))

    def counter(self, name: str) -> Counter:
        """Return a counter; the counts of all subtasks are summed."""
        self._check_name(name, "counter")
        return self._counters.setdefault(name, Counter(self._prefix + name))

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Register a function that returns a number when the metrics are reported.

        If it fails or returns no number, the operator fails.
        """
        self._check_name(name, "gauge")
        check_type("function", function, Callable)
        self._gauges[name] = function

    def distribution(self, name: str) -> Distribution:
        """Return a distribution of values."""
        self._check_name(name, "distribution")
        return self._distributions.setdefault(name, Distribution(self._prefix + name))

    def values(self) -> dict[str, float]:
        """Return all metrics of this group and of the groups within it."""
        found: dict[str, float] = {}
        for name, counter in self._counters.items():
            found[self._prefix + name] = counter.get_count()
        for name, gauge in self._gauges.items():
            found[self._prefix + name] = _read(self._prefix + name, gauge)
        for name, distribution in self._distributions.items():
            found |= distribution.values(self._prefix + name)
        for group in self._groups.values():
            found |= group.values()
        return found

    def ambiguous_names(self) -> list[str]:
        """Return the names of counters and gauges that look like parts of a distribution.

        A counter ``x.min`` looks like the minimum of a distribution ``x`` if single metrics are
        named ``x.count`` and ``x.sum``, too.
        """
        single = {name for name, (_, _, kind) in self._taken.items() if kind != "distribution"}
        groups = (name.rpartition(".")[0] for name in single if name.endswith(_LEAST_AND_GREATEST))
        found = (g for g in set(groups) if {f"{g}.count", f"{g}.sum"} <= single)
        return sorted(single & {f"{g}{part}" for g in found for part in _LEAST_AND_GREATEST})

    def _check_name(self, name: str, kind: str) -> None:
        """Reserve the reported names of a metric; ArgumentValueError if another one has them."""
        _check_name(name)
        parts = _PARTS if kind == "distribution" else ()
        reported = [self._prefix + name, *(f"{self._prefix}{name}.{part}" for part in parts)]
        for each in reported:
            owner, known, found = self._taken.get(each, (self, name, kind))
            if (owner, known, found) != (self, name, kind):
                raise ArgumentValueError("name", f"a name that no {found} has", brief(each))
        self._taken.update(dict.fromkeys(reported, (self, name, kind)))


_Owner = tuple[MetricGroup, str, str]
"""The group of a metric, its name in the group, and its kind."""


def _read(name: str, gauge: Callable[[], float]) -> float:
    """Return a gauge's number; a failure gets a note with the gauge's name."""
    try:
        number: float = _number(name, gauge())
    except Exception as error:
        error.add_note(f"The gauge {name!r} raised this.")
        raise
    return number


def _number(name: str, value: object) -> Any:
    """Return a metric's number as an int or a float, which JSON and all reporters accept."""
    if value.__class__ is int or value.__class__ is float:
        return value
    if isinstance(value, Integral):
        return operator.index(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    raise ArgumentTypeError(f"metric {name!r}", "a number", type(value).__name__)


def _check_name(name: str) -> None:
    check_type("name", name, str)
    check_label("name", name)
