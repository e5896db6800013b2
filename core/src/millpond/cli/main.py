"""``millpond``: the commands, each in a module of its own."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import click

from millpond import __version__
from millpond.cli.backends import backends
from millpond.cli.checkpoint import checkpoint
from millpond.cli.run import run
from millpond.cli.savepoint import savepoint
from millpond.cli.state import state
from millpond.config import Config
from millpond.errors import MillpondError

__all__ = ["main"]


class _Commands(click.Group):
    """Millpond's commands, and those that other distributions announce by an entry point."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_announced()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        announced = _announced()
        if own is None and cmd_name in announced:
            found: click.Command = announced[cmd_name].load()
            return found
        return own


def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="millpond.commands")}


@click.group(cls=_Commands)
@click.version_option(__version__)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of configuration, for instance with plugin rules.",
)
@click.pass_context
def commands(context: click.Context, config: Path | None) -> None:
    """Flink's state model for PySpark, with pluggable state backends."""
    context.obj = Config() if config is None else Config.from_toml(config)


for command in (backends, run, checkpoint, savepoint, state):
    commands.add_command(command)


def main() -> None:
    """Run a command; Millpond's own errors are shown as a sentence and end with status 1."""
    try:
        commands()
    except MillpondError as error:
        click.echo(f"millpond: {error}", err=True)
        sys.exit(1)
