"""Measure queries by key on queryable state with a million keys.

Usage: queries.py [--keys 1000000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import millpond as mp

BACKENDS = ("rocksdb", "lmdb")
QUERIES = 20_000


def main() -> None:
    """Take a snapshot, open a client on it, query at random, print milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    descriptor = mp.ValueStateDescriptor("total", float).set_queryable("totals")
    report = {}
    for name in BACKENDS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with mp.open_keyed_backend(
                name, key_type=str, directory=folder / "job", place="bench/job"
            ) as backend:
                state = backend.get_partitioned_state(descriptor)
                for number in range(given.keys):
                    backend.set_current_key(f"customer-{number}")
                    state.update(float(number))
                storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
                backend.snapshot(1, storage).result()
            started = time.perf_counter()
            with mp.QueryableStateClient(
                folder / "snapshots", backend=name, refresh_after_ms=10**9
            ) as client:
                opening = time.perf_counter() - started
                samples = []
                for _ in range(QUERIES):
                    number = random.randrange(given.keys)  # noqa: S311 - a benchmark
                    started = time.perf_counter()
                    assert client.get("totals", f"customer-{number}") == float(number)
                    samples.append((time.perf_counter() - started) * 1000)
        samples.sort()
        report[name] = {
            "open_s": opening,
            "p50_ms": samples[len(samples) // 2],
            "p99_ms": samples[int(len(samples) * 0.99)],
            "max_ms": samples[-1],
        }
        print(name, {key: round(value, 3) for key, value in report[name].items()}, flush=True)
    (given.output / "queries.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
