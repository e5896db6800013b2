"""Runs the clauses against a backend and judges: one engine for pytest, command line and calls."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from millpond.errors import ConfigError
from millpond.plugins import get_registry

from millpond_conformance.audit import audit
from millpond_conformance.errors import HarnessError
from millpond_conformance.judging import Judge
from millpond_conformance.ledger import KnownFailure, judged
from millpond_conformance.plugin import PROFILES
from millpond_conformance.report import Environment, Report
from millpond_conformance.specification import all_clauses, seal

__all__ = ["run"]


def run(
    backend: str,
    profile: str = "standard",
    clauses: Sequence[str] = (),
    report: Callable[[str, int, int], None] = lambda number, done, total: None,  # noqa: ARG005
    ledger: Mapping[str, KnownFailure] | None = None,
    wrapped: str = "none",
    seed: int | None = None,
) -> Report:
    """Run the specification's clauses against a backend.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        profile: ``quick``, ``standard`` or ``soak``: how many examples generated tests get.
        clauses: numbers of clauses, or letters of chapters; all by default. A partial run gives no
            certificate.
        report: called with the clause's number and how many cases are done, and of how many.
        ledger: known failures by clause; with them the best verdict is CONDITIONAL.
        wrapped: ``ttl``, ``metrics`` or ``both``: the core's wrappers around every state.
        seed: of the generated programs, to run those of another report; a random one by default.
            The profile ``quick`` always runs the same ones.

    Raises:
        PluginError: the backend cannot be used.
        HarnessError: the kit itself could not run; this says nothing of the backend.
        ConfigError: there is no such profile or clause.
    """
    if profile not in PROFILES:
        raise ConfigError(
            "profile", f"expected one of {', '.join(PROFILES)}, got {profile!r}", "conformance"
        )
    get_registry().load(get_registry().resolve(backend))
    only = _chosen(clauses)
    audit(backend)
    chosen_seed = _seed(profile) if seed is None else seed
    judge = Judge(only, report)
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = pytest.main(_arguments(backend, profile, wrapped, chosen_seed), plugins=[judge])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise HarnessError(backend, " ".join(output.getvalue().split())[-600:])
    seconds = time.perf_counter() - started
    results = tuple(judged(result, ledger or {}) for result in judge.results(backend))
    place = Environment.of(backend)
    return Report(
        backend, profile, bool(only), seconds, place, results, wrapped, chosen_seed, seal()
    )


def _seed(profile: str) -> int:
    return 0 if profile == "quick" else secrets.randbits(32)


def _arguments(backend: str, profile: str, wrapped: str, seed: int) -> list[str]:
    """What pytest is called with; no configuration and no conftest of the caller's is read."""
    return [
        "--pyargs",
        "millpond_conformance.clauses",
        "-q",
        "-c",
        os.devnull,
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--backend={backend}",
        f"--conformance-profile={profile}",
        f"--conformance-wrapped={wrapped}",
        f"--hypothesis-seed={seed}",
    ]


def _chosen(wanted: Sequence[str]) -> frozenset[str]:
    known = [clause.number for clause in all_clauses()]
    chosen = {number for number in known for want in wanted if want in (number, number[0])}
    unknown = [w for w in wanted if w not in known and w not in {n[0] for n in known}]
    if unknown:
        raise ConfigError("clauses", f"there is no clause {unknown[0]!r}", "conformance")
    return frozenset(chosen)
