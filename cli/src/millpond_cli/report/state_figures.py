"""Figures of the state of an operator: rows, keys, bytes, timers and largest keys."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Self

import attrs
from millpond.errors import shown
from millpond.snapshots.handles import KeyedStateHandle
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change, live_rows
from millpond.spi.tables import TIMESTAMP_BYTES, timestamp_from
from millpond.state.descriptors import StateKind
from millpond.state.state_meta import StateMeta
from millpond.types.key_columns import codec_from_snapshot

from millpond_cli.inspection.stored_operator import StoredOperator, state_table

BINS, HOUR_MS = 40, 3_600_000

LARGEST = 10
"""The number of largest keys that the report shows for each state."""


@attrs.frozen
class LargeKey:
    """A key with much state.

    Attributes:
        key: the key as text.
        rows: the number of its rows, for instance of the entries of its map.
        bytes: their size.
    """

    key: str
    rows: int
    bytes: int


@attrs.define
class StateFigures:
    """The figures of one state, over all subtasks.

    Attributes:
        name, kind, value: the name, the kind, and the type of the values.
        ttl_ms: the time to live; None without one.
        rows: the number of rows: of values, lists, entries of maps, or timers.
        keys: the number of keys that have rows; None for timers.
        bytes: the size of all keys and values, uncompressed.
        expired: the number of rows that have expired and are not removed yet.
        largest: the largest keys, the largest one first; empty for timers.
    """

    name: str
    kind: str
    value: str
    ttl_ms: int | None
    rows: int = 0
    keys: int | None = 0
    bytes: int = 0
    expired: int = 0
    largest: list[LargeKey] = attrs.field(factory=list)

    @property
    def bytes_per_key(self) -> float | None:
        """The mean size of a key's state; None without keys."""
        return self.bytes / self.keys if self.keys else None


@attrs.define
class SubtaskFigures:
    """The figures of one subtask, or of a whole savepoint.

    Attributes:
        first_group, last_group: the key groups.
        rows, bytes: the rows of all states and their size.
        stored_bytes: the bytes that a restore reads; None in a savepoint.
    """

    first_group: int
    last_group: int
    stored_bytes: int | None
    rows: int = 0
    bytes: int = 0


