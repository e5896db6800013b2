"""Measure lists of growing length: the time and bytes of an append, and the time of a read.

Each append has a batch of its own, snapshot included, like a micro-batch of one row. Figures are
medians of processor time. The rounds go through all lengths in turn, since the machine's speed
drifts. The reads compare the list after its appends, which a store keeps in pieces, with an equal
list that was written whole.

Usage: lists.py [--rounds 60] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs
import millpond as mp
from millpond_conformance.opening import open_at

LENGTHS = (10, 1_000, 100_000, 1_000_000)
BACKENDS = ("heap", "rocksdb", "lmdb")
ITEMS = mp.ListStateDescriptor("items", int)
CONFIG = mp.Config({"state.snapshot.strategy": "changelog"})
WARM = 5


@attrs.define
class Grown:
    """A backend with a list of some length, and its measurements."""

    backend: Any
    storage: Any
    length: int
    number: int = 1
    seconds: list[float] = attrs.Factory(list)
    delta_bytes: list[int] = attrs.Factory(list)

    def state(self, key: str = "k") -> Any:
        """Return the list of the key."""
        self.backend.set_current_key(key)
        return self.backend.get_partitioned_state(ITEMS)

    def snapshot(self) -> int:
        """Take and confirm a snapshot; return the bytes written."""
        result = self.backend.snapshot(self.number, self.storage).result()
        self.backend.notify_checkpoint_complete(self.number)
        self.number += 1
        return int(result.bytes_written)

    def append(self) -> None:
        """Append once in a batch of its own."""
        start = time.process_time()
        self.state().add(self.number)
        size = self.snapshot()
        self.seconds.append(time.process_time() - start)
        self.delta_bytes.append(size)

    def read(self, key: str) -> float:
        """Return the processor time of a read that misses the buffer, the quickest of five."""
        taken = []
        for _ in range(5):
            self.backend.flush("read")
            state = self.state(key)
            start = time.process_time()
            state.get()
            taken.append(time.process_time() - start)
        return min(taken)

    def report(self) -> dict[str, float]:
        """Return the medians, in ms and bytes."""
        elements = self.state().get()
        self.state("whole").update(elements)
        return {
            "length": self.length,
            "append_ms": 1000 * statistics.median(self.seconds[WARM:]),
            "delta_bytes": statistics.median(self.delta_bytes[WARM:]),
            "read_ms": 1000 * self.read("k"),
            "read_whole_ms": 1000 * self.read("whole"),
        }


def grown(name: str, length: int, directory: Path) -> Grown:
    """Return a list of a length, in a snapshot."""
    storage = mp.checkpoint_storage((directory / "snapshots").as_uri())
    backend = open_at(name, directory / "work", config=CONFIG)
    made = Grown(backend, storage, length)
    made.state().update(range(length))
    made.snapshot()
    return made


def measure(name: str, rounds: int) -> list[dict[str, float]]:
    """Measure all lengths of one backend."""
    with tempfile.TemporaryDirectory() as directory:
        lists = [grown(name, length, Path(directory) / str(length)) for length in LENGTHS]
        for _ in range(rounds):
            for each in lists:
                each.append()
        reports = [each.report() for each in lists]
        for each in lists:
            each.backend.close()
        return reports


def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    found = {name: measure(name, given.rounds) for name in BACKENDS}
    (given.output / "lists.json").write_text(json.dumps(found, indent=2))
    for name, reports in found.items():
        for report in reports:
            print(name, json.dumps(report))


if __name__ == "__main__":
    main()
