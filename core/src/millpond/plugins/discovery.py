"""Finds installed plugins and decides which of them may be loaded; imports none of them."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import attrs

from millpond.config import Config, PluginsConfig
from millpond.config.origins import Origins

__all__ = ["ENTRY_POINT_GROUP", "PluginRecord", "Status", "discover", "effective_rules"]

ENTRY_POINT_GROUP = "millpond.plugins"
_ENVIRONMENT = "MILLPOND_PLUGINS_"
_RULES = ("allow", "block", "disable_all")


class Status(enum.Enum):
    """Whether an installed plugin can be used."""

    OK = "ok"
    BROKEN = "broken"
    BLOCKED = "blocked"
    DUPLICATE = "duplicate"
    INCOMPATIBLE = "incompatible"


@attrs.define
class PluginRecord:
    """One announced plugin.

    Attributes:
        name: the entry-point name, the plugin's only identity.
        distribution: the distribution that announces it.
        version: that distribution's version.
        target: the entry point's value.
        status: whether it can be used.
        reason: why it cannot be used, in words.
        error: the error that using it raises.
    """

    name: str
    distribution: str
    version: str
    target: str
    status: Status = Status.OK
    reason: str = ""
    error: Exception | None = None
    plugin: Any = None
    capabilities: tuple[str, ...] = ()

    def fail(self, status: Status, error: Exception) -> None:
        """Mark the plugin as unusable."""
        self.status, self.error, self.reason = status, error, str(error)


def discover(points: Iterable[EntryPoint] | None = None) -> list[PluginRecord]:
    """All announced plugins, including duplicates, sorted by name and distribution.

    The same entry point seen twice from one distribution (an editable install beside a
    wheel) counts once.
    """
    found = entry_points(group=ENTRY_POINT_GROUP) if points is None else points
    unique = {}
    for point in found:
        name = point.dist.name if point.dist else "unknown"
        version = point.dist.version if point.dist else "0"
        unique[point.name, name, point.value] = PluginRecord(point.name, name, version, point.value)
    return [unique[key] for key in sorted(unique)]


def effective_rules(
    config: PluginsConfig, environment: Mapping[str, str] | None = None
) -> PluginsConfig:
    """The configured rules combined with ``MILLPOND_PLUGINS_ALLOW|BLOCK|DISABLE_ALL``.

    The environment's allow-list replaces the configured one; blocks add up.
    """
    environment = os.environ if environment is None else environment
    variables = {f"plugins.{key}": _ENVIRONMENT + key.upper() for key in _RULES}
    options = {key: environment[name] for key, name in variables.items() if environment.get(name)}
    if not options:
        return config
    extra = Config(options, place=Origins.of_names("environment", variables)).plugins
    return PluginsConfig(
        allow=extra.allow or config.allow,
        block=config.block + extra.block,
        disable_all=config.disable_all or extra.disable_all,
    )


def blocking_rule(name: str, rules: PluginsConfig) -> str | None:
    """The rule that forbids a plugin, in words, or None."""
    if rules.disable_all:
        return "plugins.disable-all"
    if name in rules.block:
        return f"plugins.block = {', '.join(rules.block)}"
    if rules.allow and name not in rules.allow:
        return f"plugins.allow = {', '.join(rules.allow)}"
    return None
