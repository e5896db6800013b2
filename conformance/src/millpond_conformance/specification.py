"""The specification of a backend: numbered promises, called clauses.

Each clause is a test with a number. The docstring of the test is the text of the promise. The
page in the docs is generated from these tests.
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
"""The manifest of the kit, which ``millpond conformance specification FILE --seal`` writes."""

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
"""The titles of the chapters, by the letter of their clauses and in the order of the page."""


@attrs.frozen
class Clause:
    """One numbered promise.

    Attributes:
        number: the letter of a chapter and a number, such as ``G4``.
        promise: the text of the promise.
        module: the module of the test.
        digest: the SHA-256 digest of the source file of the test.
        provisional: whether the clause is new. Reports show it, but it does not decide the verdict.
    """

    number: str
    promise: str
    module: str
    digest: str
    provisional: bool = False


def _number_of(test: ast.FunctionDef) -> tuple[str, bool]:
    """Return the clause number of `test`, and whether the clause is provisional.

    Raises:
        LookupError: the test has no clause number, or several.
    """
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
    """Yield the clauses in the source file `path`, without importing it."""
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
    """Return all clauses of the specification, sorted by chapter and number.

    Raises:
        LookupError: a test has no clause number, or two tests have the same one.
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
    """Return the modules of the clauses with these numbers.

    If `numbers` is empty, return the package of all clauses.
    """
    found = {clause.module for clause in all_clauses() if clause.number in numbers}
    return sorted(found) or ["millpond_conformance.clauses"]


def _digests() -> dict[str, str]:
    """Return the SHA-256 digest of each Python file of the kit, by its path in the package."""
    root = Path(__file__).parent
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.py"))
    }


def manifest() -> str:
    """Return the manifest of the kit's files as they are now: JSON with a digest of each file."""
    clauses_ = {clause.number: clause.digest for clause in all_clauses()}
    tree = {"specification": SPECIFICATION_VERSION, "clauses": clauses_, "files": _digests()}
    return json.dumps(tree, indent=1) + "\n"


def seal() -> str:
    """Return the seal: the SHA-256 digest of the stored manifest."""
    return hashlib.sha256(MANIFEST.read_bytes()).hexdigest()


def changed_files() -> tuple[str, ...]:
    """Return the files of the kit that differ from the stored manifest: changed, new or missing."""
    sealed = json.loads(MANIFEST.read_text(encoding="utf-8")).get("files", {})
    found = _digests()
    return tuple(sorted(path for path in {*sealed, *found} if sealed.get(path) != found.get(path)))


def unsealed() -> frozenset[str]:
    """Return the numbers of the clauses whose source files differ from the stored manifest."""
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
