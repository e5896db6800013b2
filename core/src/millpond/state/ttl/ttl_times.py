"""The time of a state with TTL: processing time or event time."""

from __future__ import annotations

from datetime import timedelta

from millpond.arguments import INT64
from millpond.clock import Clock, EventTime
from millpond.state.ttl.expiry_rule import as_timestamp, own_expiry
from millpond.state.ttl.ttl_config import StateTtlConfig, TtlTime, ttl_in_ms


class TtlTimes:
    """The time of one state with TTL: that of reads, and that of writes.

    By processing time, both are the clock. By event time, reads compare timestamps with the
    watermark, and writes store the event time of the current row.

    Args:
        ttl: the TTL of the state.
        clock: the processing time.
        event_time: the event time.

    Attributes:
        reads: the time at which entries have expired or not.
        writes: the timestamp of new entries.
        by_event: whether the time is event time.
    """

    def __init__(self, ttl: StateTtlConfig, clock: Clock, event_time: EventTime) -> None:
        self.by_event = ttl.time is TtlTime.EVENT_TIME
        if self.by_event and event_time.refusal is not None:
            raise event_time.refusal()
        self._ttl_ms = ttl.ttl_ms
        self._oldest = INT64[1]
        self.reads: Clock = clock
        self.writes: Clock = clock
        if self.by_event:
            self.reads, self.writes = event_time, _RowTimes(self, clock, event_time)

    def own_expiry(self, ttl: timedelta) -> int:
        """Return the own expiry of an entry that is written now with the time to live `ttl`.

        Raises:
            ConfigError: `ttl` is not at least 1 ms, or not a whole number of ms.
        """
        stamp = own_expiry(ttl_in_ms(ttl), self.writes.now_ms)
        self.note(as_timestamp(stamp, self._ttl_ms))
        return stamp

    def note(self, stamp: int) -> None:
        """Note for the clean-up that an entry with the timestamp `stamp` is written."""
        self._oldest = min(self._oldest, stamp)

    def take_oldest(self) -> int:
        """Return the oldest noted timestamp since the last call; 2**63 - 1 if there is none."""
        oldest, self._oldest = self._oldest, INT64[1]
        return oldest

    def lower_bound(self) -> int:
        """Return a time such that all entries that are written later are younger, or are noted."""
        now = self.reads.now_ms
        return INT64[1] if now == INT64[0] else now


class _RowTimes:
    """The clock of writes by event time, which notes each timestamp for the clean-up."""

    def __init__(self, times: TtlTimes, clock: Clock, event_time: EventTime) -> None:
        self._times, self._clock, self._event_time = times, clock, event_time

    @property
    def now_ms(self) -> int:
        """The timestamp of an entry that is written now."""
        stamp = self._event_time.stamp_ms(self._clock)
        self._times.note(stamp)
        return stamp
