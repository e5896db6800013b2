"""``millpond conformance``: the kit on the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from millpond.cli.output import as_json_option, show
from millpond.cli.verdicts import remember_verdict

from millpond_conformance.engine import run
from millpond_conformance.ledger import read_ledger
from millpond_conformance.page import write_page
from millpond_conformance.plugin import PROFILES
from millpond_conformance.report import Verdict, difference, read_report
from millpond_conformance.specification import MANIFEST, all_clauses, manifest, page
from millpond_conformance.wrapping import WRAPPERS

__all__ = ["conformance"]


class _ByName(click.Group):
    """``millpond conformance NAME`` is ``millpond conformance run NAME``."""

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
@click.option("--profile", type=click.Choice(list(PROFILES)), default="standard", show_default=True)
@click.option("--clause", "clauses", multiple=True, help="Only this clause or chapter.")
@click.option("--report", type=click.Path(path_type=Path), help="Write the report as JSON.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Known failures, a TOML file.")
@click.option("--wrapped", type=click.Choice(WRAPPERS), default="none", help="Around every state.")
@click.option("--seed", type=int, help="Of the generated programs; in each report.")
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
    as_json: bool,
) -> None:
    """Run all clauses against BACKEND; status 1 unless every one has passed or is known to fail."""
    known = {} if ledger is None else read_ledger(ledger, datetime.now(UTC).date())

    def progress(number: str, done: int, total: int) -> None:
        if not as_json and sys.stderr.isatty():
            click.echo(f"\r{number:4} {done}/{total}", nl=False, err=True)

    found = run(backend, profile, clauses, progress, known, wrapped, seed)
    if sys.stderr.isatty() and not as_json:
        click.echo("\r" + " " * 20 + "\r", nl=False, err=True)
    if report is not None:
        report.write_text(found.to_json(), encoding="utf-8")
    if not found.partial and wrapped == "none":
        remember_verdict(backend, found.to_json())
    click.echo(found.to_json() if as_json else found.to_text())
    good = {Verdict.PASS, Verdict.CONDITIONAL}
    if not {result.verdict for result in found.gating} <= good:
        sys.exit(1)


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
    write_page(target, [read_report(path) for path in reports])
    click.echo(f"{len(reports)} reports written to {target}")


@conformance.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--seal", is_flag=True, help="For a release of the kit: write its manifest too.")
def specification(target: Path, *, seal: bool) -> None:
    """Write the specification to TARGET, a page of Markdown."""
    target.write_text(page(), encoding="utf-8")
    if seal:
        MANIFEST.write_text(manifest(), encoding="utf-8")
    click.echo(f"{len(all_clauses())} clauses written to {target}")
