"""Advice on figures: what looks wrong with the state of an operator, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

import attrs
from millpond.backend.timer_queue import timer_state
from millpond.functions.timer_service import TimeDomain

from millpond_cli.report.history import BatchFigures, StaleFiles, StatesAt
from millpond_cli.report.state_figures import OperatorFigures, SizeFigures, StateFigures

MIB, SECOND_MS = 1 << 20, 1000

FEW_CHECKPOINTS = 5
"""The checkpoints over which a state must have grown; over fewer ones it may be by chance."""

FEW_ROWS = 1000
"""The rows per batch below which their skew does not matter."""


@attrs.frozen
class Advice:
    """A warning with its cure.

    Attributes:
        what: the warning, in one sentence.
        cure: what to do, in one or two sentences.
    """

    what: str
    cure: str


def state_advice(operator: OperatorFigures, growth: Sequence[StatesAt]) -> Iterator[Advice]:
    """Yield the warnings about the state of an operator.

    Args:
        operator: the figures of the operator.
        growth: the sizes of its states at some retained checkpoints, the newest one last.
    """
    yield from _skew(operator)
    for state in operator.states:
        yield from _hot_key(state)
        yield from _expired(state)
    yield from _growth(operator, growth)
    yield from _overdue(operator)


def _skew(operator: OperatorFigures) -> Iterator[Advice]:
    sizes = [each.bytes for each in operator.subtasks]
    if len(sizes) > 1 and max(sizes) > MIB and max(sizes) > 2 * mean(sizes):
        most = max(operator.subtasks, key=lambda each: each.bytes)
        yield Advice(
            f"The subtask with the key groups {most.first_group}-{most.last_group} has "
            f"{most.bytes / mean(sizes):.1f} times the mean size.",
            "A batch takes as long as its slowest subtask. If few keys are large, they are among "
            "the largest keys on the page. Otherwise a larger parallelism divides the keys better.",
        )


def _hot_key(state: StateFigures) -> Iterator[Advice]:
    if state.largest and state.keys and state.keys > 1 and state.largest[0].bytes > MIB / 10:
        first = state.largest[0]
        if first.bytes > state.bytes / 10:
            yield Advice(
                f"The key {first.key} has {first.bytes / state.bytes:.0%} of the bytes of the "
                f"state {state.name!r}.",
                "A single key is always in one subtask. Limit what the state keeps for a key, or "
                "add a part to the key and combine the results in a second operator.",
            )


def _expired(state: StateFigures) -> Iterator[Advice]:
    if state.rows and state.expired > state.rows / 2:
        yield Advice(
            f"{state.expired / state.rows:.0%} of the rows of the state {state.name!r} have "
            "expired.",
            "The clean-up removes expired rows when the query runs. If the query "
            "has not run for a long time, this is normal. Otherwise let the clean-up check more "
            "entries per change (StateTtlConfig.cleanup_incrementally).",
        )


def _growth(operator: OperatorFigures, growth: Sequence[StatesAt]) -> Iterator[Advice]:
    if not growth or growth[-1].checkpoint_id - growth[0].checkpoint_id < FEW_CHECKPOINTS:
        return
    first, last = growth[0], growth[-1]
    for state in operator.states:
        before, after = first.states.get(state.name, SizeFigures()), last.states[state.name]
        if after.bytes > MIB and after.bytes > 1.5 * before.bytes:
            yield Advice(
                f"The state {state.name!r} has grown from {before.bytes:,} to {after.bytes:,} "
                f"bytes between the checkpoints {first.checkpoint_id} and {last.checkpoint_id}.",
                _cause(state, before, after),
            )


def _cause(state: StateFigures, before: SizeFigures, after: SizeFigures) -> str:
    """Return why a state has grown: by timers, one key, keys, or bytes per key; and what to do."""
    if after.keys is None:
        return (
            f"It has {after.rows:,} timers instead of {before.rows:,}. Look for timers that are "
            "registered far ahead, and delete those that are not needed any more."
        )
    if state.largest and state.largest[0].bytes > (after.bytes - before.bytes) / 2:
        return (
            f"More than half of it may belong to the key {state.largest[0].key}, which has "
            f"{state.largest[0].bytes:,} bytes. Limit what the state keeps for a key."
        )
    if (after.bytes_per_key or 0) > 1.5 * (before.bytes_per_key or after.bytes):
        return (
            f"A key has {after.bytes_per_key:,.0f} bytes on average instead of "
            f"{before.bytes_per_key:,.0f}. Limit what the state keeps for a key."
        )
    keys = f"It has {after.keys:,} keys instead of {before.keys or 0:,}. "
    if state.ttl_ms is None:
        return keys + (
            "No time to live is set: if keys do not come back, set one, or delete the state of "
            "such keys by timers."
        )
    return keys + "It grows until as many keys expire as are added; see the time to live."


def _overdue(operator: OperatorFigures) -> Iterator[Advice]:
    timers = operator.timers.get(timer_state(TimeDomain.PROCESSING_TIME.value))
    if timers and timers.overdue:
        yield Advice(
            f"{timers.overdue:,} timers of processing time are overdue by more than an hour.",
            "They fire when the query runs again. If the query runs, look for an error in its "
            "driver's log.",
        )


def batch_advice(batches: Sequence[BatchFigures]) -> Iterator[Advice]:
    """Yield the warnings about the last batches of an operator."""
    failed = sum(each.failed_attempts for each in batches)
    if failed:
        yield Advice(
            f"{failed} attempts of tasks failed in the last {len(batches)} batches.",
            "The rows were processed by later attempts. Look for the first exception of the failed "
            "tasks in the executors' log.",
        )
    means = sum(each.rows_in / max(1, sum(each.sources.values())) for each in batches)
    most = sum(each.most_rows_in for each in batches)
    if most > max(2 * means, FEW_ROWS * len(batches)):
        yield Advice(
            f"The subtask with the most rows gets {most / means:.1f} times the mean.",
            "A batch takes as long as its slowest subtask. Few keys may have most of the rows: "
            "count the rows of each key in a part of the input.",
        )
    restored = [each for each in batches[1:] if {"snapshot", "deltas"} & each.sources.keys()]
    if restored:
        yield Advice(
            f"Subtasks read their state from the checkpoint directory in {len(restored)} of the "
            f"last {len(batches)} batches.",
            "Normally the worker still has the state. Executors may come and go, or their local "
            "disks may be too small.",
        )
    if sum(each.snapshot_ms - each.process_ms for each in batches) > SECOND_MS:
        yield Advice(
            "The last batches spent more time on snapshots than on rows.",
            "Larger batches write keys that change several times only once.",
        )


def directory_advice(stale: StaleFiles, broken: Sequence[str]) -> Iterator[Advice]:
    """Yield the warnings about the files of a checkpoint directory."""
    if stale.files:
        yield Advice(
            f"{stale.files:,} files with {stale.bytes:,} bytes belong to no retained checkpoint.",
            "List them with: millpond checkpoint gc --dry-run DIRECTORY, and delete them with: "
            "millpond checkpoint gc DIRECTORY.",
        )
    if broken:
        yield Advice(
            f"{len(broken)} metadata files cannot be read, the first one is {broken[0]}.",
            "Run: millpond checkpoint verify DIRECTORY.",
        )
