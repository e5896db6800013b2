"""Runs the clauses against a backend and judges: one engine for pytest, command line and calls."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from millpond.errors import ConfigError
from millpond.plugins import get_registry

from millpond_conformance.child import Order
from millpond_conformance.children import judged_by_children
from millpond_conformance.fixtures import PROFILES
from millpond_conformance.judging import Judge
from millpond_conformance.ledger import KnownFailure, judged
from millpond_conformance.report import Report
from millpond_conformance.specification import all_clauses, changed_files, seal


def run(
    backend: str,
    profile: str = "standard",
    clauses: Sequence[str] = (),
    report: Callable[[str, int, int], None] = lambda number, done, total: None,  # noqa: ARG005
    ledger: Mapping[str, KnownFailure] | None = None,
    wrapped: str = "none",
    seed: int | None = None,
    *,
    until_failure: bool = False,
    shadow: bool = False,
    processes: int | None = None,
) -> Report:
    """Run the specification's clauses against a backend, in processes of their own.

    No plugin, conftest, configuration or variable of pytest's that stands around is heeded.

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
        until_failure: whether to stop at the first failure; the rest is INCOMPLETE then.
        shadow: whether the programs of clause G4 run in a process of their own whose modules and
            stack do not give the kit away.
        processes: how many processes share the clauses; by default two, and one for a partial run
            or with ``until_failure``. One alone runs them in the order of their files.

    Raises:
        PluginError: the backend cannot be used.
        UnopenableBackendError: the backend cannot be opened, or not the way every clause needs.
        HarnessError: the kit itself could not run; this says nothing of the backend.
        ConfigError: there is no such profile or clause.
    """
    _check(profile, processes)
    get_registry().resolve(backend)
    only = _chosen(clauses)
    chosen_seed = _seed(profile) if seed is None else seed
    judge = Judge(only, report)
    started = time.perf_counter()
    order = Order(backend, profile, wrapped, chosen_seed, sorted(only), until_failure, shadow)
    usual = 1 if only or until_failure else 2
    place = judged_by_children(order, judge, processes or usual)
    seconds = time.perf_counter() - started
    results = tuple(judged(result, ledger or {}) for result in judge.results(backend))
    return Report(
        backend,
        profile,
        bool(only),
        seconds,
        place,
        results,
        wrapped,
        chosen_seed,
        seal(),
        coverage=judge.coverage,
        changed_files=changed_files(),
        shadow=shadow,
    )


def _check(profile: str, processes: int | None) -> None:
    if profile not in PROFILES:
        raise ConfigError(
            "profile", f"expected one of {', '.join(PROFILES)}, got {profile!r}", "conformance"
        )
    if processes is not None and processes < 1:
        raise ConfigError("processes", f"expected 1 or more, got {processes}", "conformance")


def _seed(profile: str) -> int:
    return 0 if profile == "quick" else secrets.randbits(32)


def _chosen(wanted: Sequence[str]) -> frozenset[str]:
    known = [clause.number for clause in all_clauses()]
    chosen = {number for number in known for want in wanted if want in (number, number[0])}
    unknown = [w for w in wanted if w not in known and w not in {n[0] for n in known}]
    if unknown:
        raise ConfigError("clauses", f"there is no clause {unknown[0]!r}", "conformance")
    return frozenset(chosen)
