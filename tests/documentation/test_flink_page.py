"""The comparison with Flink: every line is shown by something that exists, or gives its reason."""

import re
from pathlib import Path

import pytest

from tests.documentation import pages

ROOT = Path(__file__).parents[2]
HEADING = "| Flink | Millpond | shown by |"
NO_PROOF = ("", "the same")


def lines(text):
    """The lines of tables that say what shows them: Flink's, ours, and what shows it."""
    shown = ""
    for line in text.splitlines():
        if not line.startswith("|"):
            shown = ""
        elif shown and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" |")]
        else:
            shown = shown or line.strip() == HEADING


def exists(name, folder):
    """Whether there is a file, below the root or in the folder of the one before, with its test."""
    path, _, test = name.partition("::")
    file = next((file for file in (ROOT / path, folder / path) if file.exists()), None)
    return file is not None and (not test or f"def {test}(" in file.read_text())


def missing(cell, clauses):
    """What a cell names that does not exist."""
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
    """What is wrong with the lines of a page."""
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
    """Tests, clauses, pages and sections that the lines name are there."""
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
    """What the check is for, it finds."""
    (found,) = wrong(f"{HEADING}\n|---|---|---|\n{line}")
    assert message in found
