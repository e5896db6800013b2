"""The time of a keyed function: the watermark, processing time, and timers."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from millpond.arguments import check_type
from millpond.backend.subtask_states import SubtaskStates
from millpond.backend.timer_queue import Timer, TimerQueue
from millpond.clock import Clock
from millpond.errors import MillpondError
from millpond.types import VOID_NAMESPACE, DeclaredKeyType, VoidNamespace

MIN_TIMESTAMP = -(1 << 63)
"""The initial watermark, lower than any later one."""

MAX_TIMESTAMP = (1 << 63) - 1
"""The watermark after the last row of input that ends."""


class TimeDomain(enum.Enum):
    """The time that a timer waits for: event time or processing time."""

    EVENT_TIME = "event-time"
    PROCESSING_TIME = "processing-time"


RefusedTimers: TypeAlias = Mapping[TimeDomain, Callable[[], MillpondError]]
"""The time domains whose timers cannot be set, each with a function that returns the error."""


class TimerService:
    """The timers of the current key; the names are PyFlink's.

    A key has at most one timer for each time: a timer that is set twice fires once. Timers fire in
    the order of their times. If ``on_timer`` sets a timer that is already due, that timer fires
    immediately. As in Flink, an event-time timer is due once the watermark has reached the timer's
    time. A processing-time timer is due once the clock has passed the timer's time.
    """

    def __init__(
        self,
        backend: SubtaskStates,
        clock: Clock,
        namespace_type: DeclaredKeyType[Any] | None = None,
        refused: RefusedTimers | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._namespace_type = VoidNamespace if namespace_type is None else namespace_type
        self._watermark = MIN_TIMESTAMP
        self._key_has_ended = False
        self._queues: dict[TimeDomain, TimerQueue] = {}
        self._refused = {} if refused is None else refused
        self._growing: dict[TimeDomain, TimerQueue] = {}

    def _queue(self, domain: TimeDomain) -> TimerQueue:
        """Return the timer queue of ``domain``; the backend opens the queue at the first call."""
        if not isinstance(domain, TimeDomain):
            check_type("domain", domain, TimeDomain)
        queue = self._queues.get(domain)
        if queue is None:
            queue = self._backend.timer_queue(domain.value, self._namespace_type)
            self._queues[domain] = queue
        return queue

    def _growing_queue(self, domain: TimeDomain) -> TimerQueue:
        """Return the timer queue of ``domain``; raise an error if the stream refuses new timers."""
        queue = self._queue(domain)
        refusal = self._refused.get(domain)
        if refusal is not None:
            raise refusal()
        self._growing[domain] = queue
        return queue

    def due(self, domain: TimeDomain, timestamp: int) -> Iterator[Timer]:
        """Remove and yield the timers of a domain whose time is at most ``timestamp``."""
        if self._backend.has_timers(domain.value):
            yield from self._queue(domain).due(timestamp)

    def current_watermark(self) -> int:
        """Return the watermark in ms; MIN_TIMESTAMP before the first watermark."""
        return self._watermark

    def current_processing_time(self) -> int:
        """Return the processing time in ms since the epoch; on Spark that of the micro-batch."""
        return self._clock.now_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        """Set a timer that fires once the watermark reaches ``timestamp``, in ms."""
        self.register(TimeDomain.EVENT_TIME, timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Set a timer that fires once the processing time has passed ``timestamp``, in ms."""
        self.register(TimeDomain.PROCESSING_TIME, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Remove an event-time timer, if it is set."""
        self.delete(TimeDomain.EVENT_TIME, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Remove a processing-time timer, if it is set."""
        self.delete(TimeDomain.PROCESSING_TIME, timestamp)

    def register(self, domain: TimeDomain, timestamp: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Set a timer of the current key, in ``namespace``.

        Raises:
            NoWatermarkError: ``domain`` is event time, and the stream on Spark has no watermark.
            TimeModeError: ``domain`` is processing time, the stream on Spark has a watermark, and
                no ``time_mode`` is chosen.
        """
        if not self._key_has_ended:
            # Once the first timer of a domain was accepted, this look-up finds the queue.
            try:
                queue = self._growing[domain]
            except (KeyError, TypeError):  # TypeError if the domain is unhashable
                queue = self._growing_queue(domain)
            queue.register(timestamp, namespace)

    def put_back(self, domain: TimeDomain, timer: Timer) -> None:
        """Set a due timer again, whose key must be the current key, so that it is yielded again."""
        self._queue(domain).register(timer.timestamp, timer.namespace)

    def delete(self, domain: TimeDomain, timestamp: int, namespace: Any = VOID_NAMESPACE) -> None:
        """Remove a timer of the current key in ``namespace``, if the timer is set."""
        self._queue(domain).delete(timestamp, namespace)

    def namespace_bytes(self, domain: TimeDomain, namespace: Any) -> bytes:
        """Return the bytes that identify a namespace in stored timers.

        Raises:
            StateTypeError: the namespace is not of the declared type.
        """
        return self._queue(domain).namespace_bytes(namespace)

    def advance_watermark(self, timestamp: int) -> Iterator[Timer]:
        """Raise the watermark to ``timestamp``, in ms, and yield the due timers.

        Do nothing if the watermark is already that high.
        """
        if timestamp > self._watermark:
            self._watermark = timestamp
            yield from self.due(TimeDomain.EVENT_TIME, timestamp)

    def next_due(self) -> tuple[int | None, int | None]:
        """Return the times in ms of the first event-time timer and the first processing-time timer.

        A time is None if there is no such timer.
        """
        event, clock = (
            self._queue(domain).earliest() if self._backend.has_timers(domain.value) else None
            for domain in TimeDomain
        )
        return event, clock

    def end_key(self, domain: TimeDomain) -> Iterator[Timer]:
        """Yield the current key's remaining timers of ``domain``, in batch execution.

        This method is called after the key's last row. While the timers fire, the watermark is
        MAX_TIMESTAMP, and new timers are ignored, because a timer that sets itself again would fire
        for ever. The rules are Flink's.
        """
        self._watermark, self._key_has_ended = MAX_TIMESTAMP, True
        try:
            if self._backend.has_timers(domain.value):
                yield from self._queue(domain).take_all()
        finally:
            self._watermark, self._key_has_ended = MIN_TIMESTAMP, False

    def due_by_processing_time(self) -> Iterator[Timer]:
        """Yield the processing-time timers whose time has passed."""
        now = self._clock.now_ms
        if now > MIN_TIMESTAMP:  # no timer has an earlier time
            yield from self.due(TimeDomain.PROCESSING_TIME, now - 1)
