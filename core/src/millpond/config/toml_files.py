"""Text and TOML files that a user named."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from millpond.config.option_sources import OptionSource, plain_key
from millpond.config.structuring import flatten
from millpond.errors import ConfigError


@attrs.frozen
class TomlFile:
    """A TOML file's path and tree."""

    path: str
    tree: dict[str, Any]

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a table, empty if it is missing; raise ConfigError if it is a value."""
        table = self.tree.get(name, {})
        if not isinstance(table, Mapping):
            raise ConfigError(name, "is a section, not a value", place=self.path)
        return table

    def source(self, section: str = "") -> OptionSource:
        """Return the source of the file's values, or of the values below a table."""
        tree = self.table(section) if section else self.tree
        prefix = f"{section}." if section else ""
        try:
            keys = {plain_key(key): prefix + key for key, _ in flatten(tree)}
        except RecursionError as error:
            raise ConfigError("file", "is nested too deeply", place=self.path) from error
        return OptionSource(self.path, prefix, keys)


def read_toml(path: str | Path) -> TomlFile:
    """Read a TOML file; raise ConfigError if it cannot be read or is not TOML."""
    try:
        return TomlFile(str(path), tomllib.loads(read_text(path)))
    except RecursionError as error:
        raise ConfigError("file", "is nested too deeply", place=str(path)) from error
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with too many digits
        raise ConfigError("file", f"is not TOML: {error}", place=str(path)) from error


def read_text(path: str | Path) -> str:
    """Read a text file; raise ConfigError if it is missing or is not text."""
    file = Path(path)
    try:
        odd = file.exists() and not (file.is_file() or file.is_dir())
    except (OSError, ValueError):
        odd = False  # reading it reports why
    if odd:
        raise ConfigError("file", "is not a regular file", place=str(path))
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("file", reason, place=str(path)) from error
    except ValueError as error:
        raise ConfigError("file", f"is not UTF-8 text: {error}", place=str(path)) from error
