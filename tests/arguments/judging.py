"""Judge calls in child processes with limits of time and memory.

``python -m tests.arguments.judging`` reads tasks from standard input, one per line: the name of a
target and what to do with it. It answers each with a line that says what was wrong. Each task runs
in its own process, forked from one that has imported everything. So a crash, memory left by an
earlier call, or a caught MemoryError cannot hide a fault.
"""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once, not in each child

from tests.arguments import calling, making, odd, targets, walk

__all__ = ["Judge", "complaints", "judged"]

SECONDS = 2
WAITING = 20
BYTES = 200 << 20
# Higher than the tested limit, so that a call within the limit never runs out of memory.
WALL = 4 * BYTES


class TooLongError(BaseException):
    """The error of a call that takes too long; no code may catch it."""


def too_long(*_):
    """Raise the error when the timer fires."""
    raise TooLongError


def memory(kind):
    """Return this process's memory in bytes: current (VmRSS), maximum (VmHWM) or address space (VmSize)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[kind].split()[0]) << 10


def set_limits():
    """Limit the memory that this process can get in addition to its current memory."""
    most = memory("VmSize") + WALL
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGALRM, too_long)
    signal.signal(signal.SIGPROF, too_long)
    return memory("VmRSS")


def judged(function, before):
    """Return what is wrong with a call, including its time and memory, or None.

    `before` is the memory of the process at its start. So memory that earlier calls have left
    counts too.
    """
    Path("/proc/self/clear_refs").write_text("5")
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = function()
    except TooLongError:
        found = f"more than {SECONDS} s of work, or {WAITING} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        found = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    used = memory("VmHWM") - before
    return found or (f"{used >> 20} MB" if used > BYTES else None)


def complaints(target, first, count):
    """Return the faults of a target, called with each odd value alone and with random combinations."""
    before = set_limits()
    found = {}
    for name, given in odd_calls(target, first, count):
        wrong = judged(lambda given=given: calling.complaint(target, given), before)
        if wrong:
            found[name] = wrong
    return found


def odd_calls(target, first, count):
    """Yield names of calls, with their odd arguments."""
    names = [*targets.TARGETS[target][1]]
    for name in names:
        for what, value in odd.ODD.items():
            yield f"{name}={what}", {name: value}
    for seed in range(first, first + count):
        rng = random.Random(f"{seed} {target}")
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
        yield f"seed {seed}", {name: odd.random_value(rng) for name in chosen}


def in_a_child(work, answer):
    """Run a task in a forked process, which writes a dictionary of faults."""
    child = os.fork()
    if not child:
        try:
            with tempfile.TemporaryDirectory(prefix="millpond-arguments-") as folder:
                os.chdir(folder)
                os.write(answer, json.dumps(work()).encode() + b"\n")
                os.chdir("/")
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - this process ends here
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        os.write(answer, json.dumps({"process": f"it ended with {status}"}).encode() + b"\n")


def serve():
    """Answer every line of standard input."""
    walk.callables()
    making.harness()
    calling.close_all()
    for line in sys.stdin:
        call = json.loads(line)
        in_a_child(lambda: complaints(*call), 1)  # noqa: B023 - called at once


class Judge:
    """A judging process, started once for many targets."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.arguments.judging"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    def complaints(self, target, first, count, patience=300):
        """Return the faults of a target; see the function of the same name."""
        self.process.stdin.write(json.dumps([target, first, count]).encode() + b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], patience)[0]:
            return {"process": f"no answer within {patience} s"}
        return json.loads(self.process.stdout.readline() or '{"process": "the judge is dead"}')

    def close(self):
        """End the process and its children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


if __name__ == "__main__":
    serve()
