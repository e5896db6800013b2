"""A backend's resolution: made once on the driver, shipped with the job, checked by workers."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import attrs

from millpond.errors import (
    BackendMismatchError,
    PluginIncompatibleError,
    PluginLoadError,
)
from millpond.spi.hooks import API_VERSION

__all__ = ["Resolution", "import_target"]


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
        """Raise BackendMismatchError unless this process has what the driver resolved."""
        if self.api_version != API_VERSION:
            theirs, ours = (f"plugin API {n}" for n in (self.api_version, API_VERSION))
            raise BackendMismatchError(self.name, theirs, ours)
        found = _installed_version(self.distribution)
        if found is not None and found != self.version:
            theirs, ours = (f"{self.distribution} {each}" for each in (self.version, found))
            raise BackendMismatchError(self.name, theirs, ours)


def _installed_version(distribution: str) -> str | None:
    """The version, or None if unknown: a plugin shipped as a bare zip has no metadata."""
    try:
        return version(distribution) if distribution else None
    except PackageNotFoundError:
        return None


def import_target(name: str, distribution: str, found: str, target: str) -> Any:
    """The object that ``module`` or ``module:attr`` names, with its API version checked.

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
    """The API version that the object states, else the nearest module around it that does."""
    places = [loaded]
    while module_name:
        places.append(sys.modules.get(module_name))
        module_name = module_name.rpartition(".")[0]
    stated = (getattr(place, "MILLPOND_API", None) for place in places)
    return next((api for api in stated if api is not None), None)
