"""The verdicts on the clauses in a run of pytest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

import attrs
import pytest

from millpond_conformance.report import ClauseResult, Verdict
from millpond_conformance.specification import all_clauses, unsealed
from millpond_conformance.wide.coverage import FLOORS

_PROGRAM = re.compile(
    r"^E +(?:Falsifying example|Failing test case):.*\n((?:E .*\n)+)", re.MULTILINE
)
_CUT = re.compile(r"E\s*(\.\.\.Full output truncated|Use -v+ to get more diff)")
"""Pytest's advice to show more output. It is removed, because the kit has no such option."""
_PROPERTY = "millpond-clause"
_OWN_FIXTURES = ("open_backend", "clock", "storage", "wrapped", "program_seed", "shadow")
PROGRAM = "millpond-program"
COVERAGE = "millpond-coverage"
"""The names of the test properties with the shrunk program, and with the counts of steps."""


@attrs.frozen
class Case:
    """The result of one case of a clause, which is one run of its test.

    Attributes:
        backend: the backend.
        number: the number of the clause.
        verdict: the verdict.
        seconds: the duration.
        message: the message of a failure.
        program: the shrunk program of a generated test that failed.
    """

    backend: str
    number: str
    verdict: Verdict
    seconds: float
    message: str = ""
    program: str = ""


