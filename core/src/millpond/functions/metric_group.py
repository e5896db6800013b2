"""Metrics of a user's function: counters, gauges, distributions. Names are PyFlink's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeVar

import attrs

from millpond.arguments import check_type
from millpond.errors import ArgumentTypeError, ArgumentValueError, brief
from millpond.state.names import check_label

_PARTS = ("count", "sum", "min", "max")


@attrs.define
class Counter:
    """A metric that is a count."""

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

    def values(self) -> dict[str, float]:
        """Return a dict of the counter's name and count."""
        return {self._name: self._count}


@attrs.define
class Gauge:
    """A metric that calls a function for its number when the metrics are reported."""

    _name: str
    function: Callable[[], float] = int

    def values(self) -> dict[str, float]:
        """Return a dict of the gauge's name and the function's number.

        An exception of the function gets a note that names the gauge.
        """
        try:
            return {self._name: _number(self._name, self.function())}
        except Exception as error:
            error.add_note(f"The gauge {self._name!r} raised this.")
            raise


@attrs.define
class Distribution:
    """A metric of many values: their number, sum, minimum and maximum."""

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

    def values(self) -> dict[str, float]:
        """Return the four numbers by reported name, such as ``name.sum``.

        Return an empty dict if no value was added.
        """
        if not self._count:
            return {}
        values = (self._count, self._sum, self._min, self._max)
        return {f"{self._name}.{part}": value for part, value in zip(_PARTS, values, strict=True)}


Metric = Counter | Gauge | Distribution
M = TypeVar("M", Counter, Gauge, Distribution)


class MetricGroup:
    """A group of metrics. Two calls with the same name return the same metric.

    A counter, a gauge and a distribution cannot have the same name: ArgumentValueError is raised.
    On Spark a function and its metrics live for one micro-batch of one subtask.

    Args:
        prefix: the beginning of the names under which the metrics are reported.
        metrics: all metrics of the operator by reported name. All groups have this dict in common.
    """

    def __init__(self, prefix: str = "", metrics: dict[str, Metric] | None = None) -> None:
        self._prefix = prefix
        self._metrics: dict[str, Metric] = {} if metrics is None else metrics

    def add_group(self, name: str) -> MetricGroup:
        """Return a group within this group. Its metrics are reported as ``<name>.<metric>``."""
        return MetricGroup(f"{self._reported(name)}.", self._metrics)

    def counter(self, name: str) -> Counter:
        """Return the counter of this name; the counts of all subtasks are summed."""
        return self._metric(name, Counter)

    def gauge(self, name: str, function: Callable[[], float]) -> None:
        """Register a function that returns a number when the metrics are reported.

        If the function fails or returns no number, the operator fails.
        """
        check_type("function", function, Callable)
        self._metric(name, Gauge).function = function

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of this name."""
        return self._metric(name, Distribution)

    def values(self) -> dict[str, float]:
        """Return all metrics of this group and of the groups within it, by reported name."""
        found: dict[str, float] = {}
        for name, metric in self._metrics.items():
            if name.startswith(self._prefix):
                found |= metric.values()
        return found

    def _reported(self, name: str) -> str:
        check_type("name", name, str)
        check_label("name", name)
        return self._prefix + name

    def _metric(self, name: str, kind: type[M]) -> M:
        """Return the metric of a name and kind; make it if it is missing.

        Raises:
            ArgumentValueError: a metric of another kind is reported under this name.
        """
        reported = self._reported(name)
        known = self._metrics.get(reported)
        if known is None:
            known = self._metrics[reported] = kind(reported)
        if isinstance(known, kind):
            return known
        other = type(known).__name__.lower()
        raise ArgumentValueError("name", f"a name that no {other} has", brief(reported))


def _number(name: str, value: object) -> Any:
    """Return a metric's number as an int or a float, which JSON and all reporters accept."""
    if value.__class__ is int or value.__class__ is float:
        return value
    if isinstance(value, Integral):
        return operator.index(value)
    if isinstance(value, Real | Decimal):
        return float(value)
    raise ArgumentTypeError(f"metric {name!r}", "a number", type(value).__name__)
