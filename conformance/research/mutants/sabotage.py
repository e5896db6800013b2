"""Mutants: backends that are wrong on purpose, of which the kit must catch each.

Each mutant is the heap backend with one thing spoiled. The script runs the kit's clauses against
every mutant and writes which clause has caught which: the kill matrix in the docs.

Usage: python -m conformance.research.mutants.sabotage [--markdown FILE] [--all-clauses] [NAME …]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

import attrs
import pytest
from millpond.errors import MillpondError
from millpond.storage.remote_file_systems import fsspec_schemes
from millpond_conformance import Verdict
from millpond_conformance.child import Order, obey
from millpond_conformance.children import child_variables, run_children
from millpond_conformance.elsewhere import prepare
from millpond_conformance.judging import Judge
from millpond_conformance.specification import all_clauses, modules_of

from conformance.research.mutants import (
    mutants_bundles,
    mutants_exactness,
    mutants_failures,
    mutants_limits,
    mutants_lists,
    mutants_many,
    mutants_ownership,
    mutants_parts,
    mutants_resources,
    mutants_semantics,
    mutants_snapshots,
    mutants_time,
    mutants_values,
)
from conformance.research.mutants.sabotage_tools import GALLERY

__all__ = ["GALLERY", "Kill", "judge", "markdown"]

NAME = "conformance.research.mutants.sabotage"
"""This module's name, also when it is run as a script."""

CHAPTERS = (
    mutants_values,
    mutants_many,
    mutants_snapshots,
    mutants_time,
    mutants_resources,
    mutants_ownership,
    mutants_failures,
    mutants_semantics,
    mutants_lists,
    mutants_limits,
    mutants_bundles,
    mutants_parts,
    mutants_exactness,
)
"""The modules that define the mutants."""


def __getattr__(name: str) -> Any:
    """Find a mutant by the attribute `m_<name>` of this module."""
    if name.startswith("m_") and name[2:] in GALLERY:
        return GALLERY[name[2:]]
    raise AttributeError(name)


@attrs.frozen
class Kill:
    """The result of one mutant."""

    name: str
    wrong: str
    killed_by: tuple[str, ...]


def judge(name: str, *, everything: bool) -> Kill:
    """Run the kit against a mutant: the clauses that should catch it, or all."""
    chosen = GALLERY[name]
    # Generated programs catch most mutants, but shrinking their failures takes long.
    wanted = [c.number for c in all_clauses() if c.number[0] != "G"] if everything else []
    backend = f"{NAME}:m_{name}"
    found = Judge(frozenset({*wanted, *chosen.clauses}))
    order = Order(backend, "quick", "none", 0, sorted(found.only))
    run_children(order, found, start=Fork)
    bad = (Verdict.FAIL, Verdict.ERROR)
    caught = tuple(result.number for result in found.results(backend) if result.verdict in bad)
    return Kill(name, chosen.wrong, caught)


class Fork:
    """A child of the kit that is forked from this process, because importing the kit takes most of the time."""

    def __init__(self, order: Order, descriptor: int, output: IO[bytes]) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                obey(order, descriptor)
                status = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for the end of the process."""
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def load_the_kit() -> None:
    """Import everything that each child needs, and the clauses with pytest's rewritten asserts."""
    os.environ.update(child_variables())
    pytest.register_assert_rewrite("millpond_conformance.clauses")
    plugins = ("no:cacheprovider", "_hypothesis_pytestplugin", "millpond_conformance.plugin")
    chosen = [word for name in plugins for word in ("-p", name)]
    words = [*modules_of(()), *chosen, "--import-mode=importlib", "--noconftest", "-c", os.devnull]
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = pytest.main(["--pyargs", "--collect-only", "-q", *words])
    if status is not pytest.ExitCode.OK:
        raise RuntimeError(f"the clauses were not collected: pytest has ended with {status!r}")
    # Imports that take a second: pandas at the first snapshot, fsspec at the first storage.
    # The first reported failure looks for the source file of every module.
    prepare("heap")
    fsspec_schemes()
    inspect.getmodule(load_the_kit.__code__)
    # Pytest's garbage collection at the end of each run takes half of a mutant's time.
    gc.collect()
    gc.freeze()


def markdown(kills: list[Kill]) -> str:
    """Return the kill matrix as a page of Markdown."""
    caught = {number for kill in kills for number in kill.killed_by}
    without = [clause.number for clause in all_clauses() if clause.number not in caught]
    dead = sum(bool(kill.killed_by) for kill in kills)
    lines = [
        "# Wrong backends",
        "",
        "After reading this page you know which faults of a backend the conformance kit finds.",
        "`conformance/research/mutants/sabotage.py` runs the kit against the heap backend with one fault at a time.",
        "The second column lists the clauses of the [specification](specification.md) that fail because of it.",
        f"**{dead} of {len(kills)} faults are caught**; {len(caught)} of {len(all_clauses())} clauses catch at least one.",
        "",
        "| fault | caught by |",
        "|---|---|",
        *(f"| {kill.wrong} | {', '.join(kill.killed_by) or '**nothing**'} |" for kill in kills),
        "",
        f"Clauses that have caught none yet: {', '.join(without) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Judge the named mutants, or all; the exit status is 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all-clauses", action="store_true")
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    kills = []
    load_the_kit()
    for name in given.names or GALLERY:
        try:
            kills.append(judge(name, everything=given.all_clauses))
        except MillpondError as error:
            sys.stderr.write(f"{name}: {error}\n")
            return 2
        sys.stdout.write(json.dumps(attrs.asdict(kills[-1])) + "\n")
        sys.stdout.flush()
    if given.markdown is not None:
        given.markdown.write_text(markdown(kills), encoding="utf-8")
    return 0 if all(kill.killed_by for kill in kills) else 1


if __name__ == "__main__":
    sys.modules[NAME] = sys.modules["__main__"]
    sys.exit(main())
