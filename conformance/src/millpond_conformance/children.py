"""Child processes that run the clauses and report each case when it ends.

The caller's environment cannot answer for the tests. The children get none of pytest's variables,
and a child that ends without reporting the end of its run has failed its current clause. Several
children share the cases: each takes the next free one.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO, Any, Protocol, Self

import attrs

from millpond_conformance.child import Order
from millpond_conformance.errors import HarnessError
from millpond_conformance.judging import Case, Judge
from millpond_conformance.report import Environment, Verdict


class Child(Protocol):
    """A process that obeys an order."""

    def kill(self) -> None:
        """End the process immediately."""

    def wait(self) -> int:
        """Wait for the end of the process, and return its status."""


StartChild = Callable[[Order, int, IO[bytes]], Child]
"""Function that starts a child, given a descriptor for reports and a file for its output."""


def _start_interpreter(order: Order, descriptor: int, output: IO[bytes]) -> Child:
    """Start a new interpreter, which does not have the imports and changes of this process."""
    code = "from millpond_conformance.child import main; main()"
    return subprocess.Popen(  # noqa: S603 - the kit's own code
        [sys.executable, "-c", code, str(descriptor), json.dumps(attrs.asdict(order))],
        env=child_variables(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=[descriptor],
    )


def run_children(
    order: Order, judge: Judge, processes: int = 1, start: StartChild = _start_interpreter
) -> Environment:
    """Run the clauses in children, report each case to the judge, and return their environment.

    Args:
        order: the order for every child.
        judge: gets each case.
        processes: how many children share the cases.
        start: starts a child.

    Raises:
        MillpondError: a child raised it before its first clause.
        HarnessError: a child ended in another way before its first clause.
    """
    with ExitStack() as stack:
        if processes > 1:
            turns = tempfile.TemporaryDirectory(prefix="millpond-conformance-turns-")
            order = attrs.evolve(order, turns=stack.enter_context(turns))
        selector = stack.enter_context(selectors.DefaultSelector())
        children = [stack.enter_context(_Running(order, judge, start)) for _ in range(processes)]
        for child in children:
            selector.register(child.reading, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.read():
                    selector.unregister(key.fileobj)
        places = [child.ended() for child in children]
    return places[0]


class _Running:
    """A child and its reports; leaving the context ends the child."""

    def __init__(self, order: Order, judge: Judge, start: StartChild) -> None:
        self.reading, writing = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - until the end
        self._process = start(order, writing, self._output)
        os.close(writing)
        self._listener = _Listener(order, judge)
        self._line = b""
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._over:
            self._process.kill()
            self._process.wait()
        os.close(self.reading)
        self._output.close()

    def read(self) -> bool:
        """Read the child's next reports; return whether more may follow."""
        data = os.read(self.reading, 1 << 16)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._listener.receive(json.loads(line))
        return bool(data)

    def ended(self) -> Environment:
        """Handle the end of the process."""
        status, self._over = self._process.wait(), True
        self._output.seek(0)
        said = " ".join(self._output.read()[-2000:].decode(errors="replace").split())
        return self._listener.ended(status, said)


def child_variables() -> dict[str, str]:
    """Return this process's environment variables, except those that would change the tests."""
    dropped = ("PYTEST_", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONINSPECT", "HYPOTHESIS_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class _Listener:
    """Receives the reports of a child."""

    def __init__(self, order: Order, judge: Judge) -> None:
        self._order, self._judge = order, judge
        self._at: tuple[str, str] | None = None
        self._place: Environment | None = None
        self._over = False

    def receive(self, report: dict[str, Any]) -> None:
        """Handle one report."""
        match report:
            case {"error": pickled}:
                raise pickle.loads(base64.b64decode(pickled))  # noqa: S301 - of the kit's own child
            case {"environment": place}:
                self._place = Environment(**place)
            case {"planned": cases}:
                self._judge.planned = Counter(map(tuple, cases))
            case {"begun": number, "test": test}:
                self._at = (number, test)
            case {"case": case}:
                self._at = None
                verdict = Verdict(case.pop("verdict"))
                self._judge.note(Case(verdict=verdict, **case))
            case {"coverage": counts}:
                self._judge.coverage.update(counts)
            case {"over": _}:
                self._over = True

    def ended(self, status: int, said: str) -> Environment:
        """Handle the end of the process."""
        backend = self._order.backend
        if self._place is None or (not self._over and self._at is None):
            raise HarnessError(
                backend, f"its process has ended with status {status}: {said[-600:]}"
            )
        if not self._over:
            assert self._at is not None
            number, test = self._at
            message = (
                f"{test}: the process ended with status {status} in the middle of it: {said[-600:]}"
            )
            self._judge.note(Case(backend, number, Verdict.FAIL, 0.0, message))
        return self._place
