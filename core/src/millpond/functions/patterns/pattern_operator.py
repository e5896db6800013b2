"""``millpond.patterns.pattern(…)``: the search for a pattern as a keyed function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import attrs
from typing_extensions import override

from millpond.arguments import check_type, unstarted_kind
from millpond.functions.functions import BuiltInFunction, Context, RuntimeContext, timers_of
from millpond.functions.patterns.matcher import Automaton, Matcher, Node, StoredMatches
from millpond.functions.patterns.pattern import Match, Pattern
from millpond.functions.row_conversion import row_converter
from millpond.functions.side_outputs import OutputTag
from millpond.functions.timed_rows import add_row, time_span
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from millpond.functions.user_code import result_error, rows_of
from millpond.state import MapStateDescriptor, SortedMapStateDescriptor, ValueStateDescriptor
from millpond.types import DeclaredType
from millpond.types.rows import as_declared


@attrs.frozen
class PatternSearch:
    """The settings of a search for a pattern.

    ``select`` and ``flat_select`` return a keyed function with these settings. Pass the function to
    ``mp.local.run``, to the harness, or to ``key_by(…).process``.
    """

    _pattern: Pattern
    _row_type: DeclaredType[Any] | str
    _is_event_time: bool = True
    _late: OutputTag | None = None
    _timed_out: tuple[OutputTag, Callable[[Match], object]] | None = None

    def in_processing_time(self) -> Self:
        """Return these settings for a search in the order in which the rows arrive.

        The time of a row is then the processing time. By default rows are processed in the order of
        their event times, when the watermark has reached them.
        """
        return attrs.evolve(self, is_event_time=False)

    def side_output_late_data(self, tag: OutputTag) -> Self:
        """Return these settings with a side output of late rows, which are dropped by default.

        A row is late if its event time is not after the watermark.
        """
        check_type("tag", tag, OutputTag)
        return attrs.evolve(self, late=tag)

    def side_output_timed_out(self, tag: OutputTag, select: Callable[[Match], object]) -> Self:
        """Return these settings with a side output of partial matches whose time is over.

        Args:
            tag: the tag of the side output.
            select: a function that takes the rows of the partial match by stage, and returns a row
                of the side output.
        """
        check_type("tag", tag, OutputTag)
        check_type("select", select, Callable)
        return attrs.evolve(self, timed_out=(tag, select))

    def select(self, function: Callable[[Match], object]) -> PatternOperator:
        """Return a keyed function that outputs one row for each match.

        Args:
            function: a function that takes the rows of the match by stage, and returns a row.
        """
        return self._operator(function, one_row=True)

    def flat_select(self, function: Callable[[Match], Iterable[object] | None]) -> PatternOperator:
        """Return a keyed function that outputs any number of rows for each match.

        Args:
            function: a function that takes the rows of the match by stage, and yields rows or
                returns a list of them.
        """
        return self._operator(function, one_row=False)

    def _operator(self, function: Callable[[Match], object], *, one_row: bool) -> PatternOperator:
        check_type("function", function, Callable)
        return PatternOperator(
            self._pattern,
            self._row_type,
            function,
            one_row=one_row,
            is_event_time=self._is_event_time,
            late=self._late,
            timed_out=self._timed_out,
        )


def pattern(pattern: Pattern, row_type: DeclaredType[Any] | str) -> PatternSearch:
    """Return the search for a pattern in keyed rows; the result's methods take a function.

    Args:
        pattern: the pattern.
        row_type: the type of the rows: DDL, a StructType, or any type that state can have. Rows are
            stored until they can no longer be part of a match.

    Raises:
        ConfigError: the pattern could never match, or rows of that type cannot be stored.
    """
    check_type("pattern", pattern, Pattern)
    pattern.check()
    declared: Any = row_type
    ValueStateDescriptor("row", declared).value_serializer()  # raises an error for a wrong type
    return PatternSearch(pattern, row_type)


class PatternOperator(BuiltInFunction):
    """Searches the rows of each key for a pattern. ``PatternSearch`` makes this function.

    By event time, a row waits in a sorted map until the watermark reaches the row's time. Then all
    waiting rows up to the watermark are processed in order. A row that a partial match needs is
    stored in a second map until no partial match needs it any longer.
    """

    subject = "patterns"

    def __init__(
        self,
        pattern: Pattern,
        row_type: DeclaredType[Any] | str,
        select: Callable[[Match], object],
        *,
        one_row: bool,
        is_event_time: bool,
        late: OutputTag | None,
        timed_out: tuple[OutputTag, Callable[[Match], object]] | None,
    ) -> None:
        self._pattern = pattern
        self._row_type = row_type
        self._select = select
        self._one_row = one_row
        self.is_event_time = is_event_time
        self._domain = TimeDomain.EVENT_TIME if is_event_time else TimeDomain.PROCESSING_TIME
        self._late = late
        self._timed_out = timed_out

    @property
    @override
    def fires_by_clock(self) -> bool:
        return not self.is_event_time and self._pattern.duration is not None

    @property
    @override
    def users_function(self) -> Callable[..., Any]:
        return self._select

    @override
    def open(self, context: RuntimeContext) -> None:
        row_type: Any = as_declared(self._row_type)
        self._automaton = Automaton(self._pattern)
        self._converted = row_converter(row_type)
        waiting = SortedMapStateDescriptor("waiting", tuple[int, int], row_type)
        self._waiting = context.get_sorted_map_state(waiting)
        self._taken = context.get_map_state(MapStateDescriptor("taken", int, row_type))
        self._matches = context.get_state(ValueStateDescriptor("matches", StoredMatches))
        self._timers = timers_of(context)
        self._late_rows = context.own_metrics().counter("numLateRecordsDropped")

    @override
    def process_element(self, row: Any, context: Context) -> Iterable[Any] | None:
        """Process a row; by event time, store it until the watermark reaches its time."""
        if not self.is_event_time:
            now = self._timers.current_processing_time()
            return self._processed([(now, self._converted(row))], now)
        time = context.event_time
        if time <= self._timers.current_watermark():
            return self._put_aside(row)
        add_row(self._waiting, time, self._converted(row))
        self._timers.register(self._domain, time)
        return None

    def _put_aside(self, row: Any) -> list[Any]:
        """Output a late row to its side output, or drop it."""
        if self._late is not None:
            return [(self._late, row)]
        self._late_rows.inc()
        return []

    @override
    def on_timer(self, timestamp: int, context: Context) -> Iterable[Any]:
        """Process the waiting rows that are due, and end partial matches whose time is over."""
        now = self._timers.current_watermark()
        if self.is_event_time:
            return self._processed(self._due(timestamp, now), now)
        if now < MAX_TIMESTAMP:  # else the input has ended
            now = max(self._timers.current_processing_time(), timestamp + 1)
        return self._processed([], now)

    def _due(self, timestamp: int, now: int) -> Iterator[tuple[int, Any]]:
        """Yield the waiting rows up to the watermark ``now`` with their times, and remove them.

        Remove their timers too, except the timer for ``timestamp``, which fires.
        """
        for (time, number), row in self._waiting.range(*time_span(MIN_TIMESTAMP, now)):
            self._waiting.remove((time, number))
            if number == 0 and time != timestamp:
                self._timers.delete(self._domain, time)
            yield time, row

    def _processed(self, rows: Iterable[tuple[int, Any]], now: int) -> Iterator[Any]:
        """Process rows with their times, and yield the output rows up to the time ``now``."""
        before = self._matches.value()
        matcher = Matcher(self._automaton, before, self._taken.get)
        for time, row in rows:
            yield from self._advanced(matcher, time)
            yield from self._selected(matcher, matcher.process(row, time))
        yield from self._advanced(matcher, now)
        self._store(matcher, before)
        duration = self._pattern.duration
        if duration is not None and matcher.partials:
            first = min(node.first_time for node, _ in matcher.partials)
            # A processing-time timer fires when the clock has passed its time.
            over = first + duration - (0 if self.is_event_time else 1)
            self._timers.register(self._domain, min(over, MAX_TIMESTAMP))

    def _advanced(self, matcher: Matcher, time: int) -> Iterator[Any]:
        """Advance the time of the partial matches, and yield the output rows."""
        completed, over = matcher.advance(time)
        yield from self._selected(matcher, completed)
        if self._timed_out is not None:
            tag, select = self._timed_out
            for node in over:
                yield tag, self._one(select, matcher.match(node))

    def _selected(self, matcher: Matcher, found: list[Node]) -> Iterator[Any]:
        """Yield the output rows of matches, whose last nodes are in ``found``."""
        for node in found:
            match = matcher.match(node)
            if self._one_row:
                yield self._one(self._select, match)
            else:
                result = self._select(match)
                yield from () if result is None else rows_of(self._select, result)

    @staticmethod
    def _one(select: Callable[[Match], object], match: Match) -> Any:
        """Return the row that a user's function returns for a match."""
        row = select(match)
        if unstarted_kind(row):
            raise result_error(select, row, "one row")
        return row

    def _store(self, matcher: Matcher, before: StoredMatches | None) -> None:
        """Store the partial matches and their rows, and remove the rows that are not needed."""
        after = matcher.to_stored()
        if after == before:
            return
        needed = set() if after is None else {row for _, _, row, _ in after.nodes}
        for number in matcher.stored_rows - needed:
            self._taken.remove(number)
        for number in needed - matcher.stored_rows:
            self._taken[number] = matcher.row(number)
        if after is None:
            self._matches.clear()
        else:
            self._matches.update(after)