@attrs.define(eq=False)
class Judge:
    """A pytest plugin that records the outcome of each clause's cases, by backend.

    Attributes:
        only: the numbers of the clauses to run; if empty, all clauses that pytest has selected.
        report: a function that is called after each case, with the number of its clause, the number
            of finished cases and the number of all cases.
        planned: the number of planned cases, by backend and clause.
        coverage: how often each step occurred in generated programs.
        on_case: a function that is called with each case when it has ended.
    """

    only: frozenset[str] = frozenset()
    report: Callable[[str, int, int], None] = lambda number, done, total: None  # noqa: ARG005
    planned: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    coverage: dict[str, int] = attrs.field(factory=dict)
    on_case: Callable[[Case], None] = lambda case: None  # noqa: ARG005
    _cases: list[Case] = attrs.field(factory=list)
    _left_out: bool = False

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember if cases of clauses were deselected, for example by ``-k``."""
        self._left_out |= any(item.get_closest_marker("clause") for item in items)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record backend and clause of each case; remove cases of clauses outside of `only`."""
        for item in items:
            marks = list(item.iter_markers("clause"))
            if marks:
                _require_own_fixtures(item)
                arguments: Any = getattr(item, "callspec").params  # noqa: B009 - not in the type
                case = (arguments["backend_name"], str(marks[0].args[0]))
                # Stored in the report, because pytest-xdist collects and reports in different
                # processes.
                item.user_properties.append((_PROPERTY, case))
        if self.only:
            items[:] = [item for item in items if case_of(item)[1] in self.only]
        self.planned = Counter(case_of(item) for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the verdict on a case when the report ends it.

        A skipped case is INCOMPLETE. A case that was expected to fail does not pass either.
        """
        failed = report.outcome == "failed"
        ends = report.when == "call" or failed or report.outcome == "skipped"
        backend, number = case_of(report)
        if not number or not ends:
            return
        verdict = Verdict.PASS
        if failed:
            verdict = Verdict.FAIL if report.when == "call" else Verdict.ERROR
        elif report.outcome == "skipped":
            verdict = Verdict.INCOMPLETE
        elif hasattr(report, "wasxfail"):
            verdict = Verdict.XPASS
        texts = (_message(report), _program(report)) if verdict is not Verdict.PASS else ("", "")
        self.note(Case(backend, number, verdict, report.duration, *texts))
        self.coverage.update(dict(report.user_properties).get(COVERAGE, {}))  # type: ignore[call-overload]

    def note(self, case: Case) -> None:
        """Record a case that has ended, and report it."""
        self._cases.append(case)
        self.on_case(case)
        self.report(case.number, len(self._cases), self.planned.total())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print for each backend the number of clauses that ran, and the verdict."""
        for backend in self.backends():
            results = list(self.results(backend))
            verdict = Verdict.worst(result.verdict for result in results)
            run = sum(result.cases > 0 for result in results)
            whole = run == len(results) and not self._left_out
            label = verdict.value if whole else "partial, no certificate"
            terminalreporter.write_line(f"{backend}: {run}/{len(results)} clauses run · {label}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let the run fail if the verdict on a case is not PASS, for example if it was skipped."""
        spoiled = any(case.verdict is not Verdict.PASS for case in self._cases)
        if spoiled and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def backends(self) -> list[str]:
        """Return the names of the backends for which a case has run, sorted."""
        return sorted({case.backend for case in self._cases})

    def results(self, backend: str) -> Iterator[ClauseResult]:
        """Yield the result of each clause for a backend.

        The verdict is INCOMPLETE if no case of the clause has run.
        """
        changed = unsealed()
        for clause in all_clauses():
            if self.only and clause.number not in self.only:
                continue
            mine = [c for c in self._cases if (c.backend, c.number) == (backend, clause.number)]
            found = self._whole(backend, self._covered(_summed(clause.number, mine)))
            if clause.number in changed and found.verdict is Verdict.PASS:
                message = "its test differs from the one in the seal of this version of the kit"
                found = attrs.evolve(found, verdict=Verdict.INCOMPLETE, message=message)
            yield found

    def _whole(self, backend: str, found: ClauseResult) -> ClauseResult:
        """Return `found`, with INCOMPLETE instead of PASS if planned cases have not run."""
        planned = self.planned[backend, found.number]
        if found.verdict is not Verdict.PASS or found.cases >= planned:
            return found
        message = f"{found.cases} of its {planned} cases have run"
        return attrs.evolve(found, verdict=Verdict.INCOMPLETE, message=message)

    def _covered(self, found: ClauseResult) -> ClauseResult:
        """Return `found`, with INCOMPLETE instead of PASS if steps were too rare in G4's programs.

        `FLOORS` has the minimum count of each step.
        """
        short = [what for what, floor in FLOORS.items() if self.coverage.get(what, 0) < floor]
        if found.number != "G4" or found.verdict is not Verdict.PASS or not short:
            return found
        message = f"its programs did these things too rarely: {', '.join(short)}"
        return attrs.evolve(found, verdict=Verdict.INCOMPLETE, message=message)


def case_of(item: pytest.Item | pytest.TestReport) -> tuple[str, str]:
    """Return the backend and the clause number of the case `item`.

    Both are empty strings if the test has no clause number.
    """
    known: dict[str, Any] = dict(item.user_properties)
    backend, number = known.get(_PROPERTY, ("", ""))
    return backend, number


def _summed(number: str, cases: Sequence[Case]) -> ClauseResult:
    verdict = Verdict.worst(case.verdict for case in cases)
    worst = next((case for case in cases if case.verdict is verdict), None)
    seconds = round(sum(case.seconds for case in cases), 3)
    message, program = (worst.message, worst.program) if worst else ("", "")
    return ClauseResult(number, verdict, len(cases), seconds, message, program)


def _require_own_fixtures(item: pytest.Item) -> None:
    """Raise UsageError if a fixture of the caller overrides a fixture of the kit in a clause."""
    known: Any = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009 - pytest has no other way
    for name in _OWN_FIXTURES:
        for definition in known.get(name, ())[-1:]:
            if definition.func.__module__ != "millpond_conformance.fixtures":
                place = definition.func.__module__
                raise pytest.UsageError(
                    f"{place} overrides the fixture {name!r}: clauses run with the kit's own"
                )


def _message(report: pytest.TestReport) -> str:
    """Return the message of a failed case: the test, the failure's place and pytest's error."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr or "")
    kept = [line for line in text.splitlines() if not _CUT.match(line)]
    parts = groupby(kept, lambda line: bool(re.match(r"E( |$)", line)))
    errors = [dedent("\n".join(line[1:] for line in lines)) for error, lines in parts if error]
    text_of_errors = "\n".join(errors).strip()
    where = f" ({Path(crash.path).name}:{crash.lineno})" if crash else ""
    what = text_of_errors or text.strip()
    return f"{report.nodeid.rpartition('::')[2]}{where}: {what}"[:2000]


def _program(report: pytest.TestReport) -> str:
    """Return the shrunk program of a failed case, or an empty string if it has none.

    The test has recorded it as a property, or Hypothesis has printed it.
    """
    known = dict(report.user_properties).get(PROGRAM)
    if known:
        return str(known)
    found = _PROGRAM.search(str(report.longrepr or ""))
    lines = found[1].splitlines() if found else []
    return "\n".join(line.removeprefix("E").strip() for line in lines)[:4000]
