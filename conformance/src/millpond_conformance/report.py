"""The report on a run of the clauses: its verdicts, its forms as JSON and text, and comparisons."""

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
    """The verdict on a clause or a run, from the worst to the best."""

    FAIL = "FAIL"
    ERROR = "ERROR"
    INCOMPLETE = "INCOMPLETE"
    XPASS = "XPASS"
    CONDITIONAL = "CONDITIONAL"
    PASS = "PASS"  # noqa: S105 - a verdict

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the worst of `verdicts`; INCOMPLETE if there are no verdicts."""
        given = set(verdicts)
        return next((verdict for verdict in cls if verdict in given), cls.INCOMPLETE)


@attrs.frozen
class ClauseResult:
    """The verdict on one clause.

    Attributes:
        number: the number of the clause.
        verdict: the worst verdict of its cases.
        cases: the number of cases that ran.
        seconds: the total duration of the cases.
        message: the message of the case with this verdict; empty for PASS.
        program: the shrunk program of a generated test that failed; otherwise empty.
    """

    number: str
    verdict: Verdict
    cases: int
    seconds: float
    message: str = ""
    program: str = ""


@attrs.frozen
class Environment:
    """The platform of a run, and the versions of the software.

    Attributes:
        kit: the version of the kit.
        specification: the version of the specification.
        core: the version of Millpond.
        plugin: the distribution of the backend, with its version.
        native: the version of the backend's native library; empty if it has none.
        python: the version of Python.
        platform: the operating system and the processor.
    """

    kit: str
    specification: str
    core: str
    plugin: str
    native: str
    python: str
    platform: str

    @classmethod
    def from_backend(cls, backend: str) -> Environment:
        """Return the environment of this process, with the versions of a backend."""
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
    """The report on a run against one backend.

    Attributes:
        backend: the name of the backend.
        profile: ``quick``, ``standard`` or ``soak``.
        partial: whether only some clauses were requested. The report is then not a certificate.
        seconds: the duration of the run.
        environment: the platform and the versions.
        results: the results of the clauses, in the order of the specification.
        wrapped: the core's wrappers around every state; one of ``WRAPPERS``.
        seed: the seed of the generated programs.
        seal: the SHA-256 digest of the kit's manifest, by which a reader can recognize a release.
        coverage: how often each step occurred in generated programs.
        changed_files: the files of the kit that differ from its manifest.
        shadow: whether clause G4 ran in a process that does not reveal the kit.
        format_version: the version of the JSON format.
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
        """The results that decide the verdict: all except those of provisional clauses."""
        provisional = {clause.number for clause in all_clauses() if clause.provisional}
        return tuple(result for result in self.results if result.number not in provisional)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the clauses in `gating`; a missing clause counts as INCOMPLETE."""
        found = [result.verdict for result in self.gating]
        missing = gating_numbers() - {result.number for result in self.results}
        return Verdict.worst([*found, *([Verdict.INCOMPLETE] if missing else [])])

    @property
    def passed(self) -> int:
        """The number of passed clauses in `gating`."""
        return sum(result.verdict is Verdict.PASS for result in self.gating)

    def badge(self) -> str:
        """Return one line with the specification's version, the passed clauses and the verdict."""
        partial = " · partial" if self.partial else ""
        return (
            f"spec {self.environment.specification} · {self.passed}/{len(gating_numbers())} · "
            f"{self.verdict.value}{partial}"
        )

    def covered(self) -> str:
        """Return the steps of generated programs and their counts as text."""
        return ", ".join(f"{what} {count:,}" for what, count in self.coverage.items())

    def warning(self) -> str:
        """Return a warning if files of the kit differ from its manifest, else an empty string."""
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
        """Return the report as text: the clauses that did not pass, and then the totals."""
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
    """Return the numbers of the clauses that decide a verdict: all except provisional ones."""
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
    """Return the report in the JSON file `path`; raise ConfigError if the file is not a report."""
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
    """Return a row for each clause whose verdicts in the reports `before` and `after` differ.

    If a report does not have the clause, its verdict is ``-``.
    """
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
