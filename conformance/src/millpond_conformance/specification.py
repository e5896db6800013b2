"""The written specification: every promise of a backend, numbered, as the clauses state them.

A clause is a test that carries its number; its docstring is the promise. The page in the docs is
written from them, so a promise without a test cannot stand there, nor a test without a promise.
"""

from __future__ import annotations

import hashlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import attrs

from millpond_conformance import clauses

__all__ = ["CHAPTERS", "SPECIFICATION_VERSION", "Clause", "all_clauses", "page"]

SPECIFICATION_VERSION = "0.1"

CHAPTERS = {
    "V": "Values and keys",
    "K": "Kinds of state",
    "S": "Snapshots and restore",
    "A": "Asynchronous snapshots",
    "P": "Savepoints",
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
        test: the test that checks it, as ``module::function``.
        digest: SHA-256 of the test's source, by which a changed clause is told.
    """

    number: str
    promise: str
    test: str
    digest: str

    @property
    def chapter(self) -> str:
        """The title of its chapter."""
        return CHAPTERS[self.number[0]]


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.iter_modules(clauses.__path__):
        yield import_module(f"{clauses.__name__}.{module.name}")


def _number(test: Any) -> str:
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "clause"]
    if len(marks) != 1:
        raise LookupError(f"{test.__module__}.{test.__name__} carries no clause number, or several")
    return str(marks[0].args[0])


@cache
def all_clauses() -> tuple[Clause, ...]:
    """All clauses, by chapter and number.

    Raises:
        LookupError: a test has no number, or a number two tests.
    """
    found: dict[str, Clause] = {}
    for module in _modules():
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("test_") or test.__module__ != module.__name__:
                continue
            number = _number(test)
            if number in found:
                raise LookupError(f"clause {number} has two tests")
            digest = hashlib.sha256(inspect.getsource(test).encode()).hexdigest()
            where = f"{module.__name__.rpartition('.')[2]}::{name}"
            promise = " ".join((inspect.getdoc(test) or "").split())
            found[number] = Clause(number, promise, where, digest)
    order = list(CHAPTERS)
    return tuple(
        sorted(found.values(), key=lambda c: (order.index(c.number[0]), int(c.number[1:])))
    )


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
        lines += [f"* **{clause.number}** {clause.promise}" for clause in mine]
    return "\n".join(lines) + "\n"
