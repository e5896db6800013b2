"""Each row of the comparison with Flink names an existing proof, or gives a reason."""

import re
from pathlib import Path

import pytest

from tests.documentation import pages

ROOT = Path(__file__).parents[2]
HEADING = "| Flink | Millpond | shown by |"
NO_PROOF = ("", "the same")


def lines(text):
    """Return the cells of rows that name a proof: Flink's, Millpond's, and the proof."""
    shown = ""
    for line in text.splitlines():
        if not line.startswith("|"):
            shown = ""
        elif shown and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" |")]
        else:
            shown = shown or line.strip() == HEADING


def exists(name, folder):
    """Return whether a file exists, below the root or next to the previous one, with the named test."""
    path, _, test = name.partition("::")
    file = next((file for file in (ROOT / path, folder / path) if file.exists()), None)
    return file is not None and (not test or f"def {test}(" in file.read_text())


def missing(cell, clauses):
    """Return the names in a cell that do not exist."""
    folder = ROOT
    for name in re.findall(r"`([^`]+)`", cell):
        found = name in clauses if re.fullmatch(r"[A-Z]\d+", name) else exists(name, folder)
        if not found:
            yield name
        if "/" in name:
            folder = (ROOT / name.partition("::")[0]).parent
    for link in pages.links(cell):
        page, _, anchor = link.partition("#")
        target = (ROOT / "docs" / "explanation" / page).resolve()
        if not target.exists() or (
            anchor and anchor not in dict(pages.sections(target.read_text()))
        ):
            yield link


def wrong(text):
    """Return the faults of the rows of a page."""
    clauses = set(
        re.findall(r"^\* \*\*([A-Z]\d+)\*\*", pages.text("quality/specification.md"), re.MULTILINE)
    )
    previous = ""
    for flink, ours, shown in lines(text):
        reason = re.match(r"(missing|differs)\b[^:]*: \S+", ours)
        if ours.startswith(("missing", "differs")) and not reason:
            yield f"{flink}: no reason"
        if shown in NO_PROOF and not (previous if shown else reason):
            yield f"{flink}: nothing shows it"
        yield from (f"{flink}: there is no {name}" for name in missing(shown, clauses))
        previous = shown


def test_every_line_is_shown_or_has_its_reason():
    """All tests, clauses, pages and sections that the rows name exist."""
    text = pages.text("explanation/flink.md")
    assert len(list(lines(text))) > 100
    assert list(wrong(text)) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("| a | same | |", "a: nothing shows it"),
        ("| a | missing | `V1` |", "a: no reason"),
        ("| a | differs, as ever | `V1` |", "a: no reason"),
        ("| a | same | `V99` |", "a: there is no V99"),
        (
            "| a | same | `tests/conftest.py::test_nothing` |",
            "there is no tests/conftest.py::test_n",
        ),
        ("| a | same | [there](flink.md#nowhere) |", "a: there is no flink.md#nowhere"),
    ],
)
def test_a_planted_line_is_found(line, message):
    """The check finds a wrong row that is added."""
    (found,) = wrong(f"{HEADING}\n|---|---|---|\n{line}")
    assert message in found
