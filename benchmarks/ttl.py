"""Measure the stored entries of state with TTL over many simulated days.

Each day brings new keys, which live for five days and are never read again. As on Spark, RocksDB
and LMDB are closed and opened again with every batch. Entries and bytes are compared with a fresh
store that holds the live entries alone.

Usage: ttl.py [--days 100] [--keys 2000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
import millpond as mp
from millpond.backend import ByteStoreBackend
from millpond.spi import Capability
from millpond_conformance.opening import open_at

mpl.use("agg")
import matplotlib.pyplot as plt

DAY = 86_400_000
TTL_DAYS = 5
BATCHES = 10
BACKENDS = ("heap", "rocksdb", "lmdb")


def state_of(backend: Any) -> Any:
    """Return the state with TTL."""
    ttl = mp.StateTtlConfig(timedelta(days=TTL_DAYS))
    descriptor = mp.ValueStateDescriptor("seen", str).enable_time_to_live(ttl)
    return backend.get_partitioned_state(descriptor)


def put(backend: Any, numbers: range) -> None:
    """Write a batch of keys."""
    state = state_of(backend)
    for number in numbers:
        backend.set_current_key(f"customer-{number}")
        state.update(f"an entry of some {number} bytes that are never read again")


def stored_entries(backend: Any) -> int:
    """Count all entries in the store or the dictionaries, expired ones included."""
    if isinstance(backend, ByteStoreBackend):
        return sum(1 for _ in backend.buffer.rows("seen", b""))
    return sum(len(rows) for _, rows in _all_rows(backend))


def _all_rows(backend: Any) -> Iterator[tuple[str, Any]]:
    view = backend.freeze()
    for group in view.key_group_range:
        yield from view.rows(group)
    view.close()


def stored_bytes(backend: Any) -> int:
    """Return the bytes of the store's files, without the inputs of a running compaction."""
    figures = backend.native_metrics()
    return int(figures.get("live_bytes", 0) + figures.get("free_bytes", 0))


def fresh_bytes(name: str, live: int) -> int:
    """Return the bytes of a store that never held anything but the live entries."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        backend = open_at(name, folder)
        step = max(1, live // (BATCHES * TTL_DAYS))
        for first in range(0, live, step):
            put(backend, range(first, first + step))
            backend.flush(str(first))
        backend.close()
        with open_at(name, folder, [str(first)]) as reopened:
            return stored_bytes(reopened)


def simulate(name: str, days: int, keys: int) -> Iterator[dict[str, Any]]:
    """Return a sample at the end of each day."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, clock, version, number = Path(temporary), mp.ManualClock(0), None, 0
        backend = open_at(name, folder, clock=clock)
        reopens = Capability.LOCAL_COPY in backend.capabilities
        for day in range(days):
            for batch in range(BATCHES):
                clock.set(day * DAY + batch * DAY // BATCHES)
                put(backend, range(number, number + keys // BATCHES))
                number += keys // BATCHES
                version = f"{day}-{batch}"
                backend.flush(version)
                if reopens:
                    backend.close()
                    backend = open_at(name, folder, [version], clock)
                    assert backend.version == version
                    state_of(backend)
            yield {
                "day": day + 1,
                "live": min(number, TTL_DAYS * keys),
                "stored": stored_entries(backend),
                "bytes": stored_bytes(backend),
            }
        backend.close()


def draw(results: dict[str, list[dict[str, Any]]], fresh: dict[str, int], path: Path) -> None:
    """Draw the ratios of stored to live entries and bytes over the days."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharex=True)
    for name, samples in results.items():
        days = [sample["day"] for sample in samples]
        axes[0].plot(days, [s["stored"] / s["live"] for s in samples], label=name)
        if fresh[name]:
            late = [s for s in samples if s["day"] >= TTL_DAYS]
            axes[1].plot(
                [s["day"] for s in late], [s["bytes"] / fresh[name] for s in late], label=name
            )
    for axis, title in zip(
        axes, ("stored entries / live ones", "bytes / fresh store's"), strict=True
    ):
        axis.axhline(1.5, color="grey", linestyle=":", linewidth=1)
        axis.set(xlabel="simulated days", title=title, ylim=(0, 2))
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run all backends, print the worst ratios, write JSON and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=100)
    parser.add_argument("--keys", type=int, default=20_000, help="new keys a day")
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    results, fresh = {}, {}
    for name in BACKENDS:
        results[name] = list(simulate(name, given.days, given.keys))
        fresh[name] = fresh_bytes(name, TTL_DAYS * given.keys) if name != "heap" else 0
        late = [sample for sample in results[name] if sample["day"] > TTL_DAYS]
        entries = max(sample["stored"] / sample["live"] for sample in late)
        size = max(sample["bytes"] / fresh[name] for sample in late) if fresh[name] else 0
        print(f"{name}: at most {entries:.2f} of the live entries, {size:.2f} of their bytes")
    (given.output / "ttl.json").write_text(json.dumps({"samples": results, "fresh": fresh}))
    draw(results, fresh, given.output / "ttl.png")


if __name__ == "__main__":
    main()
