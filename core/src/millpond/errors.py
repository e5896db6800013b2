"""Every error that Millpond raises on purpose.

Each class reads as a sentence, carries its data as fields and survives pickling (errors
travel from Spark's workers to the driver). The message says what was wrong, where, and
what to do.
"""

from __future__ import annotations

from typing import Any

import attrs

__all__ = [
    "ApiVersionError",
    "BackendClosedError",
    "BackendMismatchError",
    "ConfigError",
    "CorruptSnapshotError",
    "KeyGroupRangeError",
    "MaxParallelismError",
    "MillpondError",
    "NoCurrentKeyError",
    "NullKeyError",
    "NullValueError",
    "OutputTypeError",
    "PluginBlockedError",
    "PluginConflictError",
    "PluginError",
    "PluginIncompatibleError",
    "PluginLoadError",
    "PluginNotFoundError",
    "RestoreError",
    "StateConflictError",
    "StateMigrationError",
    "StateNameError",
    "StateTypeError",
    "StoreFullError",
    "UnsupportedCapabilityError",
    "UnsupportedColumnError",
    "UserFunctionError",
]


@attrs.define(eq=False, slots=False)
class MillpondError(Exception):
    """The root of all errors that Millpond raises on purpose."""

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self) -> str:
        """The message, built from the fields."""
        return type(self).__doc__ or type(self).__name__


# ---------------------------------------------------------------- configuration


@attrs.define(eq=False, slots=False)
class ConfigError(MillpondError, ValueError):
    """A configuration key or value cannot be used."""

    key: str
    reason: str
    place: str = "configuration"
    suggestion: str | None = None

    def sentence(self) -> str:
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.place}: {self.key}: {self.reason}.{hint}"


# ---------------------------------------------------------------- plugins


@attrs.define(eq=False, slots=False)
class PluginError(MillpondError):
    """A plugin cannot be used."""

    name: str


@attrs.define(eq=False, slots=False)
class PluginNotFoundError(PluginError, LookupError):
    """No installed plugin has this name."""

    installed: tuple[str, ...] = ()
    suggestion: str | None = None
    known_distribution: str | None = None

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

    def sentence(self) -> str:
        return f"The plugin {self.name!r} is blocked by {self.rule}. Change that rule to use it."


@attrs.define(eq=False, slots=False)
class PluginConflictError(PluginError):
    """Two distributions provide a plugin of the same name."""

    distributions: tuple[str, ...]

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

    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} does not support {self.capability!r}. "
            "`millpond backends` lists what each backend can do."
        )


# ---------------------------------------------------------------- state


@attrs.define(eq=False, slots=False)
class NullValueError(MillpondError, ValueError):
    """None was given where a value is needed."""

    what: str
    place: str = ""

    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.what} must not be None. Nothing was changed."


@attrs.define(eq=False, slots=False)
class NullKeyError(NullValueError):
    """A row of a keyed stream has a null key."""

    operator_uid: str = ""
    columns: tuple[str, ...] = ()
    row: str = ""

    def sentence(self) -> str:
        return (
            f"Operator {self.operator_uid!r}: the key ({', '.join(self.columns)}) of this row is "
            f"null: {self.row}. Filter such rows, or choose null_keys='drop' or 'aside'."
        )


@attrs.define(eq=False, slots=False)
class StateTypeError(MillpondError, TypeError):
    """A value does not fit the declared type of its state."""

    expected: str
    value: str
    place: str = ""
    reason: str = ""

    def sentence(self) -> str:
        where = f"{self.place}: " if self.place else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{where}expected {self.expected}, got {self.value}{why}. Nothing was changed."


@attrs.define(eq=False, slots=False)
class StateNameError(MillpondError, ValueError):
    """A state name is empty or reserved."""

    name: str
    reason: str

    def sentence(self) -> str:
        return f"The state name {self.name!r} is refused: {self.reason}. Choose another name."


@attrs.define(eq=False, slots=False)
class StateConflictError(MillpondError):
    """One state name is used in two ways."""

    name: str
    registered: str
    requested: str

    def sentence(self) -> str:
        return (
            f"The state {self.name!r} is registered as {self.registered} and was requested as "
            f"{self.requested}. Use one name for one kind of state."
        )


