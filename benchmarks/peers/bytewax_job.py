"""One job of the comparison on Bytewax, one worker, recovery on; runs in Bytewax's environment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import rows
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSource, run_main

EPOCH = datetime.fromtimestamp(0, UTC)
BATCH = 1_000


class _Partition(StatelessSinkPartition[Any]):
    def __init__(self, folder: str, *, shown: bool) -> None:
        self.folder, self.shown = folder, shown

    def write_batch(self, items: list[Any]) -> None:
        """Drop the rows, or write them for a check."""
        if self.shown:
            for item in items:
                rows.show(self.folder, item)


class Drop(DynamicSink[Any]):
    """A sink that drops all rows, or writes them for a check."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        """Return the partition."""
        return _Partition(self.options.folder, shown=self.options.show)


def add(total: float | None, number: int) -> tuple[float, float]:
    """Add the amount of a row to its key's total."""
    total = (total or 0.0) + rows.amount(number)
    return total, total


def count(counts: dict[int, int] | None, number: int) -> tuple[dict[int, int], tuple[int, int]]:
    """Count a row in the category of its key."""
    counts = {} if counts is None else counts
    each = rows.category(number)
    counts[each] = counts.get(each, 0) + 1
    return counts, (each, counts[each])


def sums(stream: Any) -> Any:
    """Return the running total per key."""
    return op.stateful_map("sum", stream, add)


def counts(stream: Any) -> Any:
    """Return the counts per category; a dictionary per key takes the place of a map state."""
    counted = op.stateful_map("map", stream, count)
    return op.map("name", counted, lambda row: (f"{row[0]} {row[1][0]}", row[1][1]))


def windows(stream: Any) -> Any:
    """Return the totals per minute."""
    clock: EventClock[int] = EventClock(
        lambda number: EPOCH + timedelta(milliseconds=number),
        wait_for_system_duration=timedelta(0),
    )
    minutes = TumblingWindower(length=timedelta(milliseconds=rows.WINDOW), align_to=EPOCH)
    folded = fold_window(
        "window",
        stream,
        clock,
        minutes,
        float,
        lambda total, number: total + rows.amount(number),
        float.__add__,
    )
    return op.map(
        "name",
        folded.down,
        lambda row: (f"{row[0]} {(row[1][0] + 1) * rows.WINDOW}", row[1][1]),
    )


JOBS = {"sum": sums, "map": counts, "window": windows}


def main() -> None:
    """Run the job."""
    options = rows.parse_arguments()

    def keyed(number: int) -> tuple[str, int]:
        rows.mark_first_row(options.folder)
        return rows.key(number), number

    flow = Dataflow("peers")
    numbers = op.input("input", flow, TestingSource(range(options.rows), batch_size=BATCH))
    result = JOBS[options.job](op.map("key", numbers, keyed))
    op.output("output", result, Drop(options))
    recovery = Path(options.folder, "recovery")
    recovery.mkdir()
    init_db_dir(recovery, 1)
    run_main(
        flow,
        epoch_interval=timedelta(seconds=1),
        recovery_config=RecoveryConfig(str(recovery)),
    )


if __name__ == "__main__":
    main()
