"""The TOML file of a job: source, function, sink, and Millpond's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from millpond.config import Config, structure_options
from millpond.errors import ConfigError
from millpond.tomlfiles import read_toml

__all__ = ["JobFile"]


@attrs.frozen
class SourceSection:
    """``[source]``: what Spark's ``readStream`` is told."""

    format: str
    schema: str
    path: str
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class JobSection:
    """``[job]``: the keyed function; ``function`` is ``module:Class`` or ``file.py:Class``."""

    uid: str
    function: str
    key: tuple[str, ...]
    output: str
    null_keys: str = "refuse"
    order_by: tuple[str, ...] = ()


@attrs.frozen
class SinkSection:
    """``[sink]``: what Spark's ``writeStream`` is told; the query ends with its input."""

    format: str
    checkpoint: str
    path: str | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class JobFile:
    """A job as a TOML file describes it; relative paths are relative to the file."""

    source: SourceSection
    job: JobSection
    sink: SinkSection
    config: Config
    settings: Mapping[str, Any]
    spark: Mapping[str, Any]
    folder: Path

    @classmethod
    def read(cls, path: Path) -> JobFile:
        """Read a job.

        Raises:
            ConfigError: a section or key is missing, unknown or wrong.
        """
        tree = read_toml(path)
        unknown = sorted(set(tree) - {"source", "job", "sink", "millpond", "spark"})
        if unknown:
            raise ConfigError(unknown[0], "is not a known section", place=str(path))
        millpond = _table(tree, "millpond", path)
        return cls(
            source=_section(SourceSection, tree, "source", path),
            job=_section(JobSection, tree, "job", path),
            sink=_section(SinkSection, tree, "sink", path),
            config=Config(millpond, place=str(path)),
            settings=flatten(millpond, "spark.millpond"),
            spark=flatten(_table(tree, "spark", path), "spark"),
            folder=path.resolve().parent,
        )

    def uri(self, path: str) -> str:
        """A path of the file as Spark takes it: with a scheme as it is, else absolute."""
        return path if ":" in path else str(self.folder / path)


def flatten(tree: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Nested tables as dotted keys and text."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}"
        flat.update(flatten(value, name) if isinstance(value, Mapping) else {name: str(value)})
    return flat


def _table(tree: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = tree.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}]", "is a section, not a value", place=str(path))
    return table


def _section(cls: type[Any], tree: Mapping[str, Any], name: str, path: Path) -> Any:
    if name not in tree:
        raise ConfigError(f"[{name}]", "this section is missing", place=str(path))
    section = _table(tree, name, path)
    for field in attrs.fields(cls):
        given = section.get(field.name, section.get(field.name.replace("_", "-"), field.default))
        if given is attrs.NOTHING:
            raise ConfigError(f"{name}.{field.name}", "is missing", place=str(path))
        if given in ("", []) or (isinstance(given, list) and "" in given):
            raise ConfigError(f"{name}.{field.name}", "is empty", place=str(path))
    return structure_options(cls, section, str(path), name)
