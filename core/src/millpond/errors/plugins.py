"""Errors of plugins: missing, broken, blocked, incompatible, in conflict."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError, hint


class PluginError(MillpondError):
    """A plugin cannot be used."""

    name: str
    place: str = attrs.field(default="", init=False)
    """The source and key of the option that names the plugin, if one does."""

    @override
    def __str__(self) -> str:
        return f"{self.place}: {super().__str__()}" if self.place else super().__str__()


class PluginNotFoundError(PluginError, LookupError):
    """No installed plugin has this name."""

    installed: tuple[str, ...] = ()
    suggestion: str | None = None
    known_distribution: str | None = None

    @override
    def sentence(self) -> str:
        have = ", ".join(self.installed) or "none"
        text = f"No state backend is called {self.name!r}; installed are: {have}."
        text += hint(self.suggestion)
        if self.known_distribution:
            text += f" Install it with: pip install {self.known_distribution}"
        elif not self.suggestion:
            text += " Install the plugin that provides it, or name it as 'module:attr'."
        return text


class PluginLoadError(PluginError):
    """A plugin is installed but could not be imported."""

    message = (
        "The plugin {name!r} of {distribution} {version} ({target}) is "
        "installed but could not be loaded: {reason}. Reinstall {distribution} "
        "with its dependencies, or block it with plugins.block = {name}."
    )

    distribution: str
    version: str
    target: str
    reason: str


class PluginIncompatibleError(PluginError):
    """A plugin was built for another version of the plugin interface."""

    distribution: str
    version: str
    plugin_api: int
    core_api: int

    @override
    def sentence(self) -> str:
        older = self.plugin_api < self.core_api
        cure = f"upgrade {self.distribution}" if older else "upgrade millpond"
        return (
            f"The plugin {self.name!r} of {self.distribution} {self.version} speaks plugin API "
            f"{self.plugin_api}, this Millpond speaks {self.core_api}: {cure}."
        )


class PluginBlockedError(PluginError):
    """A plugin is installed but configuration forbids it."""

    message = "The plugin {name!r} is blocked by {rule}. Change that rule to use it."

    rule: str


class PluginConflictError(PluginError):
    """Two distributions provide a plugin of the same name."""

    distributions: tuple[str, ...]

    @override
    def sentence(self) -> str:
        both = " and ".join(self.distributions)
        return (
            f"The plugin name {self.name!r} is provided by {both}. Uninstall one of them, or name "
            f"the one you want as {self.name}@DISTRIBUTION."
        )


class BackendMismatchError(PluginError):
    """A worker has another version of a plugin than the driver resolved."""

    message = (
        "The driver resolved the backend {name!r} to {expected}, this worker has "
        "{found}. Install the same version on every node."
    )

    expected: str
    found: str


class UnsupportedCapabilityError(MillpondError, NotImplementedError):
    """A backend was asked for a capability that it does not declare."""

    message = (
        "The backend {backend!r} does not support {capability!r}. "
        "`millpond backends` lists the capabilities of each backend."
    )

    backend: str
    capability: str
