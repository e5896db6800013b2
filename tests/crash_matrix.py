"""The crash matrix: faults at named points, and whether the state recovers exactly.

Each case forks a process that works in rounds: it changes some keys, takes a snapshot, and notes
the handle once it is complete, as Spark's commit does. At the given point a fault hits it. Then
another process restores the last noted handle and compares with what a plain dictionary says
of that round, goes on to the end, and compares once more.

Usage: crash_matrix.py [--markdown FILE] [--json]
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import attrs
import millpond as mp
import pyarrow as pa
from millpond.checkpoint.local import open_local_storage
from millpond.checkpoint.storage import CheckpointStorage

ROUNDS = 8
FAULT_ROUND = 5
POINTS = ("upload", "commit", "metadata", "base renewal", "confirm", "restore", "gc")
FAULTS = ("SIGKILL", "torn write", "ENOSPC", "EIO", "full disk")
STRATEGIES = {
    "heap": ("changelog", "full"),
    "lmdb": ("changelog", "full"),
    "rocksdb": ("changelog", "full", "incremental"),
}
TOTAL = mp.ValueStateDescriptor("total", int)
ITEMS = mp.ListStateDescriptor("items", int)


@attrs.frozen
class Case:
    """One cell of the matrix."""

    point: str
    fault: str
    backend: str
    strategy: str

    @property
    def possible(self) -> bool:
        """Whether the fault can happen at the point at all."""
        writes = self.point in ("upload", "commit", "metadata", "base renewal")
        if self.fault in ("torn write", "ENOSPC", "full disk") and not writes:
            return False
        if self.fault == "full disk" and self.point != "upload":
            return False
        if self.point == "base renewal" and self.strategy != "changelog":
            return False
        return not (self.point == "confirm" and self.fault == "EIO")


class FaultyStorage(CheckpointStorage):
    """A directory whose operations fail at a point, once it is armed."""

    def __init__(self, root: Path, case: Case) -> None:
        self.uri = root.as_uri()
        self._inner = open_local_storage(self.uri)
        self._root = root
        self._case = case
        self.armed = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FaultyStorage) and other.uri == self.uri

    __hash__ = None

    def strike(self, point: str, path: str = "", data: bytes = b"") -> None:
        """Let the fault happen, if this is its point."""
        if not self.armed or self._case.point != point:
            return
        fault = self._case.fault
        if fault == "torn write":
            target = self._root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data[: len(data) // 2])
        if fault in ("SIGKILL", "torn write"):
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "full disk":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
            return
        number = errno.ENOSPC if fault == "ENOSPC" else errno.EIO
        raise OSError(number, os.strerror(number), path)

    def open_sink(self, path):
        return _FaultySink(self, self._inner.open_sink(path), path)

    def read(self, path, offset, length):
        self.strike("restore", path)
        return self._inner.read(path, offset, length)

    def size(self, path):
        return self._inner.size(path)

    def delete(self, path):
        self.strike("gc", path)
        self._inner.delete(path)

    def list(self, folder):
        return self._inner.list(folder)


class _FaultySink:
    def __init__(self, storage, inner, path):
        self._storage, self._inner, self._path = storage, inner, path
        self._written = b""

    def write(self, data):
        self._written += data
        if not self._path.endswith(".json"):
            renewed = self._path.endswith("base.arrow")
            self._storage.strike("base renewal" if renewed else "upload", self._path, data)
            self._storage.strike("upload", self._path, data)
        return self._inner.write(data)

    def commit(self):
        point = "metadata" if self._path.endswith(".json") else "commit"
        self._storage.strike(point, self._path, self._written)
        self._inner.commit()

    def abort(self):
        self._inner.abort()


def change(backend, number):
    """The changes of a round."""
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
    """What a dictionary holds after so many rounds."""
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
    """What the backend holds."""
    found = ({}, {})
    for descriptor, into in zip((TOTAL, ITEMS), found, strict=True):
        state = backend.get_partitioned_state(descriptor)
        for key in list(backend.keys(descriptor.name)):
            backend.set_current_key(key)
            into[key] = state.value() if descriptor is TOTAL else state.get()
    return found


def work(case, root, *, armed):
    """Restore the last noted round, check it, and go on to the end."""
    storage = FaultyStorage(root / "checkpoints", case)
    notes = root / "confirmed"
    lines = notes.read_text().splitlines() if notes.exists() else []
    done = len(lines)
    handles = [mp.KeyedStateHandle.from_json(lines[-1], storage)] if lines else []
    settings = {
        "state.snapshot.strategy": case.strategy,
        "state.snapshot.max-deltas": 2,
        "checkpoint.retained": 1,
        "checkpoint.claim": True,
        "backend.rocksdb.inline-threshold": 0,
    }
    storage.armed = armed and case.point == "restore" and done >= FAULT_ROUND
    options = settings if case.backend == "rocksdb" else dict(list(settings.items())[:-1])
    with mp.open_keyed_backend(
        case.backend,
        key_type=str,
        directory=tempfile.mkdtemp(dir=root),
        config=mp.Config(options),
        restore=handles,
    ) as backend:
        if contents(backend) != oracle(done):
            raise AssertionError(f"round {done} was not restored exactly")
        for number in range(done + 1, ROUNDS + 1):
            change(backend, number)
            storage.armed = armed and case.point != "restore" and number >= FAULT_ROUND
            handle = backend.snapshot(number, storage).result().handle
            storage.strike("confirm")
            with notes.open("a") as file:
                file.write(handle.to_json() + "\n")
                file.flush()
                os.fsync(file.fileno())
            backend.notify_checkpoint_complete(number)
            if armed and case.point == "restore" and number == FAULT_ROUND:
                return
        if contents(backend) != oracle(ROUNDS):
            raise AssertionError("the end was not exact")


def forked(function):
    """Run a function in a child process; how it ended, and what it said."""
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
    """The verdict on a case: exact, or what went wrong."""
    root = Path(tempfile.mkdtemp(prefix="millpond-crash-"))
    try:
        struck, said = forked(lambda: work(case, root, armed=True))
        if case.point == "restore":
            struck, said = forked(lambda: work(case, root, armed=True))
        if struck == 2:
            return said
        if struck == 0:
            return "the fault did not happen"
        lines = (root / "confirmed").read_text().splitlines()
        if len(lines) < FAULT_ROUND - 1:
            return f"struck too early, in round {len(lines) + 1}: {said}"
        status, said = forked(lambda: work(case, root, armed=False))
        return "exact" if status == 0 else said
    finally:
        shutil.rmtree(root, ignore_errors=True)


def cases():
    """All cells that are possible."""
    for point, fault in itertools.product(POINTS, FAULTS):
        for backend, strategies in STRATEGIES.items():
            for strategy in strategies:
                case = Case(point, fault, backend, strategy)
                if case.possible:
                    yield case


def markdown(results):
    """The table of points, faults and backends."""
    columns = [f"{b} {s}" for b, strategies in STRATEGIES.items() for s in strategies]
    lines = [
        "# Crash matrix",
        "",
        "Generated by `make crash-matrix` (`tests/crash_matrix.py`). At each point of a snapshot's",
        "life a fault hits the process; afterwards the last confirmed snapshot is restored,",
        "compared with a plain dictionary, and work goes on to the end. *Full disk* is the kernel",
        "refusing to let files grow; *torn write* leaves half a file under its final name.",
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
    options = parser.parse_args()
    results = {}
    pa.array([""])  # loads pandas once, before the forks
    for case in cases():
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
