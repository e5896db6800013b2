"""The configuration of a command: which plugins it may use, and limits of what it reads."""

from __future__ import annotations

import click

from millpond.config import Config, RestoreConfig
from millpond.plugins import PluginRegistry, get_registry

__all__ = ["tool_limits", "tool_registry"]


def tool_registry() -> PluginRegistry:
    """The registry of the running command, by the rules of ``millpond --config``."""
    return get_registry(_config().plugins)


def tool_limits() -> RestoreConfig:
    """The limits of what the running command reads, from ``millpond --config``."""
    return _config().restore


def _config() -> Config:
    config = click.get_current_context().find_root().obj
    return config if isinstance(config, Config) else Config()
