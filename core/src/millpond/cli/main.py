"""``millpond``: the commands, each in a module of its own."""

from __future__ import annotations

import sys

import click

from millpond import __version__
from millpond.cli.backends import backends
from millpond.cli.checkpoint import checkpoint
from millpond.cli.run import run
from millpond.cli.savepoint import savepoint
from millpond.cli.state import state
from millpond.errors import MillpondError

__all__ = ["main"]


@click.group()
@click.version_option(__version__)
def commands() -> None:
    """Flink's state model for PySpark, with pluggable state backends."""


for command in (backends, run, checkpoint, savepoint, state):
    commands.add_command(command)


def main() -> None:
    """Run a command; Millpond's own errors are shown as a sentence and end with status 1."""
    try:
        commands()
    except MillpondError as error:
        click.echo(f"millpond: {error}", err=True)
        sys.exit(1)
