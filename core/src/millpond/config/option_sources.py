"""Sources of options: files, Spark's configuration and calls. Error messages name them.

Code that refuses a value knows only the option's plain key, such as ``state.backend``, and raises a
``ConfigError`` without a place. The ``OptionSource`` of the configuration then adds the name of the
file, or replaces the key by the key in Spark's configuration.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import attrs

from millpond.config.structuring import flatten
from millpond.errors import UNPLACED, ConfigError

SPARK_PREFIX = "spark.millpond."
PREFIX = "millpond."


def plain_key(key: str) -> str:
    """Return a dotted key without its prefix and with hyphens instead of underscores."""
    for prefix in (SPARK_PREFIX, PREFIX):
        if key.startswith(prefix):
            key = key[len(prefix) :]
            break
    return key.replace("_", "-")


@attrs.frozen
class OptionSource:
    """The source of a configuration's values.

    Attributes:
        name: a file's path, ``Spark configuration``, or ``Config(...)``.
        prefix: the beginning of all keys in the source, such as ``spark.millpond.``.
        keys: the keys as the user wrote them, by plain key.
    """

    name: str
    prefix: str = ""
    keys: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def from_keys(cls, name: str, keys: Iterable[str], prefix: str = "") -> Self:
        """Return a source from the keys as the user wrote them."""
        return cls(name, prefix, {plain_key(key): key for key in keys})

    def locate(self, error: ConfigError) -> None:
        """Add this source, and the key as the user wrote it, to ``error`` if it names no source."""
        if error.place == UNPLACED:
            error.key = self.keys.get(plain_key(error.key), self.prefix + error.key)
            error.place = self.name
            if error.suggestion is not None:
                error.suggestion = self.prefix + error.suggestion

    def location(self, key: str) -> str:
        """Return text for an error message: the source, and ``key`` as the user wrote it."""
        error = ConfigError(key, "")
        self.locate(error)
        return f"{error.place}: {error.key}"

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Add the source and the user's key to a ConfigError that the block raises."""
        try:
            yield
        except ConfigError as error:
            self.locate(error)
            raise


@attrs.frozen
class TomlFile:
    """A TOML file's path and tree."""

    path: str
    tree: dict[str, Any]

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the table ``name``, or an empty one if it is missing.

        Raises:
            ConfigError: ``name`` is not a table but a value.
        """
        table = self.tree.get(name, {})
        if not isinstance(table, Mapping):
            raise ConfigError(name, "is a section, not a value", place=self.path)
        return table

    def source(self, section: str = "") -> OptionSource:
        """Return the option source of the table ``section``; if empty, of the whole file."""
        tree = self.table(section) if section else self.tree
        prefix = f"{section}." if section else ""
        with OptionSource(self.path).locating_errors():
            keys = {plain_key(key): prefix + key for key, _ in flatten(tree)}
        return OptionSource(self.path, prefix, keys)


def read_toml(path: str | Path) -> TomlFile:
    """Read a TOML file; raise ConfigError if it cannot be read or is not TOML."""
    text = read_text(path)
    try:
        return TomlFile(str(path), tomllib.loads(text))
    except RecursionError as error:
        raise ConfigError("file", "is nested too deeply", place=str(path)) from error
    except ValueError as error:  # also for a number with too many digits
        raise ConfigError("file", f"is not TOML: {error}", place=str(path)) from error


def read_text(path: str | Path) -> str:
    """Read a text file; raise ConfigError if it is missing or is not text."""
    file = Path(path)
    try:
        is_special = file.exists() and not (file.is_file() or file.is_dir())
        text = "" if is_special else file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("file", reason, place=str(path)) from error
    except ValueError as error:  # also for a path with a zero byte or half a surrogate pair
        raise ConfigError("file", f"is not UTF-8 text: {error}", place=str(path)) from error
    if is_special:
        raise ConfigError("file", "is not a regular file", place=str(path))
    return text
