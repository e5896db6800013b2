"""An HTML page of several reports, with tables of each backend's results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from millpond_cli.output import write_text

from millpond_conformance.report import ClauseResult, Report, Verdict, gating_numbers
from millpond_conformance.specification import CHAPTERS, Clause, all_clauses

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --good: #1a7f37; --bad: #c62828; --open: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --good: #4ac26b; --bad: #ff7b72; --open: #e3b341 } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
.wide { overflow-x: auto } table { border-collapse: collapse; margin: .5rem 0 }
th, td { padding: .3rem .8rem; text-align: left; vertical-align: top }
tr + tr { border-top: 1px solid var(--line) } td, th { white-space: nowrap }
th[scope=col] { white-space: normal; min-width: 6rem }
td.text { white-space: normal; min-width: 16rem } summary { cursor: pointer; padding: .2rem 0 }
.PASS { color: var(--good) } .FAIL, .ERROR { color: var(--bad); font-weight: 600 }
.INCOMPLETE, .XPASS, .CONDITIONAL { color: var(--open) }
code, pre { font-size: 14px } pre { overflow-x: auto } code { overflow-wrap: anywhere }
"""


def _row(head: str, cells: Iterable[str]) -> str:
    return f"<tr>{head}{''.join(cells)}</tr>"


def _facts(report: Report) -> tuple[str, ...]:
    """Return the properties of `report` in which several reports on one backend may differ."""
    about = report.environment
    wrapped = "" if report.wrapped == "none" else f"wrapped {report.wrapped}"
    shadow = "in the shadow" if report.shadow else ""
    profile = f"profile {report.profile}{', partial' if report.partial else ''}"
    seed, seal = f"seed {report.seed}", f"seal {report.seal[:12]}"
    core, python = f"millpond {about.core}", f"Python {about.python}"
    return profile, wrapped, shadow, about.plugin, about.native, core, python, seal, seed


def _labels(reports: Sequence[Report]) -> list[str]:
    """Return a label for each report: the name of the backend.

    If there are several reports on the backend, the label also has the properties in which these
    reports differ.
    """
    labels = []
    for report in reports:
        same = [other for other in reports if other.backend == report.backend]
        columns = zip(*map(_facts, same), strict=True)
        differs = [len(set(column)) > 1 for column in columns]
        facts = [fact for fact, new in zip(_facts(report), differs, strict=True) if fact and new]
        labels.append(", ".join([report.backend, *facts]))
    return [
        f"{label}, report {1 + labels[:at].count(label)}" if labels.count(label) > 1 else label
        for at, label in enumerate(labels)
    ]


def _names(reports: Sequence[Report]) -> list[str]:
    return [
        f'<th scope="col"><a href="#report-{number}">{escape(label)}</a></th>'
        for number, label in enumerate(_labels(reports), 1)
    ]


def _chapter_cell(report: Report, letter: str) -> str:
    mine = [result for result in report.gating if result.number[0] == letter]
    expected = sum(c.number[0] == letter and not c.provisional for c in all_clauses())
    missing = [Verdict.INCOMPLETE] if len(mine) < expected else []
    verdict = Verdict.worst([*(result.verdict for result in mine), *missing])
    passed = sum(result.verdict is Verdict.PASS for result in mine)
    return f'<td class="{verdict.value}">{passed}/{expected}</td>'


def _sum(report: Report) -> str:
    partial = ", partial" if report.partial else ""
    return f"{report.verdict.value}{partial} {report.passed}/{len(gating_numbers())}"


def _matrix(reports: Sequence[Report]) -> str:
    rows = [
        _row(
            f'<th scope="row"><a href="#{letter}">{escape(title)}</a></th>',
            (_chapter_cell(report, letter) for report in reports),
        )
        for letter, title in CHAPTERS.items()
    ]
    sums = (f'<td class="{r.verdict.value}">{_sum(r)}</td>' for r in reports)
    head = _row("<th></th>", _names(reports))
    table = head + "".join(rows) + _row('<th scope="row">Verdict</th>', sums)
    return f'<div class="wide"><table id="matrix">{table}</table></div>'


def _clause_cell(report: Report, clause: Clause) -> str:
    found = [result for result in report.results if result.number == clause.number]
    verdict = Verdict.worst(result.verdict for result in found)
    seconds = f" {found[0].seconds:.2f} s" if found else ""
    return f'<td class="{verdict.value}">{verdict.value}{seconds}</td>'


def _clauses(reports: Sequence[Report], letter: str) -> str:
    rows = []
    for clause in all_clauses():
        if clause.number[0] == letter:
            note = " (provisional)" if clause.provisional else ""
            head = f'<th scope="row">{clause.number}</th>'
            text = f'<td class="text">{escape(clause.promise)}{note}</td>'
            rows.append(_row(head + text, (_clause_cell(report, clause) for report in reports)))
    head = _row("<th></th><th></th>", _names(reports))
    return (
        f'<details id="{letter}"><summary>{escape(CHAPTERS[letter])}</summary>'
        f'<div class="wide"><table>{head}{"".join(rows)}</table></div></details>'
    )


def _failure(result: ClauseResult) -> str:
    program = f"<pre>{escape(result.program)}</pre>" if result.program else ""
    promise = next((c.promise for c in all_clauses() if c.number == result.number), "")
    return (
        f'<li><b class="{result.verdict.value}">{result.number} {result.verdict.value}</b> '
        f"{escape(promise)}<pre>{escape(result.message)}</pre>{program}</li>"
    )


def _run(number: int, label: str, report: Report) -> str:
    about = report.environment
    versions = f"{about.plugin}, {about.native or 'no native library'}, millpond {about.core}"
    specification = f"specification {about.specification}, sealed {report.seal[:12]}"
    run = f"{specification}, profile {report.profile}, seed {report.seed}"
    place = escape(f"{versions}; Python {about.python} on {about.platform}; {run}")
    failed = [_failure(result) for result in report.results if result.verdict is not Verdict.PASS]
    text = "".join(failed) or "<li>Every clause that ran has passed.</li>"
    done = f"<p>Generated programs: {escape(report.covered())}.</p>" if report.coverage else ""
    head = f'<h2 id="report-{number}">{escape(label)}</h2>'
    return f"{head}<p>{place}</p>{done}<ul>{text}</ul>"


def _warning(label: str, report: Report) -> str:
    """Return a note in HTML if a report was made with a changed kit, otherwise an empty string."""
    if not report.changed_files:
        return ""
    return f"<p><b>{escape(f'{label}: {report.warning()}')}</b></p>"


_OPEN_TARGET = """
const open = () => document.querySelector(location.hash || "#none")?.setAttribute("open", "");
addEventListener("hashchange", open); open();
"""


def to_html(reports: Sequence[Report]) -> str:
    """Return an HTML page of `reports`."""
    runs = "".join(map(_run, range(1, len(reports) + 1), _labels(reports), reports))
    warnings = "".join(map(_warning, _labels(reports), reports))
    body = f"{warnings}{_matrix(reports)}{runs}<h2>Clauses</h2>"
    body += "".join(_clauses(reports, letter) for letter in CHAPTERS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>Conformance of Millpond's backends</title><style>{_STYLE}</style></head>"
        f"<body><h1>Conformance of Millpond's backends</h1>{body}"
        f"<script>{_OPEN_TARGET}</script></body></html>"
    )


def write_page(target: Path, reports: Sequence[Report]) -> None:
    """Write an HTML page of `reports` to the file `target`."""
    write_text(target, to_html(reports))
