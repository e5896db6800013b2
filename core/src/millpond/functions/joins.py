"""Ready-made joins of two keyed inputs: interval join, as-of join and lookup join."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

import attrs
from typing_extensions import TypeVar, override

from millpond.arguments import check_type
from millpond.errors import ConfigError, brief
from millpond.functions.functions import (
    Context,
    KeyedCoProcessFunction,
    RuntimeContext,
    timers_of,
)
from millpond.functions.row_conversion import row_converter
from millpond.functions.side_outputs import OutputTag
from millpond.functions.timed_rows import TimedRows, add_row, time_span
from millpond.functions.timer_service import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.functions.windows.window import milliseconds
from millpond.state import (
    SortedMapState,
    SortedMapStateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from millpond.types import DeclaredType
from millpond.types.rows import as_declared

K = TypeVar("K", default=Any)
LEFT = TypeVar("LEFT", default=Any)
RIGHT = TypeVar("RIGHT", default=Any)

Pairs: TypeAlias = Iterable[tuple[LEFT | None, RIGHT | None]]
"""The output of a join: pairs of a left and a right row, one of which may be missing."""

JoinType = Literal["inner", "left", "right", "full"]
"""The rows that a join puts out without a partner: none, those of one input, or those of both."""

LATE_LEFT: OutputTag[Any] = OutputTag("late_left")
"""The side output of a join for late rows of the left input, unchanged."""

LATE_RIGHT: OutputTag[Any] = OutputTag("late_right")
"""The side output of a join for late rows of the right input, unchanged."""

_FOREVER = MAX_TIMESTAMP - MIN_TIMESTAMP + 1
"""More ms than there are between any two times."""


class _Join(KeyedCoProcessFunction[K, LEFT, RIGHT, tuple[LEFT | None, RIGHT | None]]):
    """The base class of joins. The first input is the left one, the second input the right one.

    Attributes:
        pair: a function that takes a left and a right row, one of which may be None, and returns
            an output row. Spark's short forms replace it by one that returns the columns of both.
    """

    pair: Callable[[Any, Any], Any] = staticmethod(lambda left, right: (left, right))

    def __init__(self, how: str, allowed: Iterable[str]) -> None:
        if not isinstance(how, str) or how not in allowed:
            reason = f"expected one of {', '.join(allowed)}, got {brief(how)}"
            raise ConfigError("how", reason, self._place)
        self._keeps_left = how in ("left", "full")
        self._keeps_right = how in ("right", "full")

    @property
    def _place(self) -> str:
        return f"{type(self).__name__}(...)"

    @override
    def open(self, context: RuntimeContext) -> None:
        self._timers = timers_of(context)
        self._timer = _KeyTimer(context)
        self._late = context.own_metrics().counter("numLateRecords")


class _KeyTimer:
    """An event-time timer of each key, at the first time at which the key has something to do.

    With a timer for each row, a key with 20 rows between two watermarks would set and fire 20
    timers instead of one. Flink's as-of join has one timer per key, too.
    """

    def __init__(self, context: RuntimeContext) -> None:
        self._time = context.get_state(ValueStateDescriptor("timer", int))
        self._timers = timers_of(context)

    def pull_forward(self, time: int) -> None:
        """Set the timer to ``time``, unless it is set to an earlier time."""
        held = self._time.value()
        if held is not None:
            if held <= time:
                return
            self._timers.delete_event_time_timer(held)
        self.restart(time)

    def restart(self, time: int | None) -> None:
        """Set the timer after it has fired; None if the key has nothing to do."""
        self._time.update(time)
        if time is not None:
            self._timers.register_event_time_timer(time)


@attrs.frozen
class _Side:
    """One of the inputs of an interval join.

    Attributes:
        rows: the input's kept rows. With ``is_outer`` the value is a pair: whether the row has had
            a partner, and the row.
        convert: converts a row to the declared type.
        lower: the first time of a partner in the other input, relative to a row's time, in ms.
        upper: the last time of a partner. When the watermark reaches it, the row has no use.
        is_outer: whether rows without a partner are put out.
        late: the side output of late rows.
        pair: makes an output row of a row of this input and a row of the other input or None.
    """

    rows: TimedRows
    convert: Callable[[Any], Any]
    lower: int
    upper: int
    is_outer: bool
    late: OutputTag[Any]
    pair: Callable[[Any, Any], Any]

    def partners(self, time: int) -> list[Any]:
        """Return this input's rows for a row of the other input, and note that they have had one.

        Args:
            time: the time of the other input's row.
        """
        entries = self.rows.range(*time_span(time - self.upper, time - self.lower))
        if not self.is_outer:
            return [row for _, row in entries]
        found = []
        for key, (has_partner, row) in entries:
            if not has_partner:
                self.rows.put(key, (True, row))
            found.append(row)
        return found

    def keep(self, time: int, row: Any, *, has_partner: bool) -> None:
        """Keep a row of this input for later rows of the other one."""
        add_row(self.rows, time, (has_partner, row) if self.is_outer else row)

    def end(self, time: int) -> int:
        """Return the time at which a row of the time ``time`` has no use any more."""
        return min(time + self.upper, MAX_TIMESTAMP)

    def expire(self, watermark: int, output: list[Any]) -> int | None:
        """Remove the rows that have no use any more, and add those without a partner to ``output``.

        Returns:
            The time at which the first remaining row has no use any more, or None without rows.
        """
        for key, value in self.rows.range():
            end = self.end(key[0])
            if end > watermark:
                return end
            if self.is_outer and not value[0]:
                output.append(self.pair(value[1], None))
            self.rows.remove(key)
        return None


class IntervalJoin(_Join[K, LEFT, RIGHT]):
    """A join of the rows of two inputs whose event times are close to each other.

    A left row at time ``t`` and a right row of the same key match if the right row's time is
    between ``t + lower`` and ``t + upper``, both inclusive. An output row is the pair of a left row
    and a right row. The result does not depend on the order in which the rows arrive.

    A row is kept until the watermark shows that no later row can match it. In an outer join, a row
    without a partner is put out at that time, in a pair with None. A row is late if its time is
    less than or equal to the watermark. Late rows do not take part in the join. They go to the side
    outputs ``LATE_LEFT`` and ``LATE_RIGHT``.

    Args:
        left_type: the type of the left rows: DDL, a StructType, or any type that state can have.
            For a class, rows are converted to instances by the names of the fields.
        right_type: the type of the right rows.
        lower: the first time of matching right rows, relative to the left row: a timedelta or ms.
        upper: the last time of matching right rows.
        how: the rows to put out without a partner: of no input (``inner``), of the left or the
            right one, or of both (``full``).

    Raises:
        ConfigError: rows of a type cannot be stored, ``lower`` is greater than ``upper``, or an
            argument has a wrong value.
    """

    def __init__(
        self,
        left_type: DeclaredType[LEFT] | str,
        right_type: DeclaredType[RIGHT] | str,
        *,
        lower: timedelta | int,
        upper: timedelta | int,
        how: JoinType = "inner",
    ) -> None:
        super().__init__(how, get_args(JoinType))
        self._lower = milliseconds(lower, "lower", place=self._place)
        self._upper = milliseconds(upper, "upper", place=self._place)
        if self._lower > self._upper:
            reason = f"{self._lower} ms is greater than upper, {self._upper} ms"
            raise ConfigError("lower", reason, self._place)
        self._left = _timed_rows("left", left_type, flagged=self._keeps_left)
        self._right = _timed_rows("right", right_type, flagged=self._keeps_right)
        self._converters = row_converter(left_type), row_converter(right_type)

    @property
    def output_delay(self) -> int:
        """The time in ms by which rows of the output may be older than the watermark."""
        return max(0, self._upper, -self._lower)

    @override
    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        left, right = map(context.get_sorted_map_state, (self._left, self._right))
        pair = self.pair
        self._sides = (
            _Side(
                rows=left,
                convert=self._converters[0],
                lower=self._lower,
                upper=self._upper,
                is_outer=self._keeps_left,
                late=LATE_LEFT,
                pair=pair,
            ),
            _Side(
                rows=right,
                convert=self._converters[1],
                lower=-self._upper,
                upper=-self._lower,
                is_outer=self._keeps_right,
                late=LATE_RIGHT,
                pair=lambda mine, other: pair(other, mine),
            ),
        )

    @override
    def process_element1(self, row: LEFT, context: Context[K]) -> Pairs[LEFT, RIGHT]:
        left, right = self._sides
        return self._joined(left, right, row, context.event_time)

    @override
    def process_element2(self, row: RIGHT, context: Context[K]) -> Pairs[LEFT, RIGHT]:
        left, right = self._sides
        return self._joined(right, left, row, context.event_time)

    def _joined(self, mine: _Side, other: _Side, row: Any, time: int) -> list[Any]:
        """Return the output for a row of the input ``mine``, and keep it if that is of use."""
        watermark = self._timers.current_watermark()
        if time <= watermark:
            self._late.inc()
            return [(mine.late, row)]
        row = mine.convert(row)
        output = [mine.pair(row, partner) for partner in other.partners(time)]
        end = mine.end(time)
        if end > watermark:
            mine.keep(time, row, has_partner=bool(output))
            self._timer.pull_forward(end)
        elif mine.is_outer and not output:
            output.append(mine.pair(row, None))
        return output

    @override
    def on_timer(self, timestamp: int, context: Context[K]) -> Pairs[LEFT, RIGHT]:
        watermark = self._timers.current_watermark()
        output: list[Any] = []
        ends = [side.expire(watermark, output) for side in self._sides]
        self._timer.restart(min((end for end in ends if end is not None), default=None))
        return output


class AsOfJoin(_Join[K, LEFT, RIGHT]):
    """A join of each left row with the latest right row at or before the left row's event time.

    A left row waits until the watermark reaches its time. Then it is put out in a pair with the
    right row of its key that has the greatest time of all right rows up to its own time. If several
    right rows have the same time, the one that arrived last counts. So right rows may arrive after
    the left row, in any order.

    The join keeps, for each key, the latest right row up to the watermark, and the right rows after
    the watermark. A late left row, with a time less than or equal to the watermark, goes to the
    side output ``LATE_LEFT``. A late right row is used for the left rows that have not been put out
    yet.

    Args:
        left_type: the type of the left rows: DDL, a StructType, or any type that state can have.
            For a class, rows are converted to instances by the names of the fields.
        right_type: the type of the right rows.
        how: ``inner`` drops a left row without a right row, ``left`` puts it out in a pair with
            None.
        tolerance: how much older than the left row the right row may be, a timedelta or ms. Older
            right rows are removed. By default there is no limit, and the join keeps a right row of
            each key for ever.

    Raises:
        ConfigError: rows of a type cannot be stored, or an argument has a wrong value.
    """

    def __init__(
        self,
        left_type: DeclaredType[LEFT] | str,
        right_type: DeclaredType[RIGHT] | str,
        *,
        how: Literal["inner", "left"] = "inner",
        tolerance: timedelta | int | None = None,
    ) -> None:
        super().__init__(how, ("inner", "left"))
        self._tolerance = _FOREVER
        if tolerance is not None:
            self._tolerance = milliseconds(tolerance, "tolerance", least=0, place=self._place)
        self._left_rows = _timed_rows("left", left_type)
        value: Any = right_type
        self._right_rows = SortedMapStateDescriptor("right", int, value)
        self._right_rows.value_serializer()  # raises now if the type cannot be stored
        self._converters = row_converter(left_type), row_converter(right_type)

    @override
    def open(self, context: RuntimeContext) -> None:
        super().open(context)
        self._left = context.get_sorted_map_state(self._left_rows)
        self._right = context.get_sorted_map_state(self._right_rows)

    @override
    def process_element1(self, row: LEFT, context: Context[K]) -> Pairs[LEFT, RIGHT] | None:
        time = context.event_time
        if time <= self._timers.current_watermark():
            self._late.inc()
            late: list[Any] = [(LATE_LEFT, row)]
            return late
        add_row(self._left, time, self._converters[0](row))
        self._timer.pull_forward(time)
        return None

    @override
    def process_element2(self, row: RIGHT, context: Context[K]) -> None:
        time = context.event_time
        self._right.put(time, self._converters[1](row))
        self._timer.pull_forward(time)

    @override
    def on_timer(self, timestamp: int, context: Context[K]) -> Pairs[LEFT, RIGHT]:
        watermark = self._timers.current_watermark()
        output: list[Any] = []
        versions, next_left = _Versions(self._right), None
        for key, row in self._left.range():
            time = key[0]
            if time > watermark:
                next_left = time
                break
            match = versions.at(time)
            if match is not None and match[0] < time - self._tolerance:
                match = None
            if match is not None or self._keeps_left:
                output.append(self.pair(row, None if match is None else match[1]))
            self._left.remove(key)
        self._timer.restart(self._clean_up(versions, next_left, watermark))
        return output

    def _clean_up(self, versions: _Versions, next_left: int | None, watermark: int) -> int | None:
        """Remove the right rows that have no use any more; return the next time of the timer.

        Args:
            versions: the right rows of the key.
            next_left: the time of the first waiting left row, if there is one.
            watermark: the watermark.
        """
        times = [] if next_left is None else [next_left]
        latest = versions.at(watermark)
        if latest is not None:
            end = latest[0] + self._tolerance
            if end <= watermark:
                self._right.remove(latest[0])
            elif end <= MAX_TIMESTAMP:
                times.append(end)
        if versions.following is not None:
            times.append(versions.following[0])
        return min(times, default=None)


class _Versions:
    """The right rows of a key in an as-of join, in the order of time.

    Attributes:
        following: the first right row behind the time that ``at`` was called with, and its time.
    """

    def __init__(self, rows: SortedMapState[int, Any]) -> None:
        self._rows = rows
        self._entries = rows.range()
        self._latest: tuple[int, Any] | None = None
        self.following = next(self._entries, None)

    def at(self, time: int) -> tuple[int, Any] | None:
        """Return the latest right row up to ``time`` with its time, and remove earlier ones.

        Each call must have a greater ``time`` than the call before, or the same.
        """
        while self.following is not None and self.following[0] <= time:
            if self._latest is not None:
                self._rows.remove(self._latest[0])
            self._latest, self.following = self.following, next(self._entries, None)
        return self._latest


class LookupJoin(_Join[K, LEFT, RIGHT]):
    """A join of each left row with the row that its key has in a table, at the time of arrival.

    The right input is the table: each of its rows replaces the earlier row of the key. If right
    rows have event times, a row does not replace a row with a greater event time. An output row is
    the pair of a left row and the table's row. A left row is put out when it arrives, and a later
    change of the table does not change the output.

    On Spark, the table's rows of a micro-batch come before the left rows. In ``mp.local.run``, they
    come before the left rows of the same event time, or before all left rows without event time.

    Args:
        right_type: the type of the table's rows: DDL, a StructType, or any type that state can
            have. For a class, rows are converted to instances by the names of the fields.
        how: ``inner`` drops a left row whose key is not in the table, ``left`` puts it out in a
            pair with None.
        ttl: the time after which a row of the table expires. By default the table keeps a row of
            each key for ever.

    Raises:
        ConfigError: rows of the type cannot be stored, or an argument has a wrong value.
    """

    second_input_first = True

    def __init__(
        self,
        right_type: DeclaredType[RIGHT] | str,
        *,
        how: Literal["inner", "left"] = "inner",
        ttl: StateTtlConfig | None = None,
    ) -> None:
        super().__init__(how, ("inner", "left"))
        check_type("ttl", ttl, StateTtlConfig | None)
        kind: Any = tuple[int, as_declared(right_type)]  # type: ignore[misc]  # at run time
        self._descriptor = ValueStateDescriptor("right", kind)
        self._descriptor.value_serializer()  # raises now if the type cannot be stored
        if ttl is not None:
            self._descriptor.enable_time_to_live(ttl)
        self._convert = row_converter(right_type)

    @override
    def open(self, context: RuntimeContext) -> None:
        self._table: ValueState[tuple[int, Any]] = context.get_state(self._descriptor)

    @override
    def process_element1(self, row: LEFT, context: Context[K]) -> Pairs[LEFT, RIGHT] | None:
        match = self._table.value()
        if match is not None:
            return [self.pair(row, match[1])]
        return [self.pair(row, None)] if self._keeps_left else None

    @override
    def process_element2(self, row: RIGHT, context: Context[K]) -> None:
        time = MIN_TIMESTAMP if context.timestamp is None else context.timestamp
        held = self._table.value()
        if held is None or held[0] <= time:
            self._table.update((time, self._convert(row)))


def _timed_rows(
    name: str, row_type: DeclaredType[Any] | str, *, flagged: bool = False
) -> SortedMapStateDescriptor[tuple[int, int], Any]:
    """Return the descriptor of ``TimedRows``; raise ConfigError if the rows cannot be stored.

    Args:
        name: the name of the state.
        row_type: the declared type of the rows.
        flagged: whether each value is a pair of a bool and a row.
    """
    value: Any = row_type
    if flagged:
        value = tuple[bool, as_declared(row_type)]  # type: ignore[misc]  # known at run time
    descriptor = SortedMapStateDescriptor(name, tuple[int, int], value)
    descriptor.value_serializer()
    return descriptor
