"""Errors of configuration."""

from __future__ import annotations

import attrs

from millpond.errors.base import MillpondError

__all__ = [
    "ConfigError",
]


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
