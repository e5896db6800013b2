"""The configuration of a command: which plugins it may use, and limits of what it reads."""

from __future__ import annotations

import click
from millpond.config import Config, RestoreConfig
from millpond.errors import ConfigError, PlaceError, printable
from millpond.errors.config import UNPLACED
from millpond.plugins import PluginRegistry, get_registry
from millpond.savepoints.savepoint_file import SavepointHandle

__all__ = ["located", "tool_config", "tool_limits", "tool_registry"]


def tool_registry() -> PluginRegistry:
    """The registry of the running command, by the rules of ``millpond --config``."""
    return get_registry(tool_config().plugins)


def located(path: str) -> SavepointHandle:
    """The handle of a directory, reached as ``millpond --config`` says.

    Raises:
        PlaceError: no storage knows it; no setting names it, so none is told.
    """
    try:
        return tool_registry().savepoint(path, tool_config())
    except ConfigError as error:
        if error.place != UNPLACED or error.key != "checkpoint.dir":
            raise
        raise PlaceError(printable(path), error.reason) from error


def tool_limits() -> RestoreConfig:
    """The limits of what the running command reads, from ``millpond --config``."""
    return tool_config().restore


def tool_config() -> Config:
    """What ``millpond --config`` names."""
    config = click.get_current_context().find_root().obj
    return config if isinstance(config, Config) else Config()
