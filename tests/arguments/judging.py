"""Judges calls in children with limits of time and memory, which no call can pass unnoticed.

``python -m tests.arguments.judging`` reads a line for each piece of work, the name of a target and what to
do with it, and answers each with a line: what was wrong. Each piece has a process of its own, forked
from one that has imported everything; so neither a death, nor memory that an earlier call has left
behind, nor a caught MemoryError hides anything.
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
# Beyond the limit, so that what stays below it never fails for want of memory.
WALL = 4 * BYTES


class TooLongError(BaseException):
    """A call takes too long; nothing may catch it."""


def too_long(*_):
    """What the timers do."""
    raise TooLongError


def memory(kind):
    """What this process has in memory now (VmRSS), at most (VmHWM), or in addresses (VmSize)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[kind].split()[0]) << 10


def set_limits():
    """Have this process fail where it asks for much more memory than it has now, which is given."""
    most = memory("VmSize") + WALL
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGALRM, too_long)
    signal.signal(signal.SIGPROF, too_long)
    return memory("VmRSS")


def judged(function, before):
    """What is wrong with a call that gives its own complaint, or None: its time and memory too.

    ``before`` is what the process had when it began, and not just before this call, which can then
    not hide in what earlier ones have left.
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
    """What is wrong with a target: with each odd value in turn, and in so many random calls."""
    before = set_limits()
    found = {}
    for name, given in odd_calls(target, first, count):
        wrong = judged(lambda given=given: calling.complaint(target, given), before)
        if wrong:
            found[name] = wrong
    return found


def odd_calls(target, first, count):
    """Names of calls, and their odd arguments."""
    names = [*targets.TARGETS[target][1]]
    for name in names:
        for what, value in odd.ODD.items():
            yield f"{name}={what}", {name: value}
    for seed in range(first, first + count):
        rng = random.Random(f"{seed} {target}")
        chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 3))))
        yield f"seed {seed}", {name: odd.random_value(rng) for name in chosen}


def in_a_child(work, answer):
    """Do a piece of work in a forked process; a dictionary of what is wrong is written."""
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
    """A process that judges; made once for many targets."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.arguments.judging"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    def complaints(self, target, first, count, patience=300):
        """What is wrong with a target; see the function of that name."""
        self.process.stdin.write(json.dumps([target, first, count]).encode() + b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], patience)[0]:
            return {"process": f"no answer within {patience} s"}
        return json.loads(self.process.stdout.readline() or '{"process": "the judge is dead"}')

    def close(self):
        """End it, and what it has started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


if __name__ == "__main__":
    serve()
