"""Where the values of a configuration stand, so that whatever refuses one can say it.

What refuses a value knows it by its key alone. ``ConfigError`` is raised with that, unplaced;
the origins of the configuration then say which file and line, or which key of Spark's it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

import attrs

from millpond.config.toml_keys import key_lines
from millpond.errors import ConfigError
from millpond.errors.usage import UNPLACED

SPARK_PREFIX = "spark.millpond."
PREFIX = "millpond."


def plain_key(key: str) -> str:
    """A dotted key without a prefix, and with hyphens."""
    for prefix in (SPARK_PREFIX, PREFIX):
        if key.startswith(prefix):
            key = key[len(prefix) :]
            break
    return _hyphened(key)


def _hyphened(key: str) -> str:
    return key.replace("_", "-")


@attrs.frozen
class _Spot:
    key: str
    line: int | None = None


@attrs.frozen
class Origins:
    """Where the values of one configuration stand.

    Attributes:
        source: how errors call it: a file's path, ``Spark configuration``, ``Config(...)``.
        prefix: what keys begin with there, besides what they have here.
        spots: by plain key, each one as it is written, and its line where there are lines.
        whole: whether they are all of a file, the names of its tables before each key.
    """

    source: str
    prefix: str = ""
    spots: dict[str, _Spot] = attrs.field(factory=dict, repr=False)
    whole: bool = False

    @classmethod
    def of_keys(cls, source: str, keys: Iterable[str], prefix: str = "") -> Self:
        """The origins of values that stand under dotted keys."""
        return cls.of_names(source, {key: key for key in keys}, prefix)

    @classmethod
    def of_names(cls, source: str, names: Mapping[str, str], prefix: str = "") -> Self:
        """The origins of values that stand under names of their own, by dotted key."""
        return cls(source, prefix, {plain_key(key): _Spot(name) for key, name in names.items()})

    @classmethod
    def of_toml(cls, path: str, text: str, section: str = "") -> Self:
        """The origins of a TOML file's values, or of those below one of its tables."""
        spots: dict[str, _Spot] = {}
        for parts, line in key_lines(text).items():
            below = parts[1:] if section else parts
            if below and (not section or parts[0] == section):
                name = ".".join(below)
                plain = plain_key(name) if section else _hyphened(name)
                spots.setdefault(plain, _Spot(".".join(parts), line))
        return cls(path, f"{section}." if section else "", spots, whole=not section)

    def refusing(self, error: ConfigError) -> ConfigError:
        """Add the place of the refused option to an error that does not name one; returns it."""
        if error.place == UNPLACED:
            spot = self._spot(error.key)
            error.key = spot.key
            error.place = self.source if spot.line is None else f"{self.source}, line {spot.line}"
            if error.suggestion is not None:
                error.suggestion = self.prefix + error.suggestion
        return error

    def where(self, key: str) -> str:
        """Where a key stands, and how it is written there."""
        error = self.refusing(ConfigError(key, ""))
        return f"{error.place}: {error.key}"

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Have what is refused meanwhile say where it stands."""
        try:
            yield
        except ConfigError as error:
            self.refusing(error)
            raise

    def _plain(self, key: str) -> str:
        """What a key's spot is found by; of a whole file, the key as it is written comes first."""
        plain, written, ours = plain_key(key), _hyphened(key), f"{PREFIX}{plain_key(key)}"
        if not self.whole:
            return plain
        has_prefix = plain != written
        return ours if written not in self.spots and (has_prefix or ours in self.spots) else written

    def _spot(self, key: str) -> _Spot:
        """Of the key itself, else of the section around it, else of the first key below it."""
        plain = self._plain(key)
        parts, rest = plain.split("."), ""
        given = key.split(".")
        while parts:
            around = self.spots.get(".".join(parts))
            if around is not None:
                return _Spot(around.key + rest, around.line)
            parts.pop()
            rest = f".{given.pop()}{rest}"
        below = (spot for at, spot in self.spots.items() if at.startswith(f"{plain}."))
        return _Spot(self.prefix + key, next(below, _Spot(key)).line)
