"""The crash matrix: faults at named points, and whether the state recovers exactly.

Each case forks a process that works in rounds: it changes some keys, takes a snapshot, and records
the complete handle, which stands for Spark's commit. A fault happens at the given point. Then
another process restores the last recorded handle, compares it with a dictionary's content of that
round, continues to the last round, and compares again.

Usage: python -m tests.crash.crash_matrix [--markdown FILE] [--point POINT] [--sample N --seed SEED]
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import shutil
import sys
import tempfile
import traceback
from contextlib import nullcontext
from pathlib import Path
from random import Random

import attrs
import millpond as mp
from millpond_conformance.elsewhere import prepare

from tests.crash.crash_faults import (
    FaultyStorage,
    damage_metadata,
    fill_up,
    make_room,
    small_disk,
    take,
)
from tests.crash.crash_layouts import Course, Query
from tests.crash.crash_model import (
    CARRIED,
    COPY,
    DAMAGES,
    FAULT_ROUND,
    LAYOUTS,
    METADATA,
    RETRIED,
    ROUNDS,
    Case,
    change,
    require,
)
from tests.crash.crash_tasks import work_in_tasks

POINTS = (
    "serializer",
    "flush",
    "upload",
    "commit",
    "metadata",
    "base renewal",
    "directory",
    "confirm",
    "restore",
    "gc",
    *METADATA,
    COPY,
    *LAYOUTS,
)
FAULTS = (
    "raises once",
    "SIGKILL",
    "torn write",
    "ENOSPC",
    "EIO",
    "full disk",
    "no space",
    *DAMAGES,
)
STRATEGIES = {
    "heap": ("changelog", "full", CARRIED),
    "lmdb": ("changelog", "full", CARRIED),
    "rocksdb": ("changelog", "full", "incremental", CARRIED),
}
STOPS = ("restore", *METADATA)
"""Points at which the first process ends by itself after the round of the fault."""


def noted(storage, root):
    """Return the recorded handles."""
    notes = root / "confirmed"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [mp.KeyedStateHandle.from_json(line, storage) for line in lines]


def note(root, handle):
    """Record a handle, which stands for Spark's commit."""
    with (root / "confirmed").open("a") as file:
        file.write(handle.to_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def work(case, root, *, armed):
    """Restore the last recorded round, check it, and continue to the last round."""
    storage = FaultyStorage(root / "checkpoints", case)
    if case.point in LAYOUTS:
        Query(case, root, storage, Course(case.seed)).run(armed=armed)
        return
    handles = noted(storage, root)
    if case.point == COPY:
        work_in_tasks(case, root, storage, handles, lambda made: note(root, made), armed=armed)
        return
    done = len(handles)
    storage.armed = armed and case.point == "restore" and done >= FAULT_ROUND
    with mp.open_keyed_backend(
        case.backend,
        key_type=str,
        directory=tempfile.mkdtemp(dir=root),
        config=case.config,
        restore=handles[-1:],
    ) as backend:
        require(backend, done)
        for number in range(done + 1, ROUNDS + 1):
            change(backend, number)
            storage.armed = armed and case.point != "restore" and number >= FAULT_ROUND
            if storage.armed and case.point == "directory":
                fill_up(root / "checkpoints")
            handle = take(case, backend, number, storage)
            storage.strike("confirm")
            note(root, handle)
            backend.notify_checkpoint_complete(number)
            if armed and case.point in STOPS and number == FAULT_ROUND:
                return
        require(backend, ROUNDS)
    if armed and case.point == "gc":
        assert storage.struck, "the fault did not happen"


def forked(function):
    """Run a function in a child process; return how it ended, and its output."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 0
        try:
            function()
        except AssertionError as error:
            os.write(writer, str(error).encode())
            status = 2
        except Exception:  # noqa: BLE001 - the parent shows it, whatever it is
            os.write(writer, traceback.format_exc()[-600:].encode())
            status = 1
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said


def run(case):
    """Return the verdict on a case: exact, or the fault that was found."""
    root = Path(tempfile.mkdtemp(prefix="millpond-crash-"))
    try:
        with small_disk(root / "checkpoints") if case.point == "directory" else nullcontext():
            return verdict(case, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def verdict(case, root):
    """Let the fault happen, and return what a later process finds."""
    struck, said = forked(lambda: work(case, root, armed=True))
    if case.point == "restore":
        struck, said = forked(lambda: work(case, root, armed=True))
    if struck == 2:
        return said
    storage = FaultyStorage(root / "checkpoints", case)
    if case.point in METADATA:
        struck, said = forked(
            lambda: damage_metadata(case, storage, root / "checkpoints", noted(storage, root))
        )
        if struck:
            return said
    elif struck == 0 and not goes_on(case):
        return "the fault did not happen"
    make_room(root / "checkpoints")
    if case.point not in LAYOUTS and len(noted(storage, root)) < FAULT_ROUND - 1:
        return f"struck too early: {said}"
    status, said = forked(lambda: work(case, root, armed=False))
    return "exact" if status == 0 else said


def goes_on(case):
    """Return whether the process survives the fault."""
    is_killed = case.fault in ("SIGKILL", "torn write")
    return case.point in RETRIED or (case.point in (COPY, "gc", *LAYOUTS) and not is_killed)


def cases():
    """Return all possible cases."""
    for point, fault in itertools.product(POINTS, FAULTS):
        for backend, strategies in STRATEGIES.items():
            for strategy in strategies:
                case = Case(point, fault, backend, strategy)
                if case.possible:
                    yield case


def markdown(results):
    """Return the table of points, faults and backends."""
    columns = [f"{b} {s}" for b, strategies in STRATEGIES.items() for s in strategies]
    lines = [
        "# Crash matrix",
        "",
        "After reading this page you know after which faults the state of a job recovers exactly.",
        "`make crash-matrix` (`tests/crash/crash_matrix.py`) runs the cases and writes the table.",
        "",
        "In each case, a process works in rounds: it changes some keys and takes a snapshot. At one point, one fault happens",
        "to this process. A new process then restores the last confirmed snapshot, and compares the state with a dictionary of",
        "the expected values. It continues to the last round, and compares again. The word *exact* means that both comparisons",
        "found no difference. A dash means that the fault cannot happen at this point.",
        "",
        "| word | meaning |",
        "|---|---|",
        "| ENOSPC, EIO | the operation fails with the error of the operating system for a full or a broken disk |",
        "| full disk | the kernel refuses to let files grow |",
        "| no space | the disk of the checkpoint directory is full |",
        "| torn write | a file has its final name but only half of its content |",
        "| serializer, flush | after the failure, the same process tries again |",
        "| newest and older metadata | the metadata of a confirmed snapshot is damaged, and then garbage is collected |",
        "| local copy | the local copy of the state is damaged, or its task fails or is killed; it must not be used again |",
        "| outdated files | the fault happens while a rescaled query deletes files of lost attempts and earlier layouts |",
        "| subtask's record | the file in which a subtask records that it no longer needs files of earlier layouts |",
        "| carried | the snapshots are embedded in Spark's pointers (`checkpoint.inline-threshold`) |",
        "",
        f"| point | fault | {' | '.join(columns)} |",
        f"|---|---|{'---|' * len(columns)}",
    ]
    for point, fault in itertools.product(POINTS, FAULTS):
        cells = []
        for column in columns:
            case = Case(point, fault, *column.split())
            cells.append(results.get(case, "–"))
        if any(cell != "–" for cell in cells):
            lines.append(f"| {point} | {fault} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--point", choices=POINTS)
    parser.add_argument("--sample", type=int, help="how many cases to run, chosen by the seed")
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    results = {}
    # Killed processes lose no written data in memory, and no test waits for a disk.
    if Path("/dev/shm").is_dir():
        tempfile.tempdir = "/dev/shm"
    for backend in STRATEGIES:
        prepare(backend)  # once, before the forks
    logging.getLogger("millpond.restore").setLevel(logging.ERROR)
    chosen = [case for case in cases() if options.point in (None, case.point)]
    if options.sample is not None:
        chosen = Random(options.seed).sample(chosen, options.sample)
    for case in chosen:
        results[case] = run(case)
        if results[case] != "exact":
            print(json.dumps({**attrs.asdict(case), "verdict": results[case]}), flush=True)
    exact = sum(verdict == "exact" for verdict in results.values())
    print(f"{exact} of {len(results)} cases recovered exactly")
    if options.markdown:
        options.markdown.write_text(markdown(results))
    sys.exit(exact != len(results))


if __name__ == "__main__":
    main()