@attrs.define(eq=False, slots=False)
class StateMigrationError(MillpondError):
    """Stored state cannot be read with the declared type."""

    state: str
    part: str
    stored: str
    declared: str
    reason: str = ""

    def sentence(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"State {self.state!r}: the stored {self.part} type {self.stored} cannot become "
            f"{self.declared}{why}. The data is untouched: declare the stored type, or migrate."
        )


@attrs.define(eq=False, slots=False)
class NoCurrentKeyError(MillpondError):
    """Keyed state was accessed without a current key."""

    backend: str

    def sentence(self) -> str:
        return f"The backend {self.backend!r} has no current key: call set_current_key() first."


@attrs.define(eq=False, slots=False)
class BackendClosedError(MillpondError):
    """A backend was used after it was closed."""

    backend: str

    def sentence(self) -> str:
        return f"The backend {self.backend!r} is closed. Open it again to go on."


@attrs.define(eq=False, slots=False)
class StoreFullError(MillpondError):
    """A local store cannot grow any further."""

    backend: str
    directory: str
    reason: str

    def sentence(self) -> str:
        return (
            f"The backend {self.backend!r} cannot grow its store in {self.directory}: "
            f"{self.reason}. Raise the memory or disk limit, or use more subtasks."
        )


@attrs.define(eq=False, slots=False)
class KeyGroupRangeError(MillpondError, ValueError):
    """A key group, a parallelism or a range is out of bounds."""

    reason: str

    def sentence(self) -> str:
        return f"{self.reason}."


@attrs.define(eq=False, slots=False)
class MaxParallelismError(MillpondError):
    """A snapshot was taken with another number of key groups."""

    stored: int
    requested: int

    def sentence(self) -> str:
        return (
            f"The snapshot has max-parallelism {self.stored}, {self.requested} was requested. It "
            f"is fixed for the life of the state: set max-parallelism = {self.stored}."
        )


# ---------------------------------------------------------------- snapshots


@attrs.define(eq=False, slots=False)
class CorruptSnapshotError(MillpondError):
    """A file of a snapshot is damaged, missing or foreign."""

    file: str
    reason: str

    def sentence(self) -> str:
        return f"The snapshot file {self.file!r} cannot be trusted: {self.reason}."


@attrs.define(eq=False, slots=False)
class RestoreError(MillpondError):
    """State could not be restored from any of its sources."""

    what: str
    causes: tuple[str, ...]

    def sentence(self) -> str:
        return f"Could not restore {self.what}: " + "; ".join(self.causes)


@attrs.define(eq=False, slots=False)
class ApiVersionError(MillpondError):
    """Something was written by a newer Millpond."""

    what: str
    found: int
    supported: int

    def sentence(self) -> str:
        return (
            f"{self.what} has format version {self.found}, this Millpond reads up to "
            f"{self.supported}: upgrade millpond."
        )


# ---------------------------------------------------------------- functions and Spark


@attrs.define(eq=False, slots=False)
class UserFunctionError(MillpondError):
    """A user's function failed."""

    operator_uid: str
    subtask: int
    key: str
    method: str
    reason: str

    def sentence(self) -> str:
        return (
            f"Operator {self.operator_uid!r}, subtask {self.subtask}, key {self.key}: "
            f"{self.method} failed: {self.reason}"
        )


@attrs.define(eq=False, slots=False)
class OutputTypeError(MillpondError, TypeError):
    """A function yielded a row that does not fit the declared output."""

    operator_uid: str
    column: str
    expected: str
    value: str
    reason: str = ""

    def sentence(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"Operator {self.operator_uid!r}: output column {self.column!r} is declared "
            f"{self.expected}, the function yielded {self.value}{why}."
        )


@attrs.define(eq=False, slots=False)
class UnsupportedColumnError(MillpondError, TypeError):
    """A column has a Spark type that cannot pass through an operator without loss."""

    column: str
    spark_type: str
    reason: str = "this type cannot be carried to Python without loss"

    def sentence(self) -> str:
        return f"Column {self.column!r} of type {self.spark_type}: {self.reason}. Cast or drop it."


def brief(value: Any, limit: int = 120) -> str:
    """A short, safe representation of a value for an error message."""
    try:
        text = f"{value!r}"
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may do anything
        text = f"<repr failed: {error}>"
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"{type(value).__name__} {text}"
