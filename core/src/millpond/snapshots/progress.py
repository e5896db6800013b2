"""Log messages about the progress of long work, such as a restore."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_LOG = logging.getLogger("millpond.progress")
_SECONDS = 5.0
_COUNTED = 1024
T = TypeVar("T")


class ProgressLog:
    """A log of the progress of long work, every five seconds.

    Args:
        message: a function that takes the finished number of units, such as rows, and returns the
            message to log.
    """

    def __init__(self, message: Callable[[int], str]) -> None:
        self._message = message
        self._done = 0
        self._next = time.monotonic() + _SECONDS

    def add(self, count: int) -> None:
        """Add `count` finished units. Log the progress if the last message is five seconds old."""
        self._done += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS
            _LOG.warning("%s", self._message(self._done))

    def counted(self, rows: Iterable[T]) -> Iterator[T]:
        """Yield `rows`, each of which is a unit."""
        for number, row in enumerate(rows, 1):
            yield row
            if not number % _COUNTED:
                self.add(_COUNTED)
