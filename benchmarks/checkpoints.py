"""Measure checkpoints, restores and rescales at a million keys, next to bare stores.

For each backend: the bytes that a snapshot writes after 1 % of the keys were touched; the time of
a restore next to a loop that reads the same files and puts the rows into a bare store; the time of
a rescale next to a restore at the same parallelism; the time of a worker that had the subtask one
batch ago and applies a delta. The script prints tables and writes JSON and a plot.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import matplotlib as mpl
import millpond as mp
from millpond.snapshots.restore import catch_up
from millpond.snapshots.row_files import read_rows
from millpond.spi.keys import KeyLayout
from millpond.spi.portable_rows import Change
from rich.console import Console
from rich.table import Table
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

mpl.use("Agg")
from matplotlib import pyplot as plt

BACKENDS = ["heap", "rocksdb", "lmdb"]
TOTAL = mp.ValueStateDescriptor("total", float)
MAX_PARALLELISM = 128
CONSOLE = Console(width=110)
Rows = Sequence[Change]
CHANGED = 20_000
"""The keys that a delta changes, for the worker that catches up."""


def groups_of(parallelism: int, index: int) -> mp.KeyGroupRange:
    """Return the key groups of a subtask."""
    return mp.key_group_range(MAX_PARALLELISM, parallelism, index)


def open_part(backend: str, directory: Path, groups: mp.KeyGroupRange, handles: list[Any]) -> Any:
    """Open one subtask's backend in a fresh directory."""
    return mp.open_keyed_backend(
        backend,
        key_type=str,
        directory=directory,
        key_group_range=groups,
        restore=handles,
        place=f"bench/{backend}",
    )


def fill(backend: Any, keys: range) -> int:
    """Put a value under each key of the subtask; return the serialized size of the values."""
    state = backend.get_partitioned_state(TOTAL)
    size = 0
    for number in keys:
        key = f"customer-{number}"
        group = mp.assign_to_key_group(key, MAX_PARALLELISM)
        if group in backend.key_group_range:
            backend.current.select(key, group)
            state.update(float(number))
            size += 1 + len(key) + 2 + 8
    return size


def make_handles(backend: str, root: Path, keys: int, parallelism: int) -> list[Any]:
    """Take full snapshots of all subtasks at a parallelism."""
    storage = mp.checkpoint_storage((root / "snapshots").as_uri())
    handles = []
    for index in range(parallelism):
        directory = root / f"fill-{parallelism}-{index}"
        with open_part(backend, directory, groups_of(parallelism, index), []) as opened:
            fill(opened, range(keys))
            handles.append(opened.snapshot(1, storage).result().handle)
        shutil.rmtree(directory, ignore_errors=True)
    return handles


def restored(backend: str, root: Path, parallelism: int, handles: list[Any]) -> float:
    """Return the seconds to restore all subtasks at a parallelism, one after the other."""
    seconds = 0.0
    for index in range(parallelism):
        directory = Path(tempfile.mkdtemp(dir=root))
        start = time.perf_counter()
        opened = open_part(backend, directory, groups_of(parallelism, index), handles)
        seconds += time.perf_counter() - start
        opened.close()
        shutil.rmtree(directory, ignore_errors=True)
    return seconds


def bare_dict(batches: Iterator[Rows], _: Path) -> None:
    """Put rows into a dictionary."""
    store: dict[bytes, bytes | None] = {}
    for rows in batches:
        for key, value in rows:
            store[key] = value  # noqa: PERF403 - the loop that the restore is compared with


def bare_rocksdb(batches: Iterator[Rows], directory: Path) -> None:
    """Put rows into rocksdict, a batch for each list."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    store = Rdict(str(directory / "bare"), options)
    write = WriteOptions()
    write.disable_wal = True  # type: ignore[method-assign,assignment]
    for rows in batches:
        batch = WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        store.write(batch, write)
    store.close()


def bare_lmdb(batches: Iterator[Rows], directory: Path) -> None:
    """Put rows into LMDB, a transaction for each list."""
    store = lmdb.open(str(directory / "bare"), map_size=1 << 32, sync=False, metasync=False)
    for rows in batches:
        with store.begin(write=True) as transaction:
            for key, value in rows:
                transaction.put(key, value or b"")
    store.close()


BARE: dict[str, Callable[[Iterator[Rows], Path], None]] = {
    "heap": bare_dict,
    "rocksdb": bare_rocksdb,
    "lmdb": bare_lmdb,
}


def bare_loop(backend: str, root: Path, handle: Any) -> float:
    """Return the seconds of one loop that reads a snapshot's rows into the bare store."""
    directory = Path(tempfile.mkdtemp(dir=root))
    whole = mp.KeyGroupRange(0, MAX_PARALLELISM - 1)
    start = time.perf_counter()
    rows = (
        part
        for file in handle.files
        for _, part in read_rows(handle.storage, file, whole, KeyLayout(MAX_PARALLELISM))
    )
    BARE[backend](rows, directory)
    seconds = time.perf_counter() - start
    shutil.rmtree(directory, ignore_errors=True)
    return seconds


