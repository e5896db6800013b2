"""A backend cannot pass the kit by skipping, selecting, overriding or changing clauses."""

import json
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import attrs
import pytest
from millpond_conformance import Verdict, run, specification
from millpond_conformance.judging import Judge
from millpond_conformance.page import to_html
from millpond_conformance.report import read_report
from millpond_conformance.specification import MANIFEST, all_clauses, manifest
from millpond_conformance.wide import FLOORS

from conformance.research.mutants import sabotage  # noqa: F401 - its mutants are named below
from conformance.tests.reports import report

pytestmark = pytest.mark.slow

OPTIONS = "millpond_conformance.clauses.test_options"


def plain_pytest(folder, conftest, *arguments):
    """Run a chapter with plain pytest, in a folder with a user's conftest."""
    (folder / "conftest.py").write_text(conftest)
    command = [sys.executable, "-m", "pytest", "--pyargs", OPTIONS, "--millpond-backend", "heap"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


SKIPPING = """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        if "X1" in str(list(item.iter_markers("clause"))):
            item.add_marker(pytest.mark.{mark})
"""
OVERRIDING = """
import pytest
@pytest.fixture
def open_backend():
    raise NotImplementedError
"""


def test_a_plain_run_tells_how_much_it_was(tmp_path):
    """If only some clauses of a correct backend run, the result is called partial."""
    done = plain_pytest(tmp_path, "")
    assert done.returncode == 0, done.stdout
    clauses = all_clauses()
    run = sum(OPTIONS.endswith(clause.module) for clause in clauses)
    assert 0 < run < len(clauses)
    assert f"heap: {run}/{len(clauses)} clauses run · partial, no certificate" in done.stdout


def test_a_choice_within_a_clause_is_partial():
    """If a case of a clause was deselected, there is no certificate."""
    judge, lines = Judge(coverage=dict(FLOORS)), []
    for clause in all_clauses():
        case = [("millpond-clause", ("heap", clause.number))]
        passed = pytest.TestReport("x", ("x", 0, "x"), {}, "passed", None, "call", (), 0.1)
        passed.user_properties = case
        judge.pytest_runtest_logreport(passed)
    terminal = SimpleNamespace(write_line=lines.append)
    judge.pytest_terminal_summary(terminal)
    judge.pytest_deselected([SimpleNamespace(get_closest_marker=lambda name: name == "clause")])
    judge.pytest_terminal_summary(terminal)
    count = len(all_clauses())
    assert lines == [
        f"heap: {count}/{count} clauses run · PASS",
        f"heap: {count}/{count} clauses run · partial, no certificate",
    ]


@pytest.mark.parametrize("mark", ["skip", "xfail(strict=False)"])
def test_a_skipped_clause_fails_a_plain_run(tmp_path, mark):
    """A clause that a conftest skips fails the run."""
    done = plain_pytest(tmp_path, SKIPPING.format(mark=mark))
    assert done.returncode == 1, done.stdout


def test_the_kits_fixtures_cannot_be_overridden(tmp_path):
    """Clauses with an overridden fixture of the kit are not run."""
    done = plain_pytest(tmp_path, OVERRIDING, "millpond_conformance.clauses.test_values")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "overrides the fixture 'open_backend'" in done.stdout + done.stderr


def test_the_engine_reads_no_conftest(tmp_path, monkeypatch):
    """A chapter that the engine runs ignores conftest files."""
    (tmp_path / "conftest.py").write_text(SKIPPING.format(mark="skip"))
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k nothing\n")
    monkeypatch.chdir(tmp_path)
    found = run("heap", "quick", ["X"])
    assert [result.verdict for result in found.results] == [Verdict.PASS] * 3


def test_the_kit_is_sealed():
    """The manifest matches the clauses; `millpond conformance specification --seal` writes it."""
    assert MANIFEST.read_text() == manifest()


def test_a_changed_clause_is_no_pass(tmp_path, monkeypatch):
    """A clause whose test differs from the sealed one is incomplete, with the reason."""
    tree = json.loads(MANIFEST.read_text())
    tree["clauses"]["X1"] = "0" * 64
    (tmp_path / "manifest.json").write_text(json.dumps(tree))
    monkeypatch.setattr(specification, "MANIFEST", tmp_path / "manifest.json")
    found = {result.number: result for result in run("heap", "quick", ["X"]).results}
    assert found["X1"].verdict is Verdict.INCOMPLETE
    assert "seal of this version" in found["X1"].message
    assert found["X2"].verdict is Verdict.PASS


def test_a_changed_kit_is_told_first():
    """If files of the kit differ from the sealed ones, text, JSON and page begin with a warning."""
    changed = attrs.evolve(report(), changed_files=("clauses/test_values.py",))
    warning = "NOT THE RELEASED KIT: 1 changed files (clauses/test_values.py)"
    assert changed.to_text().splitlines()[0] == warning
    assert next(iter(json.loads(changed.to_json()).values())) == warning
    shown = to_html([changed])
    assert shown.index(warning) < shown.index("<table")
    assert (
        "NOT THE RELEASED KIT" not in to_html([report()]) + report().to_text() + report().to_json()
    )


def test_programs_that_did_too_little_prove_too_little():
    """Below one minimum, clause G4 is incomplete, and names the step that was too rare."""
    passed = pytest.TestReport("x", ("x", 0, "x"), {}, "passed", None, "call", (), 0.1)
    passed.user_properties = [("millpond-clause", ("heap", "G4"))]
    for short in (0, 1):
        rare = {what: floor - short * (what == "rescale") for what, floor in FLOORS.items()}
        judge = Judge(frozenset({"G4"}), coverage=rare)
        judge.pytest_runtest_logreport(passed)
        (found,) = judge.results("heap")
        assert found.verdict is (Verdict.INCOMPLETE if short else Verdict.PASS)
        assert found.message.endswith("too rarely: rescale" * short)


def test_cases_that_have_not_run_prove_nothing():
    """A clause is incomplete if some of its cases have not run."""
    passed = pytest.TestReport("x", ("x", 0, "x"), {}, "passed", None, "call", (), 0.1)
    passed.user_properties = [("millpond-clause", ("heap", "V1"))]
    for planned in (1, 2):
        judge = Judge(frozenset({"V1"}), planned=Counter({("heap", "V1"): planned}))
        judge.pytest_runtest_logreport(passed)
        (found,) = judge.results("heap")
        assert found.verdict is (Verdict.PASS if planned == 1 else Verdict.INCOMPLETE)
    assert found.message == "1 of its 2 cases have run"


@pytest.mark.long
def test_a_failure_tells_its_shrunk_program(tmp_path):
    """The report of a failed generated clause contains the shrunk program, and the seed to repeat it."""
    found = run("conformance.research.mutants.sabotage:m_false_is_nothing", "quick", ["G4"], seed=7)
    (result,) = found.results
    assert result.verdict is Verdict.FAIL
    assert result.program.count("play(") == 1
    assert found.seed == 7
    (tmp_path / "report.json").write_text(found.to_json())
    assert read_report(tmp_path / "report.json") == found


def test_a_failure_is_told_as_it_was_indented():
    """The lines of an error keep their indentation, and pytest's advice is omitted."""
    lines = [
        "E       AssertionError: first",
        "E         second",
        "E       Use -v to get more diff",
        "The above exception was the direct cause of the following exception:",
        "E           third",
        "E           ...Full output truncated (3 lines hidden), use '-vv' to show",
    ]
    judge = Judge(frozenset({"V1"}))
    judge.pytest_runtest_logreport(
        SimpleNamespace(
            nodeid="test_values.py::test_it",
            user_properties=[("millpond-clause", ("heap", "V1"))],
            outcome="failed",
            when="call",
            duration=0.1,
            longrepr="\n".join(lines),
        )
    )
    (result,) = judge.results("heap")
    assert result.message == "test_it: AssertionError: first\n  second\nthird"


def test_provisional_clauses_do_not_count():
    """A new clause is reported, but it neither fails a run nor is required."""
    (number,) = (clause.number for clause in all_clauses() if clause.provisional)
    assert report(**{number: Verdict.FAIL}).verdict is Verdict.PASS
    assert report(**{number: None}).verdict is Verdict.PASS
    assert f"{number}   FAIL (provisional)" in report(**{number: Verdict.FAIL}).to_text()
    assert f"{len(all_clauses()) - 1}/{len(all_clauses()) - 1}" in report().badge()
