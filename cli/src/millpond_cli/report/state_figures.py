"""Figures of the state of an operator: keys, rows, bytes, timers, and the largest keys."""

from __future__ import annotations

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
        key_group: its key group.
        rows: the number of its rows, for instance of the entries of its map.
        bytes: their size.
    """

    key: str
    key_group: int
    rows: int
    bytes: int


@attrs.define(kw_only=True)
class SizeFigures:
    """The size of one state: of all subtasks, or of one.

    Attributes:
        rows: the number of rows: of values, lists, entries of maps, or timers.
        keys: the number of keys that have rows; None for timers.
        bytes: the size of all keys and values, uncompressed.
    """

    rows: int = 0
    keys: int | None = 0
    bytes: int = 0

    @property
    def bytes_per_key(self) -> float | None:
        """The mean size of a key's state; None without keys."""
        return self.bytes / self.keys if self.keys else None

    def add(self, other: SizeFigures) -> None:
        """Add the size of another part of the state."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.keys = None if other.keys is None else (self.keys or 0) + other.keys


@attrs.define
class StateFigures(SizeFigures):
    """The figures of one state, over all subtasks.

    Attributes:
        name, kind, value: the name, the kind, and the type of the values.
        ttl_ms: the time to live; None without one.
        expired: the number of rows that have expired and are not removed yet.
        largest: the largest keys, the largest one first; empty for timers.
    """

    name: str
    kind: str
    value: str
    ttl_ms: int | None
    expired: int = 0
    largest: list[LargeKey] = attrs.field(factory=list)


@attrs.define
class GroupFigures:
    """The rows of all states in one key group, and their size."""

    rows: int = 0
    bytes: int = 0


@attrs.define
class SubtaskFigures:
    """The figures of one subtask, or of a whole savepoint.

    Attributes:
        first_group, last_group: the key groups.
        stored_bytes: the bytes that a restore reads; None in a savepoint.
        rows, bytes: the rows of all states and their size.
        states: the size of each state that has rows, by name.
    """

    first_group: int
    last_group: int
    stored_bytes: int | None
    rows: int = 0
    bytes: int = 0
    states: dict[str, SizeFigures] = attrs.field(factory=dict)


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
        subtasks: the figures of each subtask, by its range of key groups.
        groups: the figures of each key group that has rows.
        timers: the figures of the timers, by the name of their state.
    """

    operator: str
    checkpoint_id: int
    max_parallelism: int
    key: str
    states: list[StateFigures]
    operator_states: dict[str, int]
    subtasks: list[SubtaskFigures]
    groups: dict[int, GroupFigures]
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
        groups={},
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
        for rows in contents.state_rows(meta.name):  # the rows of one key group
            state.expired += len(rows) - len(live_rows(meta, rows, now))
            size = SizeFigures(rows=len(rows), keys=None, bytes=_size(rows))
            if meta.kind is StateKind.TIMER:
                start, end = layout.group_bytes, layout.group_bytes + TIMESTAMP_BYTES
                mine = times.setdefault(meta.name, array("q"))
                mine.extend(timestamp_from(physical[start:end]) for physical, _ in rows)
            else:
                size.keys = _count_keys(state, rows, part, layout)
            state.add(size)
            subtask.states.setdefault(meta.name, SizeFigures()).add(size)
            group = found.groups.setdefault(layout.group_of(rows[0][0]), GroupFigures())
            for total in (subtask, group):
                total.rows += size.rows
                total.bytes += size.bytes


def _size(rows: Sequence[Change]) -> int:
    return sum(len(key) + len(value or b"") for key, value in rows)


def _count_keys(
    state: StateFigures, rows: Sequence[Change], part: StoredOperator, layout: KeyLayout
) -> int:
    """Return the number of keys in a key group's rows, which are sorted; keep the largest ones."""
    count, largest, group = 0, state.largest, layout.group_of(rows[0][0])
    for key, mine in _by_key(rows, codec_from_snapshot(part.key), layout):
        count += 1
        size = _size(mine)
        if len(largest) < LARGEST or size > largest[-1].bytes:
            largest.append(LargeKey(shown(key), group, len(mine), size))
            largest.sort(key=lambda each: (each.bytes, each.rows, each.key), reverse=True)
            del largest[LARGEST:]
    return count


def _by_key(
    rows: Sequence[Change], keys: Any, layout: KeyLayout
) -> Iterator[tuple[Any, list[Change]]]:
    """Yield each key with its rows."""

    def end(row: Change) -> bytes:
        return row[0][: keys.decode(row[0], layout.group_bytes)[1]]

    for _, group in groupby(rows, key=end):
        mine = list(group)
        yield keys.decode(mine[0][0], layout.group_bytes)[0], mine
