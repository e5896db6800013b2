"""Run the kit against one wrong backend, in forks of a process with the expensive imports.

Libraries that take seconds to import are imported once. Each fork imports millpond, the kit and the
backends, of which one module is mutated. Processes that clauses start import the same mutant by
`sitecustomize`.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import attrs  # noqa: F401 - imported once for all forks, like the others that nobody names here
import cattrs  # noqa: F401
import click  # noqa: F401
import hypothesis.stateful  # noqa: F401
import lmdb  # noqa: F401
import msgspec  # noqa: F401
import pandas as pd  # noqa: F401
import pluggy  # noqa: F401
import pyarrow.fs
import pyarrow.ipc  # noqa: F401
import pytest  # noqa: F401

from conformance.research.mutation.sitecustomize import mutate_imports

__all__ = ["killed_by"]

PROCESSOR_SECONDS, SECONDS, MEMORY = 240, 1800, 6 << 30
"""Limits for the process of a stage; the limit of elapsed seconds allows for other work on the machine."""


def killed_by(
    backend: str,
    stage: tuple[str, ...],
    mutant: str = "",
    profile: str = "standard",
) -> str:
    """Return the clause that kills a backend in a stage, or how its process ended; None if it survives.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        stage: chapters and clauses.
        mutant: ``module:place`` of what is changed; this process may not have imported it.
        profile: how much generated tests do.
    """
    if mutant.partition(":")[0] in sys.modules:
        raise RuntimeError(f"{mutant}: it is imported here, so that no fork would have the change")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _judge(backend, stage, mutant, profile, writing)
        except BaseException as error:  # noqa: BLE001 - an import that fails kills the mutant
            os.write(writing, json.dumps({"failed": type(error).__name__}).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    verdict = _heard(reading)
    for end in (os.killpg, os.kill):
        try:
            end(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(child, 0)
    return verdict


def _heard(reading: int) -> str:
    """Return the first failure that the child reports; `timeout` or `ended` if it reports no end."""
    until, rest = time.monotonic() + SECONDS, b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            data = pipe.read(65536)
            if not data:
                return "ended"
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                verdict = _verdict(json.loads(line))
                if verdict is not None:
                    return verdict
    return "timeout"


def _verdict(told: dict[str, Any]) -> str | None:
    match told:
        case {"failed": name}:
            return str(name)
        case {"error": _}:
            return "opening"
        case {"case": {"verdict": "FAIL" | "ERROR", "number": number}}:
            return str(number)
        case {"over": _}:
            return ""
    return None


def _belongs(number: str, stage: tuple[str, ...]) -> bool:
    # G4 is a stage of its own, before the other clauses of its chapter.
    return number in stage or (number[0] in stage and number != "G4")


def _judge(backend: str, stage: tuple[str, ...], mutant: str, profile: str, writing: int) -> None:
    """Run a stage of the kit in the fork, and report through a pipe."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(quiet, descriptor)
    here = str(Path(__file__).parent)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["MILLPOND_MUTANT"] = mutant
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, sys.path)])
    if mutant:
        mutate_imports(mutant)
    from millpond_conformance import child
    from millpond_conformance.specification import all_clauses
    from millpond_conformance.wide import shrinking

    shrinking.shrunk = lambda steps, _: list(steps)  # the program is not used
    only = [c.number for c in all_clauses() if _belongs(c.number, stage)]
    order = child.Order(backend, profile, "none", 1, only, until_failure=True)
    child.obey(order, writing)
