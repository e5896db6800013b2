"""The written specification: every promise of a backend with its number, from the clauses.

A clause is a test with a number; its docstring is the promise. The page in the docs is generated
from the tests, so every promise has a test, and every test a promise.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import attrs

SPECIFICATION_VERSION = "0.1"

MANIFEST = Path(__file__).parent / "manifest.json"
"""Written by ``millpond conformance specification FILE --seal`` for a release of the kit."""

_CLAUSES = Path(__file__).parent / "clauses"

CHAPTERS = {
    "V": "Values and keys",
    "K": "Kinds of state",
    "B": "Many keys at once",
    "S": "Snapshots and restore",
    "A": "Asynchronous snapshots",
    "P": "Savepoints",
    "D": "Failures on the way",
    "E": "Schema evolution",
    "T": "Time to live",
    "C": "Clean-up of expired entries",
    "M": "Timers",
    "O": "Operator state",
    "F": "Ownership",
    "R": "Resources and processes",
    "X": "Options and capabilities",
    "W": "The core's wrappers",
    "G": "Generated programs",
}
"""The chapters by the letter of their clauses, in their order."""


@attrs.frozen
class Clause:
    """One numbered promise.

    Attributes:
        number: a chapter's letter and a number.
        promise: the text of the promise.
        module: the module of the test.
        digest: SHA-256 of the source file of the test.
        provisional: whether the clause is new: the report has it, but it does not count yet.
    """

    number: str
    promise: str
    module: str
    digest: str
    provisional: bool = False


def _number_of(test: ast.FunctionDef) -> tuple[str, bool]:
    """Return the number of a test, and whether it is provisional."""
    marks = [
        each
        for each in test.decorator_list
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.clause"
    ]
    if len(marks) != 1:
        raise LookupError(f"{test.name} carries no clause number, or several")
    named = {word.arg: ast.literal_eval(word.value) for word in marks[0].keywords}
    return str(ast.literal_eval(marks[0].args[0])), bool(named.get("provisional"))


def _clauses_of(path: Path) -> Iterator[Clause]:
    """Yield the clauses of a file, without importing its tests."""
    source = path.read_bytes()
    module = f"millpond_conformance.clauses.{path.stem}"
    digest = hashlib.sha256(source).hexdigest()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            number, provisional = _number_of(node)
            promise = " ".join((ast.get_docstring(node) or "").split())
            yield Clause(number, promise, module, digest, provisional)


@cache
def all_clauses() -> tuple[Clause, ...]:
    """Return all clauses, by chapter and number.

    Raises:
        LookupError: a test has no number, or two tests have the same number.
    """
    found: dict[str, Clause] = {}
    for path in sorted(_CLAUSES.glob("*.py")):
        for clause in _clauses_of(path):
            if clause.number in found:
                raise LookupError(f"clause {clause.number} has two tests")
            found[clause.number] = clause
    order = list(CHAPTERS)
    return tuple(
        sorted(found.values(), key=lambda c: (order.index(c.number[0]), int(c.number[1:])))
    )


def modules_of(numbers: Collection[str]) -> list[str]:
    """Return the modules of some clauses; the package of all clauses if there are no numbers."""
    found = {clause.module for clause in all_clauses() if clause.number in numbers}
    return sorted(found) or ["millpond_conformance.clauses"]


def _digests() -> dict[str, str]:
    """Return the SHA-256 of each file of the kit, by its path in the package."""
    root = Path(__file__).parent
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.py"))
    }


def manifest() -> str:
    """Return the seal of a release: each clause and file of the kit with a digest, as JSON."""
    clauses_ = {clause.number: clause.digest for clause in all_clauses()}
    tree = {"specification": SPECIFICATION_VERSION, "clauses": clauses_, "files": _digests()}
    return json.dumps(tree, indent=1) + "\n"


def seal() -> str:
    """Return the SHA-256 of the manifest of this release."""
    return hashlib.sha256(MANIFEST.read_bytes()).hexdigest()


def changed_files() -> tuple[str, ...]:
    """Return the files of the kit that differ from the manifest: changed, new or missing."""
    sealed = json.loads(MANIFEST.read_text(encoding="utf-8")).get("files", {})
    found = _digests()
    return tuple(sorted(path for path in {*sealed, *found} if sealed.get(path) != found.get(path)))


def unsealed() -> frozenset[str]:
    """Return the clauses whose tests differ from the manifest."""
    sealed = json.loads(MANIFEST.read_text(encoding="utf-8"))["clauses"]
    return frozenset(c.number for c in all_clauses() if sealed.get(c.number) != c.digest)


def _promise(clause: Clause) -> str:
    return f"(provisional) {clause.promise}" if clause.provisional else clause.promise


def page() -> str:
    """Return the specification as a page of Markdown."""
    lines = [
        "# Specification of a state backend",
        "",
        f"Version {SPECIFICATION_VERSION}. Each promise has a number and a test of that number in",
        "`millpond-conformance`; `millpond conformance NAME` runs them all against a backend.",
        "The text comes from the tests: `millpond conformance specification FILE` writes it.",
    ]
    for letter, title in CHAPTERS.items():
        lines += ["", f"## {title}", ""]
        mine = [clause for clause in all_clauses() if clause.number[0] == letter]
        lines += [f"* **{clause.number}** {_promise(clause)}" for clause in mine]
    return "\n".join(lines) + "\n"
