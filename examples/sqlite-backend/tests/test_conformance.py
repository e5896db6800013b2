"""The backend keeps every promise of the specification."""

from millpond_conformance import Verdict, run


def test_it_conforms() -> None:
    """All clauses pass."""
    report = run("sqlite", "quick")
    assert report.verdict is Verdict.PASS, report.to_text()
