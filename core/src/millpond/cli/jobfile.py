"""The TOML file of a job: source, function, sink, and Millpond's configuration."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from millpond.config import Config, read_toml, structure_options
from millpond.errors import ConfigError
from millpond.runtime import KeyedProcessFunction

__all__ = ["JobFile", "load_function"]


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
        return cls(
            source=_section(SourceSection, tree, "source", path),
            job=_section(JobSection, tree, "job", path),
            sink=_section(SinkSection, tree, "sink", path),
            config=Config(tree.get("millpond", {}), place=str(path)),
            settings=flatten(tree.get("millpond", {}), "spark.millpond"),
            spark=flatten(tree.get("spark", {}), "spark"),
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


def _section(cls: type[Any], tree: Mapping[str, Any], name: str, path: Path) -> Any:
    section = tree.get(name)
    if not isinstance(section, Mapping):
        raise ConfigError(f"[{name}]", "this section is missing", place=str(path))
    for field in attrs.fields(cls):
        if field.default is attrs.NOTHING and field.name not in section:
            raise ConfigError(f"{name}.{field.name}", "is missing", place=str(path))
    return structure_options(cls, section, str(path), name)


def load_function(target: str, folder: Path) -> KeyedProcessFunction:
    """The function that ``module:name`` or ``file.py:name`` names: a class, instance or factory.

    Raises:
        ConfigError: there is no such module, file or class.
    """
    source, _, name = target.partition(":")
    try:
        module = _load_file(folder / source) if source.endswith(".py") else _import(source)
        found = getattr(module, name)
        made = found if isinstance(found, KeyedProcessFunction) else found()
    except (ImportError, AttributeError, OSError, TypeError) as error:
        raise ConfigError("job.function", f"{target!r} cannot be loaded: {error}", "job") from error
    if not isinstance(made, KeyedProcessFunction):
        raise ConfigError("job.function", f"{target!r} is no KeyedProcessFunction", "job")
    return made


def _import(name: str) -> Any:
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    """A module from a file; its classes are pickled by value, workers need not have the file."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only where Spark is used

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
