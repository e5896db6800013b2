"""Has the clauses run in processes of their own, and learns from them of each case as it ends.

Nothing that stands around can answer for the tests: the processes are given no variable of
pytest's, and one that ends without having said how its run has ended has failed the clause that it
was at. Several of them share the cases: each takes the next one that nobody has taken.
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
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end, and give its status."""


Begin = Callable[[Order, int, IO[bytes]], Child]
"""Begins a child: by the descriptor that it tells by, and the file that takes its output."""


def _begun(order: Order, descriptor: int, output: IO[bytes]) -> Child:
    """A fresh interpreter: nothing that this process has imported or changed is in it."""
    code = "from millpond_conformance.child import main; main()"
    return subprocess.Popen(  # noqa: S603 - the kit's own code
        [sys.executable, "-c", code, str(descriptor), json.dumps(attrs.asdict(order))],
        env=child_variables(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=[descriptor],
    )


def judged_by_children(
    order: Order, judge: Judge, processes: int = 1, begin: Begin = _begun
) -> Environment:
    """Have children run the clauses; the judge learns of each case, and the versions come back.

    Args:
        order: what the children are to do.
        judge: what is told of each case.
        processes: how many children share the cases.
        begin: begins a child.

    Raises:
        MillpondError: what a child has raised before its first clause.
        HarnessError: it has ended in another way before its first clause.
    """
    with ExitStack() as stack:
        if processes > 1:
            turns = tempfile.TemporaryDirectory(prefix="millpond-conformance-turns-")
            order = attrs.evolve(order, turns=stack.enter_context(turns))
        selector = stack.enter_context(selectors.DefaultSelector())
        children = [stack.enter_context(_Running(order, judge, begin)) for _ in range(processes)]
        for child in children:
            selector.register(child.reading, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.heard_more():
                    selector.unregister(key.fileobj)
        places = [child.ended() for child in children]
    return places[0]


class _Running:
    """A child and what it tells; it is killed where the engine gives up."""

    def __init__(self, order: Order, judge: Judge, begin: Begin) -> None:
        self.reading, writing = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - until the end
        self._process = begin(order, writing, self._output)
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

    def heard_more(self) -> bool:
        """Take what the child tells; whether it may tell more."""
        told = os.read(self.reading, 1 << 16)
        *lines, self._line = (self._line + told).split(b"\n")
        for line in lines:
            self._listener.heard(json.loads(line))
        return bool(told)

    def ended(self) -> Environment:
        """Judge the end of the process."""
        status, self._over = self._process.wait(), True
        self._output.seek(0)
        said = " ".join(self._output.read()[-2000:].decode(errors="replace").split())
        return self._listener.ended(status, said)


def child_variables() -> dict[str, str]:
    """The child's variables: those of this process, without any that would change the tests."""
    dropped = ("PYTEST_", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONINSPECT", "HYPOTHESIS_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = os.pathsep.join(filter(None, sys.path))
    return {**kept, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class _Listener:
    """Takes what the child tells."""

    def __init__(self, order: Order, judge: Judge) -> None:
        self._order, self._judge = order, judge
        self._at: tuple[str, str] | None = None
        self._place: Environment | None = None
        self._over = False

    def heard(self, told: dict[str, Any]) -> None:
        """Take one message."""
        match told:
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
        """Judge the end of the process."""
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
