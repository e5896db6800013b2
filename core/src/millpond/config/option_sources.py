"""Sources of options: the name and the keys that error messages give for a value.

Code that refuses a value knows the option's plain key only. It raises ``ConfigError`` without a
place. The option source of the configuration then adds the file, or the key in Spark's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import attrs

from millpond.errors import UNPLACED, ConfigError

SPARK_PREFIX = "spark.millpond."
PREFIX = "millpond."


def plain_key(key: str) -> str:
    """Return a dotted key without a prefix, and with hyphens."""
    for prefix in (SPARK_PREFIX, PREFIX):
        if key.startswith(prefix):
            key = key[len(prefix) :]
            break
    return key.replace("_", "-")


@attrs.frozen
class OptionSource:
    """The source of a configuration's values.

    Attributes:
        name: a file's path, ``Spark configuration``, ``Config(...)``.
        prefix: the beginning of every key in the source.
        keys: the keys as they are written in the source, by plain key.
    """

    name: str
    prefix: str = ""
    keys: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def from_keys(cls, name: str, keys: Iterable[str], prefix: str = "") -> Self:
        """Return the source of values under dotted keys."""
        return cls(name, prefix, {plain_key(key): key for key in keys})

    def locate(self, error: ConfigError) -> None:
        """Add the source and the written key to an error without a place."""
        if error.place == UNPLACED:
            error.key = self.keys.get(plain_key(error.key), self.prefix + error.key)
            error.place = self.name
            if error.suggestion is not None:
                error.suggestion = self.prefix + error.suggestion

    def location(self, key: str) -> str:
        """Return the source and the written form of a key, for an error message."""
        error = ConfigError(key, "")
        self.locate(error)
        return f"{error.place}: {error.key}"

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Locate a ConfigError that the block raises."""
        try:
            yield
        except ConfigError as error:
            self.locate(error)
            raise
