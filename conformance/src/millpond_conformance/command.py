"""``millpond conformance``: the command that runs the kit and shows its reports."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from millpond.errors import PlaceError
from millpond_cli.output import as_json_option, show, working, write_text
from millpond_cli.terminal import complain, emit, tell
from typing_extensions import override

from millpond_conformance.engine import run
from millpond_conformance.fixtures import PROFILES
from millpond_conformance.ledger import read_ledger
from millpond_conformance.page import write_page
from millpond_conformance.report import Verdict, difference, read_report
from millpond_conformance.specification import MANIFEST, all_clauses, manifest, page
from millpond_conformance.wrapping import WRAPPERS


class _ByName(click.Group):
    """A command group in which ``conformance NAME`` means ``conformance run NAME``."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_ByName)
def conformance() -> None:
    """Prove a state backend against the specification."""


@conformance.command("run")
@click.argument("backend")
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="standard",
    show_default=True,
    help="Number of examples of generated tests.",
)
@click.option("--clause", "clauses", multiple=True, help="Run only this clause or chapter.")
@click.option("--report", type=click.Path(path_type=Path), help="Write the report as JSON.")
@click.option("--ledger", type=click.Path(path_type=Path), help="A TOML file of known failures.")
@click.option(
    "--wrapped",
    type=click.Choice(WRAPPERS),
    default="none",
    help="Wrappers of the core around states.",
)
@click.option("--seed", type=int, help="Seed of the generated programs, as in a report.")
@click.option(
    "--processes", type=click.IntRange(1), help="Number of processes: 2, or 1 with --clause."
)
@click.option("--shadow", is_flag=True, help="Run G4 in a process that does not reveal the kit.")
@as_json_option
def run_kit(
    backend: str,
    profile: str,
    clauses: tuple[str, ...],
    report: Path | None,
    ledger: Path | None,
    wrapped: str,
    seed: int | None,
    *,
    processes: int | None,
    shadow: bool,
    as_json: bool,
) -> None:
    """Run all clauses against BACKEND; status 1 unless every one has passed or is known to fail."""
    known = {} if ledger is None else read_ledger(ledger, datetime.now(UTC).date())
    if report is not None:
        _check_target(report)
    with working(f"{backend}: clauses", len(all_clauses())) as advance:
        shown = 0

        def progress(_: str, done: int, total: int) -> None:
            nonlocal shown
            now = done * len(all_clauses()) // max(total, 1)
            advance(now - shown)
            shown = now

        found = run(
            backend,
            profile,
            clauses,
            progress,
            known,
            wrapped,
            seed,
            shadow=shadow,
            processes=processes,
        )
    if report is not None:
        _write(report, found.to_json())
    if as_json:
        emit(found.to_json())
    else:
        for line in found.to_text().splitlines():
            tell(line)
    good = {Verdict.PASS, Verdict.CONDITIONAL}
    bad = {result.number for result in found.gating if result.verdict not in good}
    if bad:
        complain(f"{backend} does not keep: {', '.join(sorted(bad))}")
        sys.exit(1)


def _check_target(target: Path) -> None:
    """Raise PlaceError if `target` is not the path of a file that can be written."""
    if target.exists() and not target.is_file():
        raise PlaceError(str(target), "it exists and is not a regular file")
    if not target.absolute().parent.is_dir():
        raise PlaceError(str(target), "its directory does not exist")


def _write(target: Path, text: str) -> None:
    _check_target(target)
    write_text(target, text)


@conformance.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@as_json_option
def diff(before: Path, after: Path, *, as_json: bool) -> None:
    """Show the clauses whose verdicts differ between two reports."""
    rows = difference(read_report(before), read_report(after))
    show(rows, as_json=as_json, empty="The same verdicts.")


@conformance.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path))
def html(target: Path, reports: tuple[Path, ...]) -> None:
    """Write one page of HTML to TARGET: a matrix of backends and chapters."""
    _check_target(target)
    write_page(target, [read_report(path) for path in reports])
    tell(f"{len(reports)} reports written to {target}")


@conformance.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--seal", is_flag=True, help="Also write the kit's manifest, for a release.")
def specification(target: Path, *, seal: bool) -> None:
    """Write the specification to TARGET, a page of Markdown."""
    _write(target, page())
    if seal:
        write_text(MANIFEST, manifest())
    tell(f"{len(all_clauses())} clauses written to {target}")
