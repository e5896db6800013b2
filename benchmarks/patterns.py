"""Measure the search for patterns: a pair of rows, and a loop, by event time and processing time.

The input has rows of six kinds, spread over 2,000 keys. After each batch of 1,000 rows the
watermark moves and the backend flushes. A pattern of every case finds matches. Figures are medians
of processor time over the rounds, in µs per row, without Spark.

Usage: patterns.py [--rounds 3] [--output out/bench]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import millpond as mp
from millpond.patterns import AfterMatchSkipStrategy, Pattern, PatternSearch, pattern

BACKENDS = ("heap", "rocksdb", "lmdb")
ROWS, BATCH, KEYS, LIMIT = 20_000, 1_000, 2_000, 60_000
ROW = "k string, ms bigint, kind string"
PATTERNS = {
    "pair": Pattern.begin("a", lambda row: row.kind == "a").followed_by(
        "b", lambda row: row.kind == "b"
    ),
    "loop": Pattern.begin(
        "a", lambda row: row.kind in "abc", skip=AfterMatchSkipStrategy.skip_past_last_event()
    )
    .times_or_more(3)
    .greedy()
    .followed_by("d", lambda row: row.kind == "d"),
}


def took(backend: str, search: PatternSearch, rows: list[Any]) -> float:
    """Return the processor time of a row, in µs."""
    function = search.select(lambda match: len(match["a"]))
    with mp.testing.KeyedOperatorHarness(function, key="k", backend=backend) as harness:
        started = time.process_time_ns()
        for number, row in enumerate(rows):
            harness.process(row, row["ms"])
            if number % BATCH == BATCH - 1:
                harness.advance_watermark(row["ms"] - 1)
                harness._backend.flush()  # noqa: SLF001 - as at the end of a micro-batch
        return (time.process_time_ns() - started) / 1000 / len(rows)


def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(1)  # noqa: S311 - a benchmark
    rows = [
        {"k": f"k{chosen.randrange(KEYS)}", "ms": 10 * number, "kind": chosen.choice("abcdef")}
        for number in range(ROWS)
    ]
    found: dict[str, dict[str, float]] = {}
    for backend in BACKENDS:
        for name, made in PATTERNS.items():
            search = pattern(made.within(LIMIT), ROW)
            for time_of, each in (("event", search), ("clock", search.in_processing_time())):
                times = [took(backend, each, rows) for _ in range(given.rounds)]
                found.setdefault(backend, {})[f"{name}_{time_of}"] = statistics.median(times)
    (given.output / "patterns.json").write_text(json.dumps(found, indent=2))
    for backend, report in found.items():
        print(backend, json.dumps(report))


if __name__ == "__main__":
    main()