def delta_cost(backend: str, root: Path, keys: int) -> dict[str, float]:
    """Return the bytes that a snapshot writes after 1 % of the keys were touched."""
    storage = mp.checkpoint_storage((root / "deltas").as_uri())
    with open_part(backend, root / "delta", groups_of(1, 0), []) as opened:
        fill(opened, range(keys))
        opened.snapshot(1, storage).result()
        opened.notify_checkpoint_complete(1)
        touched = fill(opened, range(0, keys, 100))
        start = time.perf_counter()
        result = opened.snapshot(2, storage).result()
        seconds = time.perf_counter() - start
    return {"touched_bytes": touched, "written": result.bytes_written, "seconds": seconds}


def catching_up(backend: str, root: Path, rounds: int) -> float:
    """Return the processor milliseconds to apply a delta if the snapshot's handle is known."""
    storage = mp.checkpoint_storage((root / "behind").as_uri())
    groups = groups_of(1, 0)
    with open_part(backend, root / "ahead", groups, []) as ahead:
        fill(ahead, range(5 * CHANGED))
        first = ahead.snapshot(1, storage).result().handle
        ahead.notify_checkpoint_complete(1)
        with open_part(backend, root / "behind-copy", groups, [first]) as behind:
            behind.get_partitioned_state(TOTAL)
            behind.flush(first.version)
            taken = []
            for number in range(2, rounds + 3):
                fill(ahead, range(0, 5 * CHANGED, 5))
                handle = ahead.snapshot(number, storage).result().handle
                ahead.notify_checkpoint_complete(number)
                started = time.process_time()
                assert catch_up(behind, handle)
                taken.append((time.process_time() - started) * 1000)
    return statistics.median(taken[1:])


def measure(backend: str, keys: int, rounds: int) -> dict[str, Any]:
    """Return all figures of one backend: medians of ways that take turns."""
    root = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    try:
        cost = delta_cost(backend, root, keys)
        whole = make_handles(backend, root, keys, 1)
        two, three = (make_handles(backend, root, keys, parallelism) for parallelism in (2, 3))
        times: dict[str, list[float]] = {}
        ways: dict[str, Callable[[], float]] = {
            "bare loop": lambda: bare_loop(backend, root, whole[0]),
            "restore": lambda: restored(backend, root, 1, whole),
            "2 to 2": lambda: restored(backend, root, 2, two),
            "2 to 3": lambda: restored(backend, root, 3, two),
            "3 to 2": lambda: restored(backend, root, 2, three),
        }
        for _ in range(rounds):
            for name, run in ways.items():
                times.setdefault(name, []).append(run())
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        behind = catching_up(backend, root, 2 * rounds)
        return {"backend": backend, "keys": keys, **cost, **medians, "catch_up_ms": behind}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def show(reports: list[dict[str, Any]]) -> None:
    """Print the tables."""
    cost = Table(
        "backend", "touched bytes", "written", "ratio", "ms", title="1 % of the keys touched"
    )
    speed = Table(
        "backend", "bare loop s", "restore s", "restore / bare speed", "2 to 3 s", "3 to 2 s",
        "rescale / restore at 2", f"catch up {CHANGED:,}, ms", title="Restore and rescale",
    )  # fmt: skip
    for r in reports:
        cost.add_row(
            r["backend"], f"{r['touched_bytes']:,}", f"{r['written']:,}",
            f"{r['written'] / r['touched_bytes']:.2f}", f"{r['seconds'] * 1000:.0f}",
        )  # fmt: skip
        worst = max(r["2 to 3"], r["3 to 2"]) / r["2 to 2"]
        speed.add_row(
            r["backend"], f"{r['bare loop']:.2f}", f"{r['restore']:.2f}",
            f"{r['bare loop'] / r['restore']:.0%}", f"{r['2 to 3']:.2f}", f"{r['3 to 2']:.2f}",
            f"{worst:.2f}", f"{r['catch_up_ms']:.0f}",
        )  # fmt: skip
    CONSOLE.print(cost)
    CONSOLE.print(speed)


def plot(reports: list[dict[str, Any]], path: Path) -> None:
    """Draw the seconds by backend and way."""
    ways = ["bare loop", "restore", "2 to 2", "2 to 3", "3 to 2"]
    figure, axes = plt.subplots(figsize=(9, 4.5))
    width = 0.16
    for at, way in enumerate(ways):
        places = [number + (at - 2) * width for number in range(len(reports))]
        axes.bar(places, [r[way] for r in reports], width, label=way)
    axes.set_xticks(range(len(reports)), [r["backend"] for r in reports])
    axes.set_ylabel("seconds, median")
    axes.set_title(f"Restore and rescale of {reports[0]['keys']:,} keys")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    reports = []
    for backend in BACKENDS:
        CONSOLE.print(f"  {backend}: {options.keys:,} keys …")
        reports.append(measure(backend, options.keys, options.rounds))
    show(reports)
    plot(reports, options.output / "checkpoints.png")
    (options.output / "checkpoints.json").write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
