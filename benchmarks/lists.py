"""Lists of growing length: what one append costs in time and in the delta, and what a read costs.

One append in a batch, its snapshot included, as a micro-batch of one row does; processor time,
medians. The rounds go through all lengths in turn, since the machine's speed drifts. A read is of
the list after these appends, which a store keeps in pieces, beside one of an equal list that was
put whole.

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
    """A backend with a list of some length, and what has been measured of it."""

    backend: Any
    storage: Any
    length: int
    number: int = 1
    seconds: list[float] = attrs.Factory(list)
    delta_bytes: list[int] = attrs.Factory(list)

    def state(self, key: str = "k") -> Any:
        """The list of a key."""
        self.backend.set_current_key(key)
        return self.backend.get_partitioned_state(ITEMS)

    def snapshot(self) -> int:
        """Take and confirm one; how many bytes were written."""
        result = self.backend.snapshot(self.number, self.storage).result()
        self.backend.notify_checkpoint_complete(self.number)
        self.number += 1
        return int(result.bytes_written)

    def append(self) -> None:
        """One append in a batch of its own."""
        start = time.process_time()
        self.state().add(self.number)
        size = self.snapshot()
        self.seconds.append(time.process_time() - start)
        self.delta_bytes.append(size)

    def read(self, key: str) -> float:
        """The processor time of a read that finds nothing in the buffer, the quickest of five."""
        taken = []
        for _ in range(5):
            self.backend.flush("read")
            state = self.state(key)
            start = time.process_time()
            state.get()
            taken.append(time.process_time() - start)
        return min(taken)

    def report(self) -> dict[str, float]:
        """The medians, in ms and bytes."""
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
    """A list of a length, in a snapshot."""
    storage = mp.checkpoint_storage((directory / "snapshots").as_uri())
    backend = open_at(name, directory / "work", config=CONFIG)
    made = Grown(backend, storage, length)
    made.state().update(range(length))
    made.snapshot()
    return made


def measure(name: str, rounds: int) -> list[dict[str, float]]:
    """All lengths of one backend."""
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
