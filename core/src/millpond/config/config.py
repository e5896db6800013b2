"""Configuration: a tree of attrs classes, filled from Python, TOML or Spark's configuration.

Keys are dotted and written with hyphens. In Spark they begin with ``spark.millpond.``. In TOML and
Python they begin with ``millpond.`` or have no prefix. An unknown key or a wrong type raises an
error that names the source of the option and the most similar known key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from millpond.arguments import check_type, nearest
from millpond.config.option_sources import (
    PREFIX,
    SPARK_PREFIX,
    OptionSource,
    TomlFile,
    plain_key,
    read_toml,
)
from millpond.config.options import (
    BufferConfig,
    CheckpointConfig,
    LocalConfig,
    MetricsConfig,
    PluginsConfig,
    RestoreConfig,
    SerializationConfig,
    StateConfig,
)
from millpond.config.structuring import (
    NO_KEY,
    flatten,
    insert,
    known_keys,
    make_instance,
    structure_fields,
)
from millpond.errors import UNPLACED, ArgumentTypeError, ConfigError, brief
from millpond.keygroups import MAX_KEY_GROUPS

_KEY_GROUPS = attrs.validators.optional(
    attrs.validators.and_(attrs.validators.ge(1), attrs.validators.le(MAX_KEY_GROUPS))
)

_PAIR = 2
_SECTION = PREFIX.rstrip(".")
SPARK_SOURCE = "Spark configuration"
_HADOOP_PREFIX = "spark.hadoop."


@attrs.frozen(init=False)
class Config:
    """The configuration of a job.

    Args:
        options: dotted keys and their values, with or without the prefix ``millpond.``.
        place: the source of the options, for error messages.
        hadoop: Hadoop's settings of S3, ``fs.s3a.…``, for ``s3a://`` URIs.
        sections: options by section. Each section is a mapping or an instance of the section's
            class, for example ``Config(state={"backend": "lmdb"})``.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """

    parallelism: int | None = attrs.field(default=None, validator=_KEY_GROUPS)
    max_parallelism: int | None = attrs.field(default=None, validator=_KEY_GROUPS)
    state: StateConfig = StateConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    local: LocalConfig = LocalConfig()
    restore: RestoreConfig = RestoreConfig()
    serialization: SerializationConfig = SerializationConfig()
    buffer: BufferConfig = BufferConfig()
    plugins: PluginsConfig = PluginsConfig()
    metrics: MetricsConfig = MetricsConfig()
    backend: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    place: OptionSource = attrs.field(
        default=OptionSource("Config(...)"), eq=False, repr=False, metadata=NO_KEY
    )
    hadoop: Mapping[str, str] = attrs.field(factory=dict, repr=False, metadata=NO_KEY)

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        /,
        *,
        place: str | OptionSource = "Config(...)",
        hadoop: Mapping[str, str] | None = None,
        **sections: object,
    ) -> None:
        check_type("options", options, Mapping | None)
        check_type("place", place, str | OptionSource)
        check_type("hadoop", hadoop, Mapping | None)
        source = OptionSource(place) if isinstance(place, str) else place
        with source.locating_errors():
            given = list(flatten({**sections, **(options or {})}))
        if isinstance(place, str):
            source = OptionSource.from_keys(place, (key for key, _ in given))
        with source.locating_errors():
            tree: dict[str, Any] = {}
            for key, value in given:
                insert(tree, plain_key(key), value)
            fields = structure_fields(Config, tree)
            fields |= {"place": source, "hadoop": dict(hadoop or {})}
            make_instance(self.__attrs_init__, Config, fields)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """Read the table ``[millpond]`` of a TOML file.

        Raises:
            ConfigError: the file is missing, is not TOML, or has tables but not ``[millpond]``; the
                table has a wrong key; or one of Millpond's keys is outside the table.
        """
        check_type("path", path, str | Path)
        file = read_toml(path)
        _refuse_outside(file)
        return cls(file.table(_SECTION), place=file.source(_SECTION))

    @classmethod
    def from_spark_conf(cls, items: Iterable[tuple[str, str]]) -> Config:
        """Read Millpond's keys, and Hadoop's settings of S3, from Spark's configuration.

        Millpond's keys begin with ``spark.millpond.``, Hadoop's with ``spark.hadoop.fs.s3a.``.
        """
        check_type("items", items, Iterable)
        pairs = list(items)
        if any(not isinstance(pair, (tuple, list)) or len(pair) != _PAIR for pair in pairs):
            raise ArgumentTypeError("items", "pairs of key and value", brief(items))
        ours = {key: value for key, value in pairs if str(key).startswith(SPARK_PREFIX)}
        hadoop = {
            key.removeprefix(_HADOOP_PREFIX): value
            for key, value in pairs
            if str(key).startswith(f"{_HADOOP_PREFIX}fs.s3a.")
        }
        return cls(
            ours, place=OptionSource.from_keys(SPARK_SOURCE, ours, SPARK_PREFIX), hadoop=hadoop
        )

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return all dotted keys without a prefix, except the options of backends."""
        return known_keys(cls, ())

    def backend_options(self, name: str) -> Mapping[str, Any]:
        """Return the options under ``backend.<name>.``; ``name`` may be ``module:attr``."""
        check_type("name", name, str)
        options: Mapping[str, Any] = self.backend
        for part in plain_key(name).split("."):
            inner = options.get(part, {})
            options = inner if isinstance(inner, Mapping) else {}
        return options

    @contextmanager
    def locating_errors(self, key: str = "") -> Iterator[None]:
        """Add the option's source to a ConfigError that the block raises.

        Args:
            key: the key that the error must name instead of its own key. If it is empty, the
                error's own key remains.
        """
        try:
            yield
        except ConfigError as error:
            if key:
                error.key, error.place = key, UNPLACED
            if error.key.partition(".")[0].replace("-", "_") in attrs.fields_dict(Config):
                self.place.locate(error)
            raise


def _refuse_outside(file: TomlFile) -> None:
    """Raise ConfigError if a key of Millpond's is outside the table [millpond].

    Such a key would be ignored, because the file may have tables of other programs.
    """
    known = set(Config.known_keys())
    for key, value in file.tree.items():
        for leaf, _ in () if key == _SECTION else flatten({key: value}):
            plain = plain_key(leaf)
            # Only the backend itself knows its options.
            ours = plain in known or re.match(r"backend\.[^.]*\.", plain)
            if ours or leaf.startswith(SPARK_PREFIX):
                reason = f"is outside the table [{_SECTION}], and would have no effect"
                raise ConfigError(leaf, reason, file.path, suggestion=f"{PREFIX}{plain}")
    if file.tree and _SECTION not in file.tree:
        first = next(iter(file.tree))
        reason = f"the file has no table [{_SECTION}] for the configuration"
        raise ConfigError(first, reason, file.path, suggestion=nearest(first, [_SECTION]))
