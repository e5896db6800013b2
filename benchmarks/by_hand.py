"""Compare a read-modify-write of each kind of state with the bare stores, in one process.

A pass is 100,000 accesses to 43,000 keys in random order: ``set_current_key``, a read, a write,
and a share of the flush at the end. The bare stores are a dictionary, LMDB in one transaction, and
rocksdict. They do what a program without Millpond would do for the kind: a map has an entry with
the key and the map key, and a list is read, extended and written as a whole. The steps are
differences between passes with and without the step. Each case has a process of its own;
all take turns, pass by pass. Figures are medians of processor time, in µs per access.

Usage: by_hand.py [--passes 12] [--warm-up 3] [--kinds value,map,…] [--output out/bench]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lmdb
import millpond as mp
import numpy as np
from rocksdict import Options, Rdict, WriteOptions
from turns import in_turns
from typing_extensions import override
from worker import medians

ACCESSES, TOUCHED, KEYS = 100_000, 43_000, 100_000
BARE = {"heap": "dict", "lmdb": "bare lmdb", "rocksdb": "bare rocksdict"}
KINDS = ("value", "map", "list", "reducing", "aggregating", "folding")
READS = {"value": "value", "map": "get", "list": "get"}
"""The kinds that are compared with a bare store and divided into steps, and their read method."""

MOST = 4
"""The most elements of a list to which another one is added. A longer list begins anew."""
_KEY, _ENTRY, _NUMBER = struct.Struct(">Q"), struct.Struct(">QQ"), struct.Struct("<d")

STEPS = "steps of "

Pass = Callable[[list[int]], None]


class Sum(mp.AggregateFunction[float, float, float]):
    """A sum of numbers."""

    @override
    def create_accumulator(self) -> float:
        """Nothing yet."""
        return 0.0

    @override
    def add(self, value: float, accumulator: float) -> float:
        """Add one value."""
        return accumulator + value

    @override
    def get_result(self, accumulator: float) -> float:
        """Return the sum."""
        return accumulator

    @override
    def merge(self, a: float, b: float) -> float:
        """Add two sums."""
        return a + b


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


DESCRIPTORS: dict[str, Callable[[], Any]] = {
    "value": lambda: mp.ValueStateDescriptor("s", float),
    "map": lambda: mp.MapStateDescriptor("s", int, float),
    "list": lambda: mp.ListStateDescriptor("s", float),
    "reducing": lambda: mp.ReducingStateDescriptor("s", add, float),
    "aggregating": lambda: mp.AggregatingStateDescriptor("s", Sum(), float),
    "folding": lambda: mp.FoldingStateDescriptor("s", 0.0, add, float),
}


def opened(backend: str, kind: str, folder: Path, stack: ExitStack) -> tuple[Any, Any]:
    """Open a backend and one state of it."""
    made = mp.open_keyed_backend(backend, key_type=int, directory=folder, clock=mp.ManualClock(0))
    stack.callback(made.close)
    return made, made.get_partitioned_state(DESCRIPTORS[kind]())


def took(run: Callable[..., None], *given: Any) -> float:
    """Return the processor time of a pass, in µs per access."""
    started = time.process_time_ns()
    run(*given)
    return (time.process_time_ns() - started) / 1000 / ACCESSES


def steps(
    backend: str, kind: str, folder: Path, stack: ExitStack
) -> Callable[[list[int]], dict[str, float]]:
    """Measure each step of a read-modify-write."""
    made, state = opened(backend, kind, folder, stack)
    select, change = made.set_current_key, changing(kind, made, state)
    read_one = partial(state.get, 1, 0.0) if kind == "map" else getattr(state, READS[kind])

    def choose(keys: list[int]) -> None:
        for key in keys:
            select(key)

    def read(keys: list[int]) -> None:
        for key in keys:
            select(key)
            read_one()

    def run(keys: list[int]) -> dict[str, float]:
        read(keys)  # the first pass after a write finds its pages cold
        made.flush()  # forget the values that were read
        chosen, reads = took(choose, keys), took(read, keys)
        made.flush()
        changes = took(change, keys)
        flush = took(made.flush)
        parts = (chosen, reads - chosen, changes - reads, flush)
        return dict(zip(("set_current_key", "read", "write", "flush"), parts, strict=True))

    return run


def changing(kind: str, made: Any, state: Any) -> Pass:
    """Return a loop that reads and changes the state of each key."""
    select = made.set_current_key

    def value(keys: list[int]) -> None:
        for key in keys:
            select(key)
            state.update((state.value() or 0.0) + 1.0)

    def entry(keys: list[int]) -> None:
        for key in keys:
            select(key)
            state.put(1, state.get(1, 0.0) + 1.0)

    def elements(keys: list[int]) -> None:
        for key in keys:
            select(key)
            if len(state.get()) > MOST:
                state.clear()
            state.add(1.0)

    def appended(keys: list[int]) -> None:
        for key in keys:
            select(key)
            state.add(1.0)

    return {"value": value, "map": entry, "list": elements}.get(kind, appended)


def by_hand(backend: str, kind: str, folder: Path, stack: ExitStack) -> Pass:
    """Return a pass over keys through a backend."""
    made, state = opened(backend, kind, folder, stack)
    change = changing(kind, made, state)

    def run(keys: list[int]) -> None:
        change(keys)
        made.flush()

    return run


Change = Callable[[Any], Any]
"""A function from the stored value, or None, to the new one."""


def one_more(held: list[float] | None) -> list[float]:
    """Append one to a list, or begin a new one; see ``MOST``."""
    return [1.0] if held is None or len(held) > MOST else [*held, 1.0]


def changed_bytes(kind: str) -> Change:
    """Return the change of a kind for stores of bytes."""
    if kind != "list":
        pack, unpack = _NUMBER.pack, _NUMBER.unpack
        return lambda data: pack((unpack(data)[0] if data else 0.0) + 1.0)

    def change(data: bytes | None) -> bytes:
        numbers = one_more(list(memoryview(data).cast("d")) if data else None)
        return struct.pack(f"<{len(numbers)}d", *numbers)

    return change


def bare_dict(kind: str, _folder: Path, _stack: ExitStack) -> Pass:
    """Return a pass over keys on a dictionary."""
    held: dict[int, Any] = {}

    def run(keys: list[int]) -> None:
        for key in keys:
            held[key] = held.get(key, 0.0) + 1.0

    def entries(keys: list[int]) -> None:
        for key in keys:
            own = held.setdefault(key, {})
            own[1] = own.get(1, 0.0) + 1.0

    def elements(keys: list[int]) -> None:
        for key in keys:
            stored = held.get(key)
            if stored is None or len(stored) > MOST:
                stored = held[key] = []
            stored.append(1.0)

    return {"map": entries, "list": elements}.get(kind, run)


def bare_lmdb(kind: str, folder: Path, stack: ExitStack) -> Pass:
    """Return a pass over keys in one transaction."""
    store = lmdb.open(str(folder), map_size=1 << 30, sync=False, metasync=False)
    stack.callback(store.close)
    change, pack = changed_bytes(kind), packing(kind)

    def run(keys: list[int]) -> None:
        with store.begin(write=True) as transaction:
            for number in keys:
                key = pack(number)
                transaction.put(key, change(transaction.get(key)))

    return run


def bare_rocksdict(kind: str, folder: Path, stack: ExitStack) -> Pass:
    """Return a pass over keys without a write-ahead log."""
    store = Rdict(str(folder), Options(raw_mode=True))
    write = WriteOptions()
    write.disable_wal = True  # type: ignore[method-assign,assignment]  # a property; the stub is wrong
    store.set_write_options(write)
    stack.callback(store.close)
    change, pack = changed_bytes(kind), packing(kind)

    def run(keys: list[int]) -> None:
        for number in keys:
            key = pack(number)
            store[key] = change(store.get(key))

    return run


def packing(kind: str) -> Callable[[int], bytes]:
    """Return the function that encodes a key, for a map with the map key 1."""
    if kind != "map":
        return _KEY.pack
    encode = _ENTRY.pack
    return lambda number: encode(number, 1)


BARE_PASSES = {"heap": bare_dict, "lmdb": bare_lmdb, "rocksdb": bare_rocksdict}


def measured(backend: str, kind: str, folder: Path, stack: ExitStack) -> Callable[..., Any]:
    """Return the pass for a kind, for example ``map``, ``bare map`` or ``steps of map``."""
    if kind.startswith(STEPS):
        return steps(backend, kind.removeprefix(STEPS), folder, stack)
    if kind.startswith("bare "):
        return partial(took, BARE_PASSES[backend](kind.removeprefix("bare "), folder, stack))
    return partial(took, by_hand(backend, kind, folder, stack))


def serve(backend: str, kind: str, wire: Connection) -> None:
    """Run passes of one case on request."""
    random = np.random.default_rng(7)
    chosen = random.choice(KEYS, size=TOUCHED, replace=False)
    extra = random.choice(chosen, size=ACCESSES - TOUCHED)
    keys: list[int] = random.permutation(np.concatenate([chosen, extra])).tolist()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millpond-bench-")))
        folder = folder / "store"
        folder.mkdir()
        run = measured(backend, kind, folder, stack)
        wire.send(None)
        while wire.recv():
            wire.send(run(keys))


def times(found: dict[str, float], kind: str) -> str:
    """Return a kind's factor to the bare store, in parentheses; nothing if it was not measured."""
    bare = found.get(f"bare {kind}")
    return "" if bare is None else f" (×{found[kind] / bare:.1f})"


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--output", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    bare = [f"bare {kind}" for kind in kinds if kind in READS]
    divided = [f"{STEPS}{kind}" for kind in kinds if kind in READS]
    cases = list(itertools.product(BARE, [*bare, *kinds, *divided]))
    samples = in_turns({case: partial(serve, *case) for case in cases}, given.passes, given.warm_up)
    report: dict[str, dict[str, float]] = {}
    for backend, store in BARE.items():
        found = {k: statistics.median(samples[backend, k]) for k in (*bare, *kinds)}
        report[backend] = found
        texts = (f"{kind} {found[kind]:.2f} µs" + times(found, kind) for kind in kinds)
        print(f"{backend:8} (x {store})  " + "  ".join(texts))
    parts = {
        f"{backend}, {case.removeprefix(STEPS)}": medians(samples[backend, case])
        for backend in BARE
        for case in divided
    }
    for name, each in parts.items():
        print(f"{name:14} " + "  ".join(f"{step} {found:.2f}" for step, found in each.items()))
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "by_hand.json").write_text(json.dumps(report, indent=1))
    (given.output / "by_hand_steps.json").write_text(json.dumps(parts, indent=1))


if __name__ == "__main__":
    main()
