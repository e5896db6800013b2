"""The written specification: every promise of a backend, numbered, as the clauses state them.

A clause is a test that carries its number; its docstring is the promise. The page in the docs is
written from them, so a promise without a test cannot stand there, nor a test without a promise.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from millpond_conformance import clauses

__all__ = [
    "CHAPTERS",
    "MANIFEST",
    "SPECIFICATION_VERSION",
    "Clause",
    "all_clauses",
    "manifest",
    "page",
    "seal",
    "unsealed",
]

SPECIFICATION_VERSION = "0.1"

MANIFEST = Path(__file__).parent / "manifest.json"
"""Written by ``millpond conformance specification FILE --seal`` for a release of the kit."""

CHAPTERS = {
    "V": "Values and keys",
    "K": "Kinds of state",
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
        promise: what a backend promises.
        digest: SHA-256 of the source file that the test stands in.
        provisional: whether the clause is new: it is told, but does not count yet.
    """

    number: str
    promise: str
    digest: str
    provisional: bool = False


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(clauses.__path__):
        yield import_module(f"{clauses.__name__}.{module.name}")


def _mark(test: Any) -> Any:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "clause"]
    if len(marks) != 1:
        raise LookupError(f"{test.__module__}.{test.__name__} carries no clause number, or several")
    return marks[0]


@cache
def all_clauses() -> tuple[Clause, ...]:
    """All clauses, by chapter and number.

    Raises:
        LookupError: a test has no number, or a number two tests.
    """
    found: dict[str, Clause] = {}
    for module in _modules():
        digest = hashlib.sha256(Path(module.__file__ or "").read_bytes()).hexdigest()
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("test_") or test.__module__ != module.__name__:
                continue
            mark = _mark(test)
            number = str(mark.args[0])
            if number in found:
                raise LookupError(f"clause {number} has two tests")
            promise = " ".join((inspect.getdoc(test) or "").split())
            provisional = bool(mark.kwargs.get("provisional"))
            found[number] = Clause(number, promise, digest, provisional)
    order = list(CHAPTERS)
    return tuple(
        sorted(found.values(), key=lambda c: (order.index(c.number[0]), int(c.number[1:])))
    )


def manifest() -> str:
    """Each clause and the digest of its test, as JSON: what a release of the kit is sealed with."""
    clauses_ = {clause.number: clause.digest for clause in all_clauses()}
    tree = {"specification": SPECIFICATION_VERSION, "clauses": clauses_}
    return json.dumps(tree, indent=1) + "\n"


def seal() -> str:
    """SHA-256 of the manifest that the kit was released with."""
    return hashlib.sha256(MANIFEST.read_bytes()).hexdigest()


def unsealed() -> frozenset[str]:
    """The clauses whose tests are not those of the manifest."""
    sealed = json.loads(MANIFEST.read_text(encoding="utf-8"))["clauses"]
    return frozenset(c.number for c in all_clauses() if sealed.get(c.number) != c.digest)


def _promise(clause: Clause) -> str:
    return f"(provisional) {clause.promise}" if clause.provisional else clause.promise


def page() -> str:
    """The specification as a page of Markdown."""
    lines = [
        "# Specification of a state backend",
        "",
        f"Version {SPECIFICATION_VERSION}. Each promise has a number and a test of that number in",
        "`millpond-conformance`; `millpond conformance NAME` runs them all against a backend.",
        "The text is the tests' own: `millpond conformance specification FILE` writes it.",
    ]
    for letter, title in CHAPTERS.items():
        lines += ["", f"## {title}", ""]
        mine = [clause for clause in all_clauses() if clause.number[0] == letter]
        lines += [f"* **{clause.number}** {_promise(clause)}" for clause in mine]
    return "\n".join(lines) + "\n"
