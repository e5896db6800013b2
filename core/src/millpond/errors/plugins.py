"""Errors of plugins: missing, broken, blocked, incompatible, in conflict."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError


@attrs.define(eq=False, slots=False)
class PluginError(MillpondError):
    """A plugin cannot be used."""

    name: str
    place: str = attrs.field(default="", init=False)
    """The key of configuration that names it, and where that stands, if one does."""

    @override
    def __str__(self) -> str:
        return f"{self.place}: {super().__str__()}" if self.place else super().__str__()


@attrs.define(eq=False, slots=False)
class PluginNotFoundError(PluginError, LookupError):
    """No installed plugin has this name."""

    installed: tuple[str, ...] = ()
    suggestion: str | None = None
    known_distribution: str | None = None

    @override
    def sentence(self) -> str:
        have = ", ".join(self.installed) or "none"
        text = f"No state backend is called {self.name!r}; installed are: {have}."
        if self.suggestion:
            text += f" Did you mean {self.suggestion!r}?"
        if self.known_distribution:
            text += f" Install it with: pip install {self.known_distribution}"
        elif not self.suggestion:
            text += " Install the plugin that provides it, or name it as 'module:attr'."
        return text


@attrs.define(eq=False, slots=False)
class PluginLoadError(PluginError):
    """A plugin is installed but could not be imported."""

    distribution: str
    version: str
    target: str
    reason: str

    @override
    def sentence(self) -> str:
        return (
            f"The plugin {self.name!r} of {self.distribution} {self.version} ({self.target}) is "
            f"installed but could not be loaded: {self.reason}. Reinstall {self.distribution} "
            f"with its dependencies, or block it with plugins.block = {self.name}."
        )


@attrs.define(eq=False, slots=False)
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


@attrs.define(eq=False, slots=False)
class PluginBlockedError(PluginError):
    """A plugin is installed but configuration forbids it."""

    rule: str

    @override
    def sentence(self) -> str:
        return f"The plugin {self.name!r} is blocked by {self.rule}. Change that rule to use it."


@attrs.define(eq=False, slots=False)
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


@attrs.define(eq=False, slots=False)
class BackendMismatchError(PluginError):
    """A worker has another version of a plugin than the driver resolved."""

    expected: str
    found: str

    @override
    def sentence(self) -> str:
        return (
            f"The driver resolved the backend {self.name!r} to {self.expected}, this worker has "
            f"{self.found}. Install the same version on every node."
        )


@attrs.define(eq=False, slots=False)
class UnsupportedCapabilityError(MillpondError, NotImplementedError):
    """A backend was asked for something that it does not declare."""

    backend: str
    capability: str

    @override
    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} does not support {self.capability!r}. "
            "`millpond backends` lists what each backend can do."
        )
