"""Measure the bytes that a key takes: in memory, on the local disk, in snapshots; and its restore.

An operator without Spark gets keys of 17 characters in random order, in batches of 20,000, and then
as many changes as keys. Values are floats, and random bytes, which no compression makes smaller.
Each case has a process of its own. Restores are measured in processor time.

Usage: footprint.py [--keys 200000] [--output out/bench]
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millpond as mp
import psutil
from own_process import run_cases

BATCH = 20_000
SIZES = (8, 200, 1000)
"""The bytes of a value."""
BACKENDS = ("heap", "lmdb", "rocksdb")
CASES = tuple(f"{backend} {size}" for backend in BACKENDS for size in SIZES)
KEY_BYTES = len("customer-00000000")


def new_values(size: int) -> Callable[[], Any]:
    """Return a function that returns values of a size: floats if the size is 8, else bytes."""
    chance = random.Random(7)  # noqa: S311 - a benchmark
    if size == 8:
        return lambda: float(chance.randrange(1000)) / 4
    return lambda: chance.randbytes(size)


def numbers(keys: int) -> Iterator[int]:
    """Yield the number of each key in random order, and then changed keys, as many again."""
    chance = random.Random(11)  # noqa: S311 - a benchmark
    every = list(range(keys))
    chance.shuffle(every)
    yield from every
    yield from (chance.randrange(keys) for _ in range(keys))


def own_memory() -> int:
    """Return the memory of this process without the pages of mapped files."""
    gc.collect()
    found = psutil.Process().memory_info()
    return int(found.rss - found.shared)


def disk(folder: Path) -> int:
    """Return the disk space of all files in a folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def restored_s(backend: str, kind: type, folder: Path, handle: Any) -> float:
    """Return the processor seconds of a restore into an empty directory."""
    started = time.process_time()
    directory = folder / "restored"
    state = mp.ValueStateDescriptor("state", kind)
    with mp.open_keyed_backend(
        backend, key_type=str, directory=directory, restore=[handle], place="bench/job"
    ) as opened:
        opened.get_partitioned_state(state)
    return time.process_time() - started


def measured(case: str, given: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a case, per key."""
    backend, size = case.split(maxsplit=1)[0], int(case.split()[1])
    kind: type = float if size == 8 else bytes
    value = new_values(size)
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as name:
        folder = Path(name)
        storage = mp.checkpoint_storage((folder / "snapshots").as_uri())
        config = mp.Config({"state.snapshot.strategy": "full"})
        before, highest = own_memory(), 0
        with mp.open_keyed_backend(
            backend, key_type=str, directory=folder / "job", place="bench/job", config=config
        ) as opened:
            state = opened.get_partitioned_state(mp.ValueStateDescriptor("state", kind))
            for count, number in enumerate(numbers(given.keys), 1):
                opened.set_current_key(f"customer-{number:08d}")
                state.update(value())
                if count % BATCH == 0:
                    opened.flush()
                    highest = max(highest, disk(folder / "job"))
            memory = own_memory() - before
            handle = opened.snapshot(1, storage).result().handle
        settled = disk(folder / "job")
        seconds = restored_s(backend, kind, folder, handle)
    return {
        "bytes": KEY_BYTES + size,
        "memory": memory / given.keys,
        "disk": settled / given.keys,
        "highest_disk": highest / given.keys,
        "snapshot": (handle.size if handle else 0) / given.keys,
        "restore_us": seconds / given.keys * 1e6,
    }


def main() -> None:
    """Run each case in a process of its own; print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    run_cases(parser, CASES, measured)


if __name__ == "__main__":
    main()
