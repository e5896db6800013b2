"""The plugins that a command may use."""

from __future__ import annotations

import click

from millpond.config import Config
from millpond.plugins import PluginRegistry, get_registry

__all__ = ["tool_registry"]


def tool_registry() -> PluginRegistry:
    """The registry of the running command, by the rules of ``millpond --config``."""
    config = click.get_current_context().find_root().obj
    return get_registry(config.plugins if isinstance(config, Config) else None)
