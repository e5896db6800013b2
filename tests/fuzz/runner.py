"""Run mutants in a child with limits of time and memory, and count the outcomes.

A target is a class with ``__init__(folder)``, which creates the files to mutate, and ``run(rng)``,
which creates a mutant, uses it, and returns the outcome and its size in bytes.
"""

import collections
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from millpond import errors

EQUAL, CHANGED, REFUSED = "equal", "changed", "refused"
WRONG, RAW, HANG, DEATH, MEMORY = "WRONG", "RAW", "HANG", "DEATH", "MEMORY"
BAD = (WRONG, RAW, HANG, DEATH, MEMORY)
OUTCOMES = (EQUAL, CHANGED, REFUSED, *BAD)
SECONDS = 5
WAITING = 30
BYTES = 64 << 20


class TooSlowError(BaseException):
    """The error of a mutant that takes too long; no code may catch it."""


def _alarm(*_):
    raise TooSlowError


def _resident():
    """Return this process's current memory, and its maximum since the last reset."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(fields[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM")]


def judge(target, seed):
    """Run one mutant; return its outcome with a short description."""
    rng = random.Random(seed)
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident()[0]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    size = 0
    try:
        outcome, size = target.run(rng)
        word = ""
    except errors.MillpondError as error:
        outcome, word = REFUSED, type(error).__name__
        if not str(error).replace("\n", "").replace("\t", "").isprintable():
            outcome, word = RAW, "a message that is not printable"
    except TooSlowError:
        outcome, word = HANG, _place(sys.exc_info()[2])
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        outcome, word = RAW, f"{type(error).__name__} at {_place(error.__traceback__)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    used = _resident()[1] - before
    if outcome not in BAD and used > BYTES + size:
        outcome, word = MEMORY, f"{used >> 20} MB"
    return outcome, word


def _place(trace):
    frames = [f for f in traceback.extract_tb(trace) if "millpond" in f.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[-1:-4:-1])


def child(make, first, count):
    """Run mutants one after the other, and report each on standard output."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.signal(signal.SIGPROF, _alarm)
    limit = 4 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="millpond-fuzz-", dir=memory) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        target = make(Path(folder))
        print("[]", flush=True)
        for seed in range(first, first + count):
            print(json.dumps([seed, *judge(target, seed)]), flush=True)


def run(name, first, count, until=None):
    """Run a number of mutants of a target from a seed on; return counts and faults by description.

    ``until`` ends the run earlier, at a time of the monotonic clock.
    """
    counts = collections.Counter()
    found = collections.defaultdict(list)
    seed, end = first, first + count
    while seed < end:
        command = [sys.executable, "-m", "tests.fuzz", "--child", name, str(seed), str(end - seed)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
        ) as process:
            ready = False
            for line in _lines(process):
                if not ready:
                    ready = True
                    continue
                seed, outcome, word = json.loads(line)
                counts[outcome] += 1
                if outcome in BAD:
                    found[f"{outcome} {word}"].append(seed)
                seed += 1
                if until and time.monotonic() > until:
                    end = seed
                    break
            process.kill()
        if not ready:
            raise RuntimeError(f"the target {name} cannot be made; see: {' '.join(command)}")
        if seed < end:
            outcome = HANG if process.returncode == -signal.SIGKILL else DEATH
            counts[outcome] += 1
            found[f"{outcome} status {process.returncode}"].append(seed)
            seed += 1
    return counts, dict(found)


def _lines(process):
    """Yield the child's lines; end if it sends none for too long."""
    descriptor = process.stdout.fileno()
    rest, patience = b"", 120
    while select.select([descriptor], [], [], patience)[0]:
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        patience = 2 * WAITING
    process.kill()


def table(counts_by_target):
    """Return the counts as a table for the docs."""
    heads = ["target", "mutants", *OUTCOMES]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, counts in counts_by_target.items():
        numbers = [sum(counts.values()), *(counts[outcome] for outcome in OUTCOMES)]
        lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    return "\n".join(lines)


def minutes(started):
    """Return the duration in minutes."""
    return (time.monotonic() - started) / 60
