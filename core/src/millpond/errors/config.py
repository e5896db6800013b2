"""Errors of configuration."""

from __future__ import annotations

import attrs
from typing_extensions import override

from millpond.errors.base import MillpondError

__all__ = ["UNPLACED", "ConfigError"]

UNPLACED = "configuration"
"""The place of an error whose raiser knows the key alone; see ``millpond.config.origins``."""


@attrs.define(eq=False, slots=False)
class ConfigError(MillpondError, ValueError):
    """A configuration key or value cannot be used.

    Attributes:
        key: as it is written at the place, where that is known.
        place: a file and line, Spark's configuration, a call.
    """

    key: str
    reason: str
    place: str = UNPLACED
    suggestion: str | None = None

    @override
    def sentence(self) -> str:
        hint = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        return f"{self.place}: {self.key}: {self.reason}.{hint}"
