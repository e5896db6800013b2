"""Runs the clauses against a backend and judges: one engine for pytest, command line and calls."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
from millpond.errors import ConfigError
from millpond.plugins import get_registry

from millpond_conformance.audit import audit
from millpond_conformance.errors import HarnessError
from millpond_conformance.ledger import KnownFailure, judged
from millpond_conformance.plugin import PROFILES
from millpond_conformance.report import ClauseResult, Environment, Report, Verdict
from millpond_conformance.specification import all_clauses

__all__ = ["run"]


@attrs.define
class _Case:
    number: str
    verdict: Verdict
    seconds: float
    message: str = ""


@attrs.define(eq=False)
class _Collector:
    """A pytest plugin that notes what becomes of each clause's cases."""

    only: frozenset[str]
    report: Callable[[str, int, int], None]
    expected: int = 0
    cases: list[_Case] = attrs.field(factory=list)
    _numbers: dict[str, str] = attrs.field(factory=dict)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the clause of each case; leave out what was not asked for."""
        for item in items:
            marks = list(item.iter_markers("clause"))
            self._numbers[item.nodeid] = str(marks[0].args[0]) if marks else ""
        if self.only:
            items[:] = [item for item in items if self._numbers[item.nodeid] in self.only]
        self.expected = len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase's outcome; what is skipped or expected to fail is no pass."""
        number = self._numbers.get(report.nodeid, "")
        failed = report.outcome == "failed"
        if report.when != "call" and not failed and report.outcome != "skipped":
            return
        verdict = Verdict.PASS
        if failed:
            verdict = Verdict.FAIL if report.when == "call" else Verdict.ERROR
        elif report.outcome == "skipped":
            verdict = Verdict.INCOMPLETE
        elif hasattr(report, "wasxfail"):
            verdict = Verdict.XPASS
        message = _message(report) if verdict is not Verdict.PASS else ""
        self.cases.append(_Case(number, verdict, report.duration, message))
        self.report(number, len(self.cases), self.expected)


def _message(report: pytest.TestReport) -> str:
    """The last lines of a failure that say what was wrong."""
    text = str(getattr(report.longrepr, "reprcrash", None) or report.longrepr or "")
    return f"{report.nodeid.rpartition('::')[2]}: {' '.join(text.split())[:400]}"


def run(
    backend: str,
    profile: str = "standard",
    clauses: Sequence[str] = (),
    report: Callable[[str, int, int], None] = lambda number, done, total: None,  # noqa: ARG005
    ledger: Mapping[str, KnownFailure] | None = None,
    wrapped: str = "none",
) -> Report:
    """Run the specification's clauses against a backend.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        profile: ``quick``, ``standard`` or ``soak``: how many examples generated tests get.
        clauses: numbers of clauses, or letters of chapters; all by default. A partial run gives no
            certificate.
        report: called with the clause's number and how many cases are done.
        ledger: known failures by clause; with them the best verdict is CONDITIONAL.
        wrapped: ``ttl``, ``metrics`` or ``both``: the core's wrappers around every state.

    Raises:
        PluginError: the backend cannot be used.
        HarnessError: the kit itself could not run; this says nothing of the backend.
        ConfigError: there is no such profile or clause.
    """
    if profile not in PROFILES:
        raise ConfigError(
            "profile", f"{profile!r} is none of: {', '.join(PROFILES)}", "conformance"
        )
    get_registry().load(get_registry().resolve(backend))
    only = _chosen(clauses)
    audit(backend)
    collector = _Collector(only, report)
    arguments = [
        "--pyargs",
        "millpond_conformance.clauses",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--backend={backend}",
        f"--conformance-profile={profile}",
        f"--conformance-wrapped={wrapped}",
        "--override-ini=addopts=",
        "--override-ini=filterwarnings=",
    ]
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main(arguments, plugins=[collector])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise HarnessError(backend, " ".join(output.getvalue().split())[-600:])
    seconds = time.perf_counter() - started
    found = _results(collector.cases, only)
    results = tuple(judged(result, ledger or {}) for result in found)
    place = Environment.of(backend)
    return Report(backend, profile, bool(only), seconds, place, results, wrapped)


def _chosen(wanted: Sequence[str]) -> frozenset[str]:
    known = [clause.number for clause in all_clauses()]
    chosen = {number for number in known for want in wanted if want in (number, number[0])}
    unknown = [w for w in wanted if w not in known and w not in {n[0] for n in known}]
    if unknown:
        raise ConfigError("clauses", f"there is no clause {unknown[0]!r}", "conformance")
    return frozenset(chosen)


def _results(cases: Sequence[_Case], only: frozenset[str]) -> Any:
    """A verdict for each clause; one of which no case has run is incomplete."""
    for clause in all_clauses():
        if only and clause.number not in only:
            continue
        mine = [case for case in cases if case.number == clause.number]
        verdict = Verdict.worst(case.verdict for case in mine)
        message = next((case.message for case in mine if case.verdict is verdict), "")
        seconds = sum(case.seconds for case in mine)
        yield ClauseResult(clause.number, verdict, len(mine), round(seconds, 3), message)
