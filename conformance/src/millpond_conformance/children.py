"""Child processes that run the clauses and report each case.

A case is one run of a clause's test. If there are several children, each child takes the next case
that no child has taken. If a child ends during a case, the case has failed. The caller's
environment cannot change the results, because the children do not get pytest's variables.
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
    """A child process that runs clauses, i.e. tests of the conformance kit."""

    def kill(self) -> None:
        """End the process immediately."""

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit status."""


StartChild = Callable[[Order, int, IO[bytes]], Child]
"""A function that starts a child.

Its arguments are the instructions for the child, the descriptor of the pipe for reports, and the
file for the child's output.
"""


def _start_interpreter(order: Order, descriptor: int, output: IO[bytes]) -> Child:
    """Start a child as a new Python interpreter; see `StartChild` for the arguments."""
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
    """Run the clauses in children, and return the environment that the first child has reported.

    Args:
        order: the instructions for every child.
        judge: records each case.
        processes: the number of children.
        start: the function that starts a child.

    Raises:
        MillpondError: a child could not open or use the backend.
        HarnessError: a child has ended too early, but not during a case.
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
    """A running child and the pipe with its reports; a context manager that ends the child."""

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
        """Read and handle the child's next reports; return whether more reports may follow."""
        data = os.read(self.reading, 1 << 16)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._listener.receive(json.loads(line))
        return bool(data)

    def ended(self) -> Environment:
        """Wait for the end of the process, and return the result of `_Listener.ended`."""
        status, self._over = self._process.wait(), True
        self._output.seek(0)
        said = " ".join(self._output.read()[-2000:].decode(errors="replace").split())
        return self._listener.ended(status, said)


def child_variables() -> dict[str, str]:
    """Return the environment variables for a child.

    The child gets the variables of this process, except those that would change the tests. The
    variable PYTHONPATH contains the module search path of this process.
    """
    dropped = ("PYTEST_", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONINSPECT", "HYPOTHESIS_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class _Listener:
    """The receiver of a child's reports, which records them in the judge."""

    def __init__(self, order: Order, judge: Judge) -> None:
        self._order, self._judge = order, judge
        self._at: tuple[str, str] | None = None
        self._place: Environment | None = None
        self._over = False

    def receive(self, report: dict[str, Any]) -> None:
        """Handle one report: record its contents, or raise the error that it contains."""
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
        """Return the environment that the child has reported.

        If the process ended during a case, record that this case has failed.

        Args:
            status: the exit status of the process.
            said: the end of the process's output, for messages.

        Raises:
            HarnessError: the process ended early, and not during a case.
        """
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
