"""The results of a run: verdicts by clause, as JSON, as text, and compared with another run."""

from __future__ import annotations

import enum
import json
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs
import cattrs
from millpond.config.option_sources import read_text
from millpond.errors import ConfigError
from millpond.plugins import get_registry

from millpond_conformance.specification import SPECIFICATION_VERSION, all_clauses

FORMAT_VERSION = 1


class Verdict(enum.Enum):
    """The verdict on a clause or a run; the worst comes first."""

    FAIL = "FAIL"
    ERROR = "ERROR"
    INCOMPLETE = "INCOMPLETE"
    XPASS = "XPASS"
    CONDITIONAL = "CONDITIONAL"
    PASS = "PASS"  # noqa: S105 - a verdict

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the worst of some verdicts; INCOMPLETE if there is none at all."""
        given = set(verdicts)
        return next((verdict for verdict in cls if verdict in given), cls.INCOMPLETE)


@attrs.frozen
class ClauseResult:
    """The verdict on one clause.

    Attributes:
        cases: the number of cases that ran.
        seconds: their duration in total.
        message: the message of the failed case.
        program: the shrunk program of a generated test that failed.
    """

    number: str
    verdict: Verdict
    cases: int
    seconds: float
    message: str = ""
    program: str = ""


@attrs.frozen
class Environment:
    """The machine and the versions of a run."""

    kit: str
    specification: str
    core: str
    plugin: str
    native: str
    python: str
    platform: str

    @classmethod
    def from_backend(cls, backend: str) -> Environment:
        """Return the versions of the relevant distributions for a backend."""
        registry = get_registry()
        resolution = registry.resolve(backend)
        plugin = f"{resolution.distribution} {resolution.version}".strip()
        return cls(
            kit=_version("millpond-conformance"),
            specification=SPECIFICATION_VERSION,
            core=_version("millpond"),
            plugin=plugin or resolution.target,
            native=registry.load(resolution).native_version(),
            python=sys.version.split()[0],
            platform=f"{platform.system()} {platform.machine()}",
        )


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


@attrs.frozen
class Report:
    """A run against one backend.

    Attributes:
        profile: ``quick``, ``standard`` or ``soak``.
        partial: whether only some clauses were requested; then there is no certificate.
        results: by clause, in the specification's order.
        wrapped: the core's wrappers that were around every state.
        seed: the seed of the generated programs.
        seal: SHA-256 of the kit's manifest, which shows whether a changed kit made the report.
        coverage: counts of the steps of generated programs.
        changed_files: the kit's files that differ from its manifest.
        shadow: whether clause G4 ran in a process that does not reveal the kit.
    """

    backend: str
    profile: str
    partial: bool
    seconds: float
    environment: Environment
    results: tuple[ClauseResult, ...]
    wrapped: str = "none"
    seed: int = 0
    seal: str = ""
    coverage: dict[str, int] = attrs.field(factory=dict)
    changed_files: tuple[str, ...] = ()
    shadow: bool = False
    format_version: int = FORMAT_VERSION

    @property
    def gating(self) -> tuple[ClauseResult, ...]:
        """The results that count: those of all clauses except provisional ones."""
        provisional = {clause.number for clause in all_clauses() if clause.provisional}
        return tuple(result for result in self.results if result.number not in provisional)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all clauses; a missing clause is INCOMPLETE."""
        found = [result.verdict for result in self.gating]
        missing = gating_numbers() - {result.number for result in self.results}
        return Verdict.worst([*found, *([Verdict.INCOMPLETE] if missing else [])])

    @property
    def passed(self) -> int:
        """The number of passed clauses among those that count."""
        return sum(result.verdict is Verdict.PASS for result in self.gating)

    def badge(self) -> str:
        """Return one line: the specification, passed and counted clauses, and the verdict."""
        partial = " · partial" if self.partial else ""
        return (
            f"spec {self.environment.specification} · {self.passed}/{len(gating_numbers())} · "
            f"{self.verdict.value}{partial}"
        )

    def covered(self) -> str:
        """Return a description of the steps of generated programs."""
        return ", ".join(f"{what} {count:,}" for what, count in self.coverage.items())

    def warning(self) -> str:
        """Return a warning if the kit is not the released one, otherwise an empty string."""
        if not self.changed_files:
            return ""
        shown = ", ".join(self.changed_files[:5])
        return f"NOT THE RELEASED KIT: {len(self.changed_files)} changed files ({shown})"

    def to_json(self) -> str:
        """Return the whole report as JSON."""
        warning = {"warning": self.warning()} if self.changed_files else {}
        tree = {**warning, "verdict": self.verdict.value, **_CONVERTER.unstructure(self)}
        return json.dumps(tree, indent=1)

    def to_text(self) -> str:
        """Return a page for a terminal: the clauses that did not pass, then the totals."""
        lines = [self.warning()] if self.changed_files else []
        lines += [_told(result) for result in self.results if result.verdict is not Verdict.PASS]
        environment = self.environment
        about = (
            f"{self.backend} ({environment.plugin}; {environment.native or 'no native library'})"
        )
        profile = self.profile + (", G4 in the shadow" if self.shadow else "")
        lines.append(
            f"{about}: {self.badge()} in {self.seconds:.0f} s, profile {profile}, "
            f"seed {self.seed}, seal {self.seal[:12]}"
        )
        if self.coverage:
            lines.append("generated programs: " + self.covered())
        return "\n".join(lines)


def gating_numbers() -> set[str]:
    """Return the numbers of the clauses that count, which excludes provisional ones."""
    return {clause.number for clause in all_clauses() if not clause.provisional}


def _told(result: ClauseResult) -> str:
    known = {clause.number: clause for clause in all_clauses()}
    clause = known.get(result.number)
    promise = (
        clause.promise if clause else "the specification has no clause of this number any more"
    )
    note = " (provisional)" if clause and clause.provisional else ""
    lines = [f"{result.number:4} {result.verdict.value}{note}: {promise}"]
    lines += [
        f"     {line}"
        for line in [*result.message.splitlines(), *result.program.splitlines()]
        if line
    ]
    return "\n".join(lines)


_CONVERTER = cattrs.Converter()
_CONVERTER.register_unstructure_hook(Verdict, lambda verdict: verdict.value)
_CONVERTER.register_structure_hook(Verdict, lambda value, _: Verdict(value))


_NO_REPORT = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    cattrs.BaseValidationError,
)


def read_report(path: str | Path) -> Report:
    """Read a report's JSON; raise ConfigError if it is not a report."""
    try:
        tree: dict[str, Any] = json.loads(read_text(path))
        tree.pop("verdict")
        tree.pop("warning", None)
        return _CONVERTER.structure(tree, Report)
    except ConfigError:
        raise
    except _NO_REPORT as error:
        raise ConfigError(str(path), f"it is not a report: {error}", "conformance") from error


def difference(before: Report, after: Report) -> list[dict[str, str]]:
    """Return the clauses whose verdicts differ in two reports; ``-`` if one has not run."""
    old = {result.number: result.verdict.value for result in before.results}
    new = {result.number: result.verdict.value for result in after.results}
    return [
        {
            "clause": clause.number,
            "before": old.get(clause.number, "-"),
            "after": new.get(clause.number, "-"),
            "promise": clause.promise,
        }
        for clause in all_clauses()
        if old.get(clause.number, "-") != new.get(clause.number, "-")
    ]
