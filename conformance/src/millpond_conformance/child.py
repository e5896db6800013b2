"""Runs the clauses in a process of its own, which tells the engine of each case as it ends.

Nothing that stands around can answer for the tests: no plugin is loaded but those named here, no
configuration, conftest or variable of pytest's is read, and a process that ends without having
said how its run has ended has failed the clause that it was at.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

import attrs
import pytest
from millpond.errors import MillpondError
from millpond.plugins import get_registry

from millpond_conformance.audit import audit
from millpond_conformance.errors import HarnessError
from millpond_conformance.judging import Case, Judge, case_of
from millpond_conformance.report import Environment, Verdict
from millpond_conformance.specification import modules_of

__all__ = ["Child", "Order", "child_variables", "judged_by_a_child", "obey"]


@attrs.frozen
class Order:
    """What the child is asked to do."""

    backend: str
    profile: str
    wrapped: str
    seed: int
    only: list[str]
    until_failure: bool = False
    shadow: bool = False


# -------------------------------------------------------------------- in the engine's process


class Child(Protocol):
    """A process that obeys an order."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end, and give its status."""


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


def judged_by_a_child(
    order: Order, judge: Judge, begin: Callable[[Order, int, IO[bytes]], Child] = _begun
) -> Environment:
    """Have a child run the clauses; the judge learns of each case, and the versions come back.

    Args:
        order: what the child is to do.
        judge: what is told of each case.
        begin: begins the child; it is given the descriptor that the child tells by, and the file
            that takes its output.

    Raises:
        MillpondError: what the child has raised before the first clause.
        HarnessError: it has ended in another way before the first clause.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as output:
        process = begin(order, writing, output)
        os.close(writing)
        listener = _Listener(order, judge)
        try:
            with os.fdopen(reading, encoding="utf-8") as lines:
                for line in lines:
                    listener.heard(json.loads(line))
        finally:
            if sys.exc_info()[0] is not None:
                process.kill()
            status = process.wait()
        output.seek(0)
        said = " ".join(output.read()[-2000:].decode(errors="replace").split())
    return listener.ended(status, said)


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
            case {"expected": count}:
                self._judge.expected = count
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


# -------------------------------------------------------------------- in the child


class _Teller:
    """A pytest plugin that tells the engine of each case as it begins and ends."""

    def __init__(self, descriptor: int, judge: Judge) -> None:
        self._pipe = open(descriptor, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - until the end
        self._judge = judge
        judge.told = self._tell_case

    def tell(self, **message: Any) -> None:
        """Send a message."""
        self._pipe.write(json.dumps(message) + "\n")

    def _tell_case(self, case: Case) -> None:
        tree = attrs.asdict(case)
        self.tell(case={**tree, "verdict": case.verdict.value})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell how many cases there are."""
        self.tell(expected=len(session.items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Tell that a case begins."""
        self.tell(begun=case_of(item)[1], test=item.name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Tell what generated programs have done."""
        self.tell(coverage=self._judge.coverage)


def main() -> None:
    """Do what the arguments ask for: a pipe's descriptor, and an order."""
    os.set_inheritable(int(sys.argv[1]), False)
    obey(Order(**json.loads(sys.argv[2])), int(sys.argv[1]))


def obey(order: Order, descriptor: int) -> None:
    """Run the clauses that are asked for, and tell of each case by a pipe."""
    sys.path[:] = [entry for entry in sys.path if entry]
    judge = Judge(frozenset(order.only))
    teller = _Teller(descriptor, judge)
    try:
        get_registry().load(get_registry().resolve(order.backend))
        audit(order.backend)
        teller.tell(environment=attrs.asdict(Environment.of(order.backend)))
    except MillpondError as error:
        teller.tell(error=base64.b64encode(pickle.dumps(error)).decode())
        return
    pytest.register_assert_rewrite("millpond_conformance.clauses")
    with tempfile.TemporaryDirectory(prefix="millpond-conformance-") as folder:
        os.chdir(folder)
        status = pytest.main(_arguments(order, Path(folder)), plugins=[judge, teller])
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        teller.tell(over=int(status))


def _arguments(order: Order, folder: Path) -> list[str]:
    """What pytest is called with; no configuration and no conftest of the caller's is read."""
    words = [f"profile={order.profile}", f"wrapped={order.wrapped}", f"seed={order.seed}"]
    words += ["shadow=yes"] if order.shadow else []
    return [
        "--pyargs",
        *modules_of(order.only),
        "-q",
        *(["-x"] if order.until_failure else []),
        "-c",
        os.devnull,
        f"--rootdir={folder}",
        "--noconftest",
        *("-p", "no:cacheprovider"),
        *("-p", "_hypothesis_pytestplugin"),
        *("-p", "millpond_conformance.plugin"),
        "--import-mode=importlib",
        f"--millpond-backend={order.backend}",
        f"--hypothesis-seed={order.seed}",
        "-o",
        f"millpond_conformance={' '.join(words)}",
    ]
