"""Installed plugins: which exist, which may be loaded, and the resolution that Spark ships."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Any

import attrs

from millpond.config import Config, PluginsConfig
from millpond.config.option_sources import OptionSource
from millpond.errors import (
    BackendMismatchError,
    PluginIncompatibleError,
    PluginLoadError,
)
from millpond.spi.hooks import API_VERSION

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
    """Return all announced plugins, including duplicates, sorted by name and distribution.

    The same entry point seen twice from one distribution (an editable install next to a
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
    """Combine the configured rules with ``MILLPOND_PLUGINS_ALLOW|BLOCK|DISABLE_ALL``.

    The environment's allow-list replaces the configured one; blocks add up.
    """
    environment = os.environ if environment is None else environment
    variables = {f"plugins.{key.replace('_', '-')}": _ENVIRONMENT + key.upper() for key in _RULES}
    options = {key: environment[name] for key, name in variables.items() if environment.get(name)}
    if not options:
        return config
    extra = Config(options, place=OptionSource("environment", keys=variables)).plugins
    return PluginsConfig(
        allow=extra.allow or config.allow,
        block=config.block + extra.block,
        disable_all=config.disable_all or extra.disable_all,
    )


def blocking_rule(name: str, rules: PluginsConfig) -> str | None:
    """Return the rule that forbids a plugin, in words, or None."""
    if rules.disable_all:
        return "plugins.disable-all"
    if name in rules.block:
        return f"plugins.block = {', '.join(rules.block)}"
    if rules.allow and name not in rules.allow:
        return f"plugins.allow = {', '.join(rules.allow)}"
    return None


@attrs.frozen
class Resolution:
    """The location of a backend's code and the version that the driver saw.

    Attributes:
        name: the backend's name in the configuration.
        target: ``module`` of a plugin, or ``module:attr``.
        distribution: empty if the configuration names the backend as ``module:attr``.
        version: the distribution's version on the driver.
        api_version: the version of the plugin API that the driver's Millpond uses.
    """

    name: str
    target: str
    distribution: str = ""
    version: str = ""
    api_version: int = API_VERSION

    def require_same(self) -> None:
        """Raise BackendMismatchError unless this process has the same versions as the driver."""
        if self.api_version != API_VERSION:
            theirs, ours = (f"plugin API {n}" for n in (self.api_version, API_VERSION))
            raise BackendMismatchError(self.name, theirs, ours)
        try:
            found = version(self.distribution) if self.distribution else self.version
        except PackageNotFoundError:  # a plugin that was shipped as a bare zip has no metadata
            return
        if found != self.version:
            theirs, ours = (f"{self.distribution} {each}" for each in (self.version, found))
            raise BackendMismatchError(self.name, theirs, ours)


def import_target(name: str, distribution: str, found: str, target: str) -> Any:
    """Import ``module`` or ``module:attr``, and check its API version.

    The object itself states the version (``MILLPOND_API``), else its module or a package around
    that module.
    """
    module_name, _, attribute = target.partition(":")
    try:
        module = import_module(module_name)
        loaded: Any = module
        for part in filter(None, attribute.split(".")):
            loaded = getattr(loaded, part)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise PluginLoadError(name, distribution or module_name, found, target, reason) from error
    api = _api_version(loaded, module_name)
    if not isinstance(api, int):
        reason = "it does not say which plugin API it speaks (MILLPOND_API = 1)"
        raise PluginLoadError(name, distribution or module_name, found, target, reason)
    if api != API_VERSION:
        raise PluginIncompatibleError(name, distribution or module_name, found, api, API_VERSION)
    return loaded


def _api_version(loaded: Any, module_name: str) -> Any:
    """Return the API version that the object states, else that of the nearest module around it."""
    places = [loaded]
    while module_name:
        places.append(sys.modules.get(module_name))
        module_name = module_name.rpartition(".")[0]
    stated = (getattr(place, "MILLPOND_API", None) for place in places)
    return next((api for api in stated if api is not None), None)
