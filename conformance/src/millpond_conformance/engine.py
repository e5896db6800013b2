"""Run the clauses against a backend, and return a report: the function behind the command line."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from millpond.errors import ConfigError
from millpond.plugins import get_registry

from millpond_conformance.child import Order
from millpond_conformance.children import run_children
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
    """Run clauses against a backend in child processes; return the report.

    The child processes ignore the caller's pytest plugins, conftest files, configuration of pytest
    and environment variables for pytest.

    Args:
        backend: an installed backend's name, or ``module:attr``.
        profile: ``quick``, ``standard`` or ``soak``: the number of examples of generated tests.
        clauses: numbers of clauses, such as ``G4``, or letters of chapters, such as ``G``. By
            default all clauses run. A report on some clauses is not a certificate.
        report: a function that is called after each case, with the number of its clause, the number
            of finished cases and the number of all cases.
        ledger: known failures by clause. If a clause in it fails, its verdict is CONDITIONAL.
        wrapped: the core's wrappers around every state: ``none``, ``ttl``, ``metrics`` or ``both``.
        seed: the seed of the generated programs, as in a report. The default is a random seed, or a
            fixed one with the profile ``quick``.
        until_failure: whether to stop at the first failure. Clauses that have not run are
            INCOMPLETE.
        shadow: whether the programs of clause G4 run in a process whose modules and stack do not
            reveal the kit.
        processes: the number of child processes. The default is one if `clauses` is given or
            `until_failure` is true, otherwise two. A single process runs the clauses in the order
            of their files.

    Raises:
        PluginError: the backend cannot be used.
        UnopenableBackendError: the backend cannot be opened.
        HarnessError: the kit itself could not run, which proves nothing about the backend.
        ConfigError: the profile or a clause does not exist.
    """
    _check(profile, processes)
    get_registry().resolve(backend)
    only = _chosen(clauses)
    chosen_seed = _seed(profile) if seed is None else seed
    judge = Judge(only, report)
    started = time.perf_counter()
    order = Order(backend, profile, wrapped, chosen_seed, sorted(only), until_failure, shadow)
    usual = 1 if only or until_failure else 2
    place = run_children(order, judge, processes or usual)
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