@attrs.frozen
class TimerFigures:
    """When the timers of a time domain are due.

    Attributes:
        first, last: the times of the first and the last timer in ms.
        span: the length in ms of a span of time.
        counts: the numbers of timers in `BINS` spans, one after the other, from the first timer on.
        overdue: the timers whose time has passed by more than an hour.
    """

    first: int
    last: int
    span: int
    counts: list[int]
    overdue: int

    @classmethod
    def of_times(cls, times: Sequence[int], now: int) -> Self:
        """Return the figures of at least one timer."""
        first, last = min(times), max(times)
        span = (last - first) // BINS + 1
        counts = Counter((time - first) // span for time in times)
        overdue = sum(time < now - HOUR_MS for time in times)
        return cls(first, last, span, [counts[number] for number in range(BINS)], overdue)


@attrs.frozen
class OperatorFigures:
    """The figures of an operator at one checkpoint.

    Attributes:
        operator: ``query/uid``, or the uid in a savepoint.
        key: the type of the keys.
        states: the keyed states and the timers.
        operator_states: the number of elements of each operator state, by name.
        subtasks: the subtasks by their key groups.
        groups: the rows of each key group that has some.
        timers: the figures of the timers, by the name of their state.
    """

    operator: str
    checkpoint_id: int
    max_parallelism: int
    key: str
    states: list[StateFigures]
    operator_states: dict[str, int]
    subtasks: list[SubtaskFigures]
    groups: Counter[int]
    timers: dict[str, TimerFigures]


def operator_figures(stored: StoredOperator, now: int) -> OperatorFigures:
    """Read the state of an operator, one subtask after the other, and return its figures.

    Args:
        stored: the operator.
        now: the processing time in ms at which states with a time to live have expired.
    """
    found = OperatorFigures(
        operator=str(stored.operator),
        checkpoint_id=stored.checkpoint_id,
        max_parallelism=stored.max_parallelism,
        key=str(stored.key),
        states=[_empty(meta) for meta in stored.states],
        operator_states={
            meta.name: state_table(stored, meta.name, scope=meta.scope).num_rows
            for meta in stored.operator_metas()
        },
        subtasks=[],
        groups=Counter(),
        timers={},
    )
    times: dict[str, array[int]] = {}
    for number, part in enumerate(stored.parts):
        subtask = SubtaskFigures(0, stored.max_parallelism - 1, None)
        if isinstance(part, KeyedStateHandle):
            groups = part.key_group_range
            subtask = SubtaskFigures(groups.start, groups.end, part.size)
        found.subtasks.append(subtask)
        _add_part(found, subtask, stored.part(number), now, times)
    found.timers.update({name: TimerFigures.of_times(each, now) for name, each in times.items()})
    found.subtasks.sort(key=lambda each: each.first_group)
    return found


def _empty(meta: StateMeta) -> StateFigures:
    made = StateFigures(meta.name, meta.kind.value, str(meta.value), meta.ttl_ms)
    if meta.kind is StateKind.TIMER:
        made.keys = None
    return made


def _add_part(
    found: OperatorFigures,
    subtask: SubtaskFigures,
    part: StoredOperator,
    now: int,
    times: dict[str, array[int]],
) -> None:
    """Add the rows of one part to the figures of its operator and its subtask.

    Args:
        found: the figures of the operator.
        subtask: the figures of the part.
        part: the part.
        now: the processing time in ms.
        times: the times of all timers so far, by the name of their state; the part's are appended.
    """
    contents, layout = part.contents(), KeyLayout(part.max_parallelism)
    figures = {each.name: each for each in found.states}
    for meta in part.states:
        state = figures[meta.name]
        for rows in contents.state_rows(meta.name):
            size = _size(rows)
            state.rows += len(rows)
            state.bytes += size
            state.expired += len(rows) - len(live_rows(meta, rows, now))
            subtask.rows += len(rows)
            subtask.bytes += size
            found.groups[layout.group_of(rows[0][0])] += len(rows)
            if meta.kind is StateKind.TIMER:
                start, end = layout.group_bytes, layout.group_bytes + TIMESTAMP_BYTES
                mine = times.setdefault(meta.name, array("q"))
                mine.extend(timestamp_from(physical[start:end]) for physical, _ in rows)
            else:
                _add_keys(state, rows, part, layout)


def _size(rows: Sequence[Change]) -> int:
    return sum(len(key) + len(value or b"") for key, value in rows)


def _add_keys(
    state: StateFigures, rows: Sequence[Change], part: StoredOperator, layout: KeyLayout
) -> None:
    """Count the keys of a key group's rows, which are sorted, and keep the largest ones."""
    keys = codec_from_snapshot(part.key)
    largest: list[tuple[int, int, Any]] = [(k.bytes, k.rows, k.key) for k in state.largest]
    for key, mine in _by_key(rows, keys, layout):
        state.keys = (state.keys or 0) + 1
        size = _size(mine)
        if len(largest) < LARGEST or size > largest[-1][0]:
            largest = heapq.nlargest(LARGEST, [*largest, (size, len(mine), shown(key))])
    state.largest = [LargeKey(key, count, size) for size, count, key in largest]


def _by_key(
    rows: Sequence[Change], keys: Any, layout: KeyLayout
) -> Iterator[tuple[Any, list[Change]]]:
    """Yield each key with its rows."""

    def end(row: Change) -> bytes:
        return row[0][: keys.decode(row[0], layout.group_bytes)[1]]

    for _, group in groupby(rows, key=end):
        mine = list(group)
        yield keys.decode(mine[0][0], layout.group_bytes)[0], mine
