"""Reports as one page of HTML that needs nothing else: backends by chapters, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from millpond_conformance.report import ClauseResult, Report, Verdict
from millpond_conformance.specification import CHAPTERS, all_clauses

__all__ = ["to_html", "write_page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .3rem .7rem; text-align: left }
tr + tr { border-top: 1px solid #ccc } .PASS { color: #1a7f37 } .FAIL, .ERROR { color: #b3261e }
.INCOMPLETE, .XPASS { color: #8a5a00 } code, pre { font-size: 13px }
pre { overflow-x: auto }
"""


def _cell(report: Report, letter: str) -> str:
    mine = [result for result in report.results if result.number[0] == letter]
    expected = sum(clause.number[0] == letter for clause in all_clauses())
    verdict = Verdict.worst(result.verdict for result in mine)
    passed = sum(result.verdict is Verdict.PASS for result in mine)
    return f'<td class="{verdict.value}">{passed}/{expected}</td>'


def _matrix(reports: Sequence[Report]) -> str:
    head = "".join(f"<th>{escape(report.backend)}</th>" for report in reports)
    rows = "".join(
        f"<tr><th>{escape(title)}</th>{''.join(_cell(r, letter) for r in reports)}</tr>"
        for letter, title in CHAPTERS.items()
    )
    sums = "".join(f'<td class="{r.verdict.value}">{escape(r.badge())}</td>' for r in reports)
    return f"<table><tr><th></th>{head}</tr>{rows}<tr><th>verdict</th>{sums}</tr></table>"


def _program(result: ClauseResult) -> str:
    return f"<pre>{escape(result.program)}</pre>" if result.program else ""


def _failures(report: Report) -> str:
    lines = [
        f'<li><b class="{r.verdict.value}">{r.number} {r.verdict.value}</b> '
        f"<code>{escape(r.message)}</code>{_program(r)}</li>"
        for r in report.results
        if r.verdict is not Verdict.PASS
    ]
    about = report.environment
    versions = f"{about.plugin}, {about.native or 'no native library'}, millpond {about.core}"
    text = "".join(lines) or "<li>every clause that ran has passed</li>"
    run = f"profile {report.profile}, seed {report.seed}, sealed {report.seal[:12]}"
    place = escape(f"{versions}; Python {about.python} on {about.platform}; {run}")
    return f"<h2>{escape(report.backend)}</h2><p>{place}</p><ul>{text}</ul>"


def to_html(reports: Sequence[Report]) -> str:
    """The page."""
    body = _matrix(reports) + "".join(map(_failures, reports))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Conformance of Millpond's backends</title><style>{_STYLE}</style></head>"
        f"<body><h1>Conformance of Millpond's backends</h1>{body}</body></html>"
    )


def write_page(target: Path, reports: Sequence[Report]) -> None:
    """Write the page of some reports."""
    target.write_text(to_html(reports), encoding="utf-8")
