"""The kit itself: its specification, verdicts, reports and command."""

import contextlib
import json
import re
from datetime import date
from pathlib import Path

import millpond as mp
import pytest
from click.testing import CliRunner
from millpond import errors
from millpond_cli.main import commands
from millpond_conformance.audit import audit
from millpond_conformance.command import conformance
from millpond_conformance.errors import HarnessError
from millpond_conformance.ledger import judged, read_ledger
from millpond_conformance.page import to_html
from millpond_conformance.report import Verdict, difference, read_report
from millpond_conformance.specification import CHAPTERS, all_clauses, page

from conformance.tests.reports import report

DOCS = Path(__file__).parents[2] / "docs"


def test_every_test_is_a_clause_and_every_clause_in_the_docs():
    """Clause numbers are unique and without gaps, promises are sentences, and the page is current."""
    numbers = [clause.number for clause in all_clauses()]
    for letter in CHAPTERS:
        mine = [number for number in numbers if number[0] == letter]
        assert mine == [f"{letter}{at + 1}" for at in range(len(mine))]
        assert mine
    assert all(clause.promise.endswith(".") for clause in all_clauses())
    assert (DOCS / "quality" / "specification.md").read_text() == page()
    assert re.findall(r"^\* \*\*(\w+)\*\*", page(), re.MULTILINE) == numbers


def test_verdicts_are_a_lattice():
    """The worst verdict counts, and no result at all is INCOMPLETE."""
    assert report().verdict is Verdict.PASS
    assert report(V1=Verdict.XPASS).verdict is Verdict.XPASS
    assert report(V1=Verdict.XPASS, V2=None).verdict is Verdict.INCOMPLETE
    assert report(V1=Verdict.ERROR, V2=None).verdict is Verdict.ERROR
    assert report(V1=Verdict.ERROR, V2=Verdict.FAIL).verdict is Verdict.FAIL
    assert Verdict.worst([]) is Verdict.INCOMPLETE


def test_reports_are_written_read_and_compared(tmp_path):
    """A report is restored from its JSON; a comparison names the clauses; other input is refused."""
    before, after = report(), report(K3=Verdict.FAIL, M1=None)
    (tmp_path / "a.json").write_text(before.to_json())
    assert read_report(tmp_path / "a.json") == before
    rows = {row["clause"]: (row["before"], row["after"]) for row in difference(before, after)}
    assert rows == {"K3": ("PASS", "FAIL"), "M1": ("PASS", "-")}
    (tmp_path / "b.json").write_text(after.to_json())
    shown = CliRunner().invoke(conformance, ["diff", *map(str, tmp_path.glob("*.json")), "--json"])
    assert {row["clause"] for row in json.loads(shown.output)} == {"K3", "M1"}
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(errors.ConfigError, match="not a report"):
        read_report(tmp_path / "c.json")


def test_badge_text_and_page_tell_the_same(tmp_path):
    """Badge, text and page show the same number of passed clauses; the page escapes names."""
    found = report(K3=Verdict.FAIL)
    expected = sum(not clause.provisional for clause in all_clauses())
    count = f"{expected - 1}/{expected}"
    assert found.badge() == f"spec 0.1 · {count} · FAIL"
    assert "K3   FAIL" in found.to_text()
    assert count in found.to_text()
    assert count in to_html([found])
    assert "&lt;why&gt;" in to_html([found])
    assert "<why>" not in to_html([found])


LEDGER = """
[[failure]]
clause = "K3"
reason = "maps are being rewritten, issue 12"
expires = 2026-12-31
"""


def test_known_failures_cap_the_verdict(tmp_path):
    """A known failure makes a run CONDITIONAL; a known failure that passes is an XPASS."""
    (tmp_path / "ledger.toml").write_text(LEDGER)
    ledger = read_ledger(tmp_path / "ledger.toml", date(2026, 1, 1))
    failed = [judged(result, ledger) for result in report(K3=Verdict.FAIL).results]
    assert Verdict.worst(result.verdict for result in failed) is Verdict.CONDITIONAL
    passed = [judged(result, ledger) for result in report().results]
    assert Verdict.worst(result.verdict for result in passed) is Verdict.XPASS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("K3", "Z1"), "no clause of this number"),
        (("2026", "2020"), "has expired"),
        (("2026", "2027"), "for a year at the most"),
        (("maps are being rewritten, issue 12", " "), "give a reason"),
        (("reason", "because"), "not a ledger"),
        (("[[failure]]", "[[failure"), "is not TOML"),
    ],
)
def test_a_stale_ledger_is_refused(tmp_path, change, message):
    """Unknown clauses, expired entries and entries without a reason are refused by name."""
    (tmp_path / "ledger.toml").write_text(LEDGER.replace(*change))
    with pytest.raises(errors.ConfigError, match=message):
        read_ledger(tmp_path / "ledger.toml", date(2026, 1, 1))


def test_a_broken_opening_is_the_harness_error(monkeypatch):
    """If two backends share their entries, no clause is judged."""
    shared = []

    def open_shared(*arguments, **options):
        if not shared:
            shared.append(contextlib.nullcontext(mp_open("heap", key_type=str)))
        return shared[0]

    mp_open = mp.open_keyed_backend
    audit("heap")
    monkeypatch.setattr(mp, "open_keyed_backend", open_shared)
    with pytest.raises(HarnessError, match="share their entries"):
        audit("heap")
    shared[0].__enter__().close()


def run(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(commands, ["conformance", *arguments])


def test_a_partial_run_is_labelled():
    """If some clauses of a correct backend pass, there is no certificate."""
    result = run("heap", "--profile", "quick", "--clause", "V1", "--clause", "E", "--json")
    assert result.exit_code == 0, result.output
    tree = json.loads(result.output)
    assert (tree["verdict"], tree["partial"]) == ("INCOMPLETE", True)
    assert {each["verdict"] for each in tree["results"]} == {"PASS"}
    assert len(tree["results"]) == 1 + sum(c.number[0] == "E" for c in all_clauses())


@pytest.mark.long
@pytest.mark.sample(1, of="whole runs of the kit")
@pytest.mark.slow
@pytest.mark.parametrize("wrapped", ["both", "ttl", "metrics"])
def test_wrappers_change_nothing(wrapped):
    """Every clause passes with the core's wrappers around every state."""
    result = run("heap", "--profile", "quick", "--wrapped", wrapped, "--json")
    assert result.exit_code == 0, result.output
    tree = json.loads(result.output)
    assert (tree["verdict"], tree["wrapped"]) == ("PASS", wrapped)


def test_wrong_arguments_are_refused():
    """An unknown backend or clause is refused by name."""
    for words in (("papyrus",), ("heap", "--clause", "Z9")):
        result = run(*words)
        assert result.exit_code == 1
        assert words[-1] in result.stderr
