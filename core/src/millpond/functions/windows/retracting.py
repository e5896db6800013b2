"""Accumulators of evicting windows, from which what an evictor has dropped is taken out again."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy
from datetime import date, datetime
from itertools import compress, islice
from operator import is_, not_
from typing import Any

from millpond.functions.windows.evictors import TimestampedValue
from millpond.functions.windows.merging import NameOf
from millpond.functions.windows.window import TimeWindow
from millpond.state import AggregateFunction
from millpond.types.rows import Row

__all__ = ["RunningAggregates", "can_retract"]

_MOST = 1000
"""So many windows are remembered; of others all elements are aggregated anew."""
_EXACT = frozenset({str, int, bool, bytes, date, datetime, uuid.UUID, type(None)})
"""Keys of these types are the same exactly when Python calls them equal."""


def can_retract(function: AggregateFunction) -> bool:
    """Whether a function defines ``retract``."""
    return type(function).retract is not AggregateFunction.retract


class RunningAggregates:
    """What the elements of windows come to, brought up to date at each firing.

    It lives as long as its operator and is no state: the first firing of a window after a restore,
    on Spark in a micro-batch, aggregates all its elements. An accumulator covers the first elements
    of a window's list, in their order.

    Args:
        function: that can retract.
        name_of: by what two windows are the same.
    """

    def __init__(self, function: AggregateFunction, name_of: NameOf) -> None:
        self._function = function
        self._name_of = name_of
        self._known: OrderedDict[tuple[Any, Any], tuple[Any, int]] = OrderedDict()

    def result(
        self,
        key: Any,
        namespace: TimeWindow,
        given: Sequence[TimestampedValue],
        left: Sequence[TimestampedValue],
    ) -> Any:
        """The result of what an evictor has left of a window's elements."""
        function, stay = self._function, _staying(given, left)
        accumulator, covered = self._taken(key, namespace)
        if not covered or not left or stay is None:
            accumulator = function.create_accumulator()
            for element in left:
                accumulator = function.add(element.value, accumulator)
        else:
            for element, stays in zip(given[covered:], stay[covered:], strict=True):
                if stays:
                    accumulator = function.add(element.value, accumulator)
            accumulator = self._without(accumulator, given[:covered], stay)
        if stay is not None:
            self._remember(key, namespace, accumulator, len(left))
        return function.get_result(deepcopy(accumulator))

    def evicted(
        self,
        key: Any,
        namespace: TimeWindow,
        left: Sequence[TimestampedValue],
        kept: Sequence[TimestampedValue],
    ) -> None:
        """An evictor has dropped more after the firing."""
        stay = _staying(left, kept)
        if stay is not None and all(stay):
            return
        accumulator, covered = self._taken(key, namespace)
        if covered and stay is not None:
            accumulator = self._without(accumulator, left, stay)
            self._remember(key, namespace, accumulator, len(kept))

    def forget(self, key: Any, *namespaces: TimeWindow) -> None:
        """The elements of these windows have been dropped, or put together."""
        if _exact(key):
            for namespace in namespaces:
                self._known.pop((key, self._name_of(namespace)), None)

    def _taken(self, key: Any, namespace: TimeWindow) -> tuple[Any, int]:
        """The accumulator of a window and how many elements it covers: 0 where none is known."""
        nothing = (None, 0)
        return self._known.pop((key, self._name_of(namespace)), nothing) if _exact(key) else nothing

    def _without(
        self, accumulator: Any, elements: Sequence[TimestampedValue], stay: Sequence[bool]
    ) -> Any:
        for element in compress(elements, map(not_, stay)):
            accumulator = self._function.retract(element.value, accumulator)
        return accumulator

    def _remember(self, key: Any, namespace: TimeWindow, accumulator: Any, count: int) -> None:
        if _exact(key):
            self._known[key, self._name_of(namespace)] = (accumulator, count)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)


def _exact(key: Any) -> bool:
    if type(key) is tuple or isinstance(key, Row):
        return all(map(_exact, tuple(key)))
    return type(key) in _EXACT


def _staying(
    given: Sequence[TimestampedValue], left: Sequence[TimestampedValue]
) -> list[bool] | None:
    """Which elements an evictor has left; None where it gave others, or another order."""
    gone = len(given) - len(left)
    if gone >= 0 and all(map(is_, islice(given, gone, None), left)):  # a loop in C
        return [False] * gone + [True] * len(left)
    stay, at = [], 0
    for element in given:
        stays = at < len(left) and element is left[at]
        stay.append(stays)
        at += stays
    return stay if at == len(left) else None
