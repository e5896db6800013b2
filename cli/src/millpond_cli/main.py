"""The command ``millpond``, with its subcommands from the other modules."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import click
from millpond import __version__
from millpond.config import Config
from millpond.errors import PlaceError
from typing_extensions import override

from millpond_cli.backends import backends
from millpond_cli.checkpoint import checkpoint, rescale
from millpond_cli.plan import plan
from millpond_cli.report.command import report
from millpond_cli.run import run
from millpond_cli.savepoint import savepoint
from millpond_cli.state import state
from millpond_cli.targets import file_path
from millpond_cli.terminal import CommandGroup


class _Commands(CommandGroup):
    """Millpond's own commands, and the commands that other distributions add by entry points."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_announced()})

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        announced = _announced()
        if own is None and cmd_name in announced:
            return _loaded(announced[cmd_name])
        return own


def _announced() -> dict[str, EntryPoint]:
    """Return the entry points of other distributions' commands, such as ``conformance``."""
    return {point.name: point for point in entry_points(group="millpond.commands")}


def _loaded(point: EntryPoint) -> click.Command:
    """Return the command of an entry point.

    If the command cannot be loaded, return a command that only raises an error with the reason.
    """
    try:
        found = point.load()
    except Exception as error:  # noqa: BLE001 - importing a plugin may raise anything
        return _broken(point, f"{type(error).__name__}: {error}")
    return found if isinstance(found, click.Command) else _broken(point, "it is not a command")


def _broken(point: EntryPoint, reason: str) -> click.Command:
    """Return a command that raises a PlaceError with the reason why it cannot be loaded."""
    owner = point.dist.name if point.dist else point.value

    def refuse() -> None:
        what = f"the command {point.name!r} of {owner}"
        raise PlaceError(what, f"it cannot be loaded: {reason}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(point.name, settings, refuse, help=f"Cannot be loaded; reinstall {owner}.")


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="millpond")
@click.option(
    "--config",
    type=file_path,
    metavar="FILE",
    help="A TOML file of configuration: plugin rules, and limits (restore.*) on stored files.",
)
@click.pass_context
def commands(context: click.Context, config: Path | None) -> None:
    """Flink's state model for PySpark, with pluggable state backends.

    Every command ends with a status: 0 done; 1 refused, or something was found; 2 a wrong call.
    """
    context.obj = Config() if config is None else Config.from_toml(config)


for command in (backends, plan, run, rescale, report, checkpoint, savepoint, state):
    commands.add_command(command)


def main() -> None:
    """Run the command in ``sys.argv``, and exit with its status; see ``millpond_cli.terminal``."""
    commands(prog_name="millpond")
