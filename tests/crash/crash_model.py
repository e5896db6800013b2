"""The model of the crash matrix: the changes of each round, and the expected result as a dictionary."""

from __future__ import annotations

import attrs
import millpond as mp
from millpond_conformance.faults import Fault, FaultySerializer

ROUNDS = 8
FAULT_ROUND = 5
FAULT = Fault()
"""The fault in the serializer of all totals."""
TOTAL = mp.ValueStateDescriptor("total", FaultySerializer(int, FAULT))
ITEMS = mp.ListStateDescriptor("items", int)
RETRIED = ("serializer", "flush")
METADATA = ("newest metadata", "older metadata")
COPY = "local copy"
LAYOUTS = ("outdated files", "subtask's record")
"""Points at which a rescaled query deletes files or prepares to do so."""
CARRIED = "carried"
"""The changelog strategy with a threshold that only some rounds' changes exceed."""
THRESHOLD = 1700
DAMAGES = ("truncated", "zeroed", "bit flip", "lost file")


@attrs.frozen
class Case:
    """One cell of the matrix."""

    point: str
    fault: str
    backend: str
    strategy: str

    @property
    def possible(self) -> bool:
        """Return whether the fault can happen at the point."""
        if self.point in ("serializer", "directory"):
            return self.fault == ("raises once" if self.point == "serializer" else "no space")
        if self.point == "flush":
            # Heap has no store, and RocksDB writes none until one of its files is needed.
            written = self.backend == "lmdb" or self.strategy == "incremental"
            return self.fault == "full disk" and written
        if self.point in METADATA:
            return self.fault in DAMAGES and self.fault != "lost file" and self.strategy != CARRIED
        if self.point in LAYOUTS:
            other = "EIO" if self.point == LAYOUTS[0] else "torn write"
            return self.fault in ("SIGKILL", other)
        if self.point == COPY:
            return self.fault in (*DAMAGES, "SIGKILL", "raises once") and self.backend != "heap"
        return self._possible_in_storage

    @property
    def _possible_in_storage(self) -> bool:
        if self.strategy == CARRIED and self.point == "metadata":
            return False  # most snapshots have no file
        writes = self.point in ("upload", "commit", "metadata", "base renewal")
        if self.fault in (*DAMAGES, "raises once", "no space"):
            return False
        if self.fault in ("torn write", "ENOSPC", "full disk") and not writes:
            return False
        if self.fault == "full disk" and self.point != "upload":
            return False
        if self.point == "base renewal" and self.strategy != "changelog":
            return False
        return not (self.point == "confirm" and self.fault == "EIO")

    @property
    def seed(self) -> int:
        """The case's own number, which decides its events and when the fault happens."""
        return len(f"{self.point} {self.fault} {self.backend} {self.strategy}")

    @property
    def passed(self) -> int:
        """Return how often a rescaled query passes the point before the fault happens."""
        return self.seed % (5 if self.point == "outdated files" else 2)  # there are few records

    @property
    def config(self) -> mp.Config:
        """Return the configuration of the backend."""
        return mp.Config(self.settings)

    @property
    def settings(self) -> dict[str, object]:
        """Return the same settings by key."""
        settings = {
            "state.snapshot.strategy": "changelog" if self.strategy == CARRIED else self.strategy,
            "checkpoint.inline-threshold": THRESHOLD if self.strategy == CARRIED else 0,
            "state.snapshot.max-deltas": 2,
            "checkpoint.retained": 3 if self.point in METADATA else 1,
            "checkpoint.claim": self.point not in LAYOUTS,  # Spark refuses this setting
        }
        if self.backend == "rocksdb":
            settings["backend.rocksdb.inline-threshold"] = 0
        return settings


def change(backend, number):
    """Return the changes of a round."""
    total, items = backend.get_partitioned_state(TOTAL), backend.get_partitioned_state(ITEMS)
    for at in range(30):
        key = f"k{(at * 7 + number * 11) % 60}"
        backend.set_current_key(key)
        if (at + number) % 5 == 0:
            total.clear()
            items.clear()
        else:
            total.update(number * 1000 + at)
            items.add(number)


def oracle(rounds):
    """Return the expected content after a number of rounds."""
    totals, items = {}, {}
    for number in range(1, rounds + 1):
        for at in range(30):
            key = f"k{(at * 7 + number * 11) % 60}"
            if (at + number) % 5 == 0:
                totals.pop(key, None)
                items.pop(key, None)
            else:
                totals[key] = number * 1000 + at
                items.setdefault(key, []).append(number)
    return totals, items


def contents(backend):
    """Return the content of the backend."""
    found = ({}, {})
    for descriptor, into in zip((TOTAL, ITEMS), found, strict=True):
        state = backend.get_partitioned_state(descriptor)
        for key in list(backend.keys(descriptor.name)):
            backend.set_current_key(key)
            into[key] = state.value() if descriptor is TOTAL else state.get()
    return found


def require(backend, rounds):
    """Fail unless the backend has exactly the expected content."""
    if contents(backend) != oracle(rounds):
        raise AssertionError(f"round {rounds} is not exact")
