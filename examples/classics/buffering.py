"""A buffering sink: yield rows in packets of fifty, and keep waiting rows as operator state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import millpond as mp

TITLE = "A buffering sink with operator state"
OUTPUT = "size int, lines array<string>"
PACKET = 50
WAITING = mp.ListStateDescriptor("waiting", str)


class Packets(mp.KeyedProcessFunction, mp.CheckpointedFunction):
    """A function that collects lines into packets of one size.

    A packet that is not full waits for more lines.
    """

    def initialize_state(self, context: mp.StateInitializationContext) -> None:
        """Restore the waiting lines."""
        self.state = context.operator_state_store.get_list_state(WAITING)
        self.waiting = self.state.get()

    def process_element(self, row: Any, context: mp.Context) -> Iterable[Any]:
        """Add the row's line, and yield the packet if it is full."""
        self.waiting.append(row.line)
        if len(self.waiting) >= PACKET:
            packet, self.waiting = self.waiting, []
            yield len(packet), packet

    def snapshot_state(self, context: mp.SnapshotContext) -> None:
        """Store the waiting lines."""
        self.state.update(self.waiting)


def local(rows: list[dict[str, Any]]) -> list[Any]:
    """Run the job in this process."""
    return mp.local.run(Packets(), rows, key="customer")


def spark(lines: Any, key_by: Any) -> Any:
    """Build the job over a DataFrame."""
    return key_by(lines, "customer").process(Packets(), output=OUTPUT, uid="packets")


def expected(rows: list[dict[str, Any]]) -> None:
    """Return nothing: the packets depend on the order of the rows, see ``check``."""


def check(rows: list[dict[str, Any]], result: list[Any]) -> None:
    """Check that packets are full and disjoint, and miss less than one packet per subtask."""
    lines = [line for _, packet in result for line in packet]
    assert {size for size, _ in result} == {PACKET}
    assert len(lines) == len(set(lines))
    assert set(lines) <= {row["line"] for row in rows}
    assert len(rows) - len(lines) < 2 * PACKET


def draw(axis: Any, result: list[Any]) -> None:
    """Draw the lines in packets over time."""
    sizes = [size for size, _ in result]
    totals = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    axis.step(range(1, len(sizes) + 1), totals, where="mid")
    axis.set(xlabel="packets", ylabel="lines handed on", title=f"packets of {PACKET} lines")
