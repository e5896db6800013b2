"""Text and TOML files that somebody named."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from millpond.config.option_sources import Origins
from millpond.errors import ConfigError


@attrs.frozen
class TomlFile:
    """A TOML file's tree, and where each of its values stands."""

    path: str
    tree: dict[str, Any]
    _text: str = attrs.field(repr=False)

    def table(self, name: str) -> Mapping[str, Any]:
        """One of its tables, empty where it is not there; ConfigError where a value is."""
        table = self.tree.get(name, {})
        if not isinstance(table, Mapping):
            error = ConfigError(name, "is a section, not a value")
            raise self.origins().refusing(error)
        return table

    def origins(self, section: str = "") -> Origins:
        """Where its values stand, or those below one of its tables."""
        return Origins.of_toml(self.path, self._text, section)


def read_toml(path: str | Path) -> TomlFile:
    """A TOML file; ConfigError where there is none or it does not parse."""
    text = read_text(path)
    try:
        return TomlFile(str(path), tomllib.loads(text), text)
    except ValueError as error:  # also of a number with too many digits
        raise ConfigError("file", f"is not TOML: {error}", place=str(path)) from error
    except RecursionError as error:
        raise ConfigError("file", "is nested too deeply", place=str(path)) from error


def read_text(path: str | Path) -> str:
    """The text of a file that somebody named; ConfigError where it cannot be read as one."""
    file = Path(path)
    try:
        odd = file.exists() and not (file.is_file() or file.is_dir())
    except (OSError, ValueError):
        odd = False  # reading it says why
    if odd:
        raise ConfigError("file", "is not a regular file", place=str(path))
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("file", reason, place=str(path)) from error
    except ValueError as error:
        raise ConfigError("file", f"is not UTF-8 text: {error}", place=str(path)) from error
