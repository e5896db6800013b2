"""The child process that runs clauses by pytest and reports each case to the engine.

A case is one run of a clause's test. In the child, pytest loads only the plugins that this module
names, and reads no configuration and no conftest files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
from millpond.errors import MillpondError
from millpond.plugins import get_registry

from millpond_conformance.audit import audit
from millpond_conformance.judging import Case, Judge, case_of
from millpond_conformance.report import Environment
from millpond_conformance.specification import modules_of

TELL_ALL = ("CI", "BUILD_NUMBER")
"""Environment variables that the child removes, because they make pytest print full differences.

That takes hours for lists of large values.
"""
LONG = ("G4", "G3", "B5", "G1", "G2")
"""The slowest clauses, sorted from the slowest to faster ones."""


@attrs.frozen
class Order:
    """The instructions for a child process: a backend and the clauses to run.

    Attributes:
        backend: the backend's name, or ``module:attr``.
        profile: ``quick``, ``standard`` or ``soak``, the number of examples of generated tests.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
        seed: the seed of the generated programs.
        only: the numbers of the clauses to run; empty for all.
        until_failure: whether to stop at the first failure.
        shadow: whether the programs of clause G4 run in a process that does not reveal the kit.
        turns: the path of a directory by which several children share the cases. A child takes a
            case by creating a file in the directory. If `turns` is empty, the child runs all cases.
    """

    backend: str
    profile: str
    wrapped: str
    seed: int
    only: list[str]
    until_failure: bool = False
    shadow: bool = False
    turns: str = ""


class _Reporter:
    """A pytest plugin that reports the beginning and the end of each case to the engine."""

    def __init__(self, descriptor: int, judge: Judge, turns: str) -> None:
        self._turns = turns
        self._pipe = open(descriptor, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - until the end
        self._judge = judge
        judge.on_case = self._send_case

    def send(self, **message: Any) -> None:
        """Send a message to the engine."""
        self._pipe.write(json.dumps(message) + "\n")

    def _send_case(self, case: Case) -> None:
        tree = attrs.asdict(case)
        self.send(case={**tree, "verdict": case.verdict.value})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Report the cases that pytest has collected."""
        self.send(planned=[case_of(item) for item in session.items])

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the cases that no other child has taken. Without `turns`, let pytest run all cases.

        Pytest ends all fixtures after each case, because it does not know the next case yet.
        """
        if not self._turns or session.testsfailed:
            return None
        for item in sorted(session.items, key=_position):
            if not self._take(item):
                continue
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _take(self, item: pytest.Item) -> bool:
        """Take the case `item`, and return True; return False if another child has taken it."""
        name = hashlib.sha256(item.nodeid.encode()).hexdigest()
        try:
            Path(self._turns, name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Report the beginning of a case."""
        self.send(begun=case_of(item)[1], test=item.name)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Report how often each step occurred in generated programs."""
        self.send(coverage=self._judge.coverage)


def main() -> None:
    """Call `obey` with the arguments in ``sys.argv``: a descriptor, and the order as JSON."""
    os.set_inheritable(int(sys.argv[1]), False)
    obey(Order(**json.loads(sys.argv[2])), int(sys.argv[1]))


def obey(order: Order, descriptor: int) -> None:
    """Run the clauses of `order`, and report each case to the pipe with the number `descriptor`."""
    sys.path[:] = [entry for entry in sys.path if entry]
    for name in TELL_ALL:
        os.environ.pop(name, None)
    judge = Judge(frozenset(order.only))
    reporter = _Reporter(descriptor, judge, order.turns)
    try:
        get_registry().load(get_registry().resolve(order.backend))
        audit(order.backend)
        reporter.send(environment=attrs.asdict(Environment.from_backend(order.backend)))
    except MillpondError as error:
        reporter.send(error=base64.b64encode(pickle.dumps(error)).decode())
        return
    pytest.register_assert_rewrite("millpond_conformance.clauses")
    with tempfile.TemporaryDirectory(prefix="millpond-conformance-") as folder:
        os.chdir(folder)
        status = pytest.main(_arguments(order, Path(folder)), plugins=[judge, reporter])
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        reporter.send(over=int(status))


def _position(item: pytest.Item) -> int:
    """Return the sort key of the case `item`: cases of slow clauses come first.

    Otherwise one process might run a slow case alone at the end.
    """
    number = case_of(item)[1]
    return LONG.index(number) if number in LONG else len(LONG)


def _arguments(order: Order, folder: Path) -> list[str]:
    """Return the arguments for pytest.

    Args:
        order: the instructions for this process.
        folder: the working directory.
    """
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
