"""Configuration: one tree of attrs classes, filled from Python, TOML or Spark's configuration.

Keys are dotted and written with hyphens. In Spark they begin with ``spark.millpond.``, in
TOML and Python with ``millpond.`` or nothing. Unknown keys and wrong types are refused with
the place they came from and the nearest spelling.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NewType, TypeVar, get_args, get_origin, get_type_hints

import attrs
import cattrs

from millpond.arguments import check_type
from millpond.errors import ArgumentTypeError, ConfigError, brief

__all__ = [
    "BufferConfig",
    "ByteSize",
    "CheckpointConfig",
    "Config",
    "MetricsConfig",
    "PluginsConfig",
    "RestoreConfig",
    "SerializationConfig",
    "SnapshotConfig",
    "StateConfig",
    "TrackConfig",
    "byte_count",
    "structure_options",
]

T = TypeVar("T")

ByteSize = NewType("ByteSize", int)
"""A number of bytes; in text also as 64kb, 64mb or 2gb (powers of 1024)."""

SPARK_PREFIX = "spark.millpond."
_PREFIXES = (SPARK_PREFIX, "millpond.")
_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


@attrs.frozen
class TrackConfig:
    """Sampling of one kind of state metric; the names are Flink's."""

    enabled: bool = False
    sample_interval: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    history_size: int = attrs.field(default=128, validator=attrs.validators.ge(1))


@attrs.frozen
class SnapshotConfig:
    """How snapshots are taken.

    Attributes:
        strategy: the name of a snapshot strategy, for instance ``changelog`` or ``full``.
        max_deltas: changelog: so many deltas at most are read at a restore.
        base_ratio: changelog: the base is written anew when the deltas of a chain are larger
            than the base times this.
    """

    strategy: str = "changelog"
    max_deltas: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    base_ratio: float = attrs.field(default=4.0, validator=attrs.validators.gt(0))


@attrs.frozen
class StateConfig:
    """Which backend holds the state, and what is measured about it."""

    backend: str = "heap"
    snapshot: SnapshotConfig = SnapshotConfig()
    latency_track: TrackConfig = TrackConfig()
    size_track: TrackConfig = TrackConfig()


@attrs.frozen
class CheckpointConfig:
    """Where snapshots go and how many are kept.

    Attributes:
        dir: path or URI of the directory that all workers reach.
        retained: so many of the newest confirmed snapshots stay restorable.
        restore: a savepoint that operators without any state yet start from, by their uid.
        claim: whether a snapshot that a backend is opened from belongs to it from then on; not
            on Spark.
        ignore_unclaimed_state: whether a query may start though there is state, in its checkpoint
            or in the savepoint, of operators that it does not have; that state is given up.
    """

    dir: str | None = None
    restore: str | None = None
    claim: bool = False
    ignore_unclaimed_state: bool = False
    retained: int = attrs.field(default=100, validator=attrs.validators.ge(1))


@attrs.frozen
class RestoreConfig:
    """What the files of snapshots and savepoints may ask for; files are untrusted.

    Attributes:
        max_file_bytes: a file that is read whole: a savepoint's table, operator state.
        max_unpacked_bytes: by so much may a part of a file that is unpacked at once exceed its
            own bytes. Millpond's own files stay below the default.
        max_states: so many states an operator may have in them.
    """

    max_file_bytes: ByteSize = ByteSize(4 << 30)
    max_unpacked_bytes: ByteSize = ByteSize(32 << 20)
    max_states: int = attrs.field(default=1024, validator=attrs.validators.ge(1))


@attrs.frozen
class SerializationConfig:
    """What a checkpoint may contain."""

    allow_pickle: bool = False


@attrs.frozen
class BufferConfig:
    """Limits of the write-back buffer of one backend; beyond them it is flushed early."""

    max_entries: int = attrs.field(default=200_000, validator=attrs.validators.ge(1))
    max_bytes: ByteSize = ByteSize(256 << 20)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    return tuple(name.strip() for name in value if name.strip())


@attrs.frozen
class PluginsConfig:
    """Which installed plugins may be used.

    Attributes:
        allow: where not empty, only these entry-point names are loaded.
        block: these are not loaded.
        disable_all: nothing is loaded by entry point; ``module:attr`` still works.
    """

    allow: tuple[str, ...] = attrs.field(default=(), converter=_names)
    block: tuple[str, ...] = attrs.field(default=(), converter=_names)
    disable_all: bool = False


@attrs.frozen
class MetricsConfig:
    """Who gets the figures of each subtask and micro-batch, besides the pointer row.

    Attributes:
        reporters: names of reporters: ``log``, ``prometheus``, ``opentelemetry``, or a plugin's.
        directory: prometheus: where a file per subtask is written, for a collector of text files.
        native: whether the native library's own gauges are read too.
    """

    reporters: tuple[str, ...] = attrs.field(default=(), converter=_names)
    directory: str | None = None
    native: bool = False


_PAIR = 2
_NO_KEY = {"no key": True}


@attrs.frozen(init=False)
class Config:
    """The configuration of a job.

    Args:
        options: dotted keys and their values, with or without the prefix ``millpond.``.
        place: where the options came from, for error messages.
        sections: the same by section, as mappings or as instances of the section's class:
            ``Config(state={"backend": "lmdb"})``.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type.
    """

    parallelism: int | None = None
    max_parallelism: int | None = None
    state: StateConfig = StateConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    restore: RestoreConfig = RestoreConfig()
    serialization: SerializationConfig = SerializationConfig()
    buffer: BufferConfig = BufferConfig()
    plugins: PluginsConfig = PluginsConfig()
    metrics: MetricsConfig = MetricsConfig()
    backend: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    place: str = attrs.field(default="Config(...)", eq=False, repr=False, metadata=_NO_KEY)

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        /,
        *,
        place: str = "Config(...)",
        **sections: Any,
    ) -> None:
        check_type("options", options, Mapping | None)
        check_type("place", place, str)
        try:
            fields = _structured({**sections, **(options or {})}, place)
        except RecursionError as error:
            raise ConfigError("options", "they are nested too deeply", place) from error
        self.__attrs_init__(**fields, place=place)

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """Read a TOML file; its keys stand in the table ``[millpond]``.

        Raises:
            ConfigError: the file is missing, is no TOML, or holds a wrong key.
        """
        check_type("path", path, str | Path)
        tree = read_toml(path).get("millpond", {})
        if not isinstance(tree, Mapping):
            raise ConfigError("[millpond]", "is a section, not a value", place=str(path))
        try:
            return cls(tree, place=str(path))
        except ConfigError as error:
            line = _line_of(read_text(path), error.key)
            error.place = f"{path}, line {line}" if line else str(path)
            raise

    @classmethod
    def from_spark_conf(cls, items: Iterable[tuple[str, str]]) -> Config:
        """Take the keys that begin with ``spark.millpond.`` from Spark's configuration."""
        check_type("items", items, Iterable)
        pairs = list(items)
        if any(not isinstance(pair, (tuple, list)) or len(pair) != _PAIR for pair in pairs):
            raise ArgumentTypeError("items", "pairs of key and value", brief(items))
        ours = {key: value for key, value in pairs if str(key).startswith(SPARK_PREFIX)}
        return cls(ours, place="Spark configuration")

    @classmethod
    def known_keys(cls) -> list[str]:
        """All keys but the options of backends, dotted, without a prefix."""
        return _known_keys(cls, ())

    def backend_options(self, name: str) -> Mapping[str, Any]:
        """The options under ``backend.<name>.``; the name may be ``module:attr``."""
        return self.backend.get(name.replace("_", "-"), {})


def _structured(options: Mapping[str, Any], place: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in _flatten(options):
        _insert(tree, _strip_prefix(key), value, place)
    return _structure_fields(Config, tree, place, ())


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a tree; ConfigError where there is none or it does not parse."""
    try:
        return tomllib.loads(read_text(path))
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with too many digits
        raise ConfigError("file", f"is not TOML: {error}", place=str(path)) from error
    except RecursionError as error:
        raise ConfigError("file", "is nested too deeply", place=str(path)) from error


def _line_of(text: str, key: str) -> int | None:
    """The line of a TOML file where a dotted key most likely stands."""
    last = re.escape(key.rpartition(".")[2])
    spelt = last.replace("\\-", "[-_]")
    found = re.search(rf"^[^#\n]*?(?<![\w-]){spelt}[\"']?\s*[=\].]", text, re.MULTILINE)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def read_text(path: str | Path) -> str:
    """The text of a file that somebody named; ConfigError where it cannot be read as one."""
    file = Path(path)
    try:
        odd = file.exists() and not (file.is_file() or file.is_dir())
    except (OSError, ValueError):
        odd = False  # reading it says why
    if odd:
        raise ConfigError("file", "is no regular file", place=str(path))
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("file", reason, place=str(path)) from error
    except ValueError as error:
        raise ConfigError("file", f"is no UTF-8 text: {error}", place=str(path)) from error


def _strip_prefix(key: str) -> str:
    return next((key[len(p) :] for p in _PREFIXES if key.startswith(p)), key)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        check_type("options", key, str)
        dotted = f"{prefix}{key}"
        plain = attrs.asdict(value) if attrs.has(type(value)) else value
        if isinstance(plain, Mapping):
            yield from _flatten(plain, f"{dotted}.")
        else:
            yield dotted, plain


def _insert(tree: dict[str, Any], key: str, value: Any, place: str) -> None:
    *parents, last = key.split(".")
    for part in parents:
        tree = tree.setdefault(part.replace("_", "-"), {})
        if not isinstance(tree, dict):
            raise ConfigError(key, f"{part!r} is a value, not a section", place=place)
    tree[last.replace("_", "-")] = value


def structure_options(cls: type[T], options: Mapping[str, Any], place: str, prefix: str) -> T:
    """Fill an attrs class of options from a mapping with hyphenated keys.

    Plugins use it for their ``backend.<name>.`` options.

    Raises:
        ConfigError: a key is unknown or a value has the wrong type; names ``prefix`` and key.
    """
    path = tuple(prefix.split("."))
    return _made(cls, _structure_fields(cls, dict(options), place, path), place, path)


def _made(cls: type[T], fields: Mapping[str, Any], place: str, path: tuple[str, ...]) -> T:
    """An instance; ConfigError names the field that its class refuses."""
    for name, value in fields.items():
        try:
            cls(**{name: value})
        except ValueError as error:
            key = ".".join((*path, name.replace("_", "-")))
            raise ConfigError(key, str(error), place) from None
    return cls(**fields)


def _structure_fields(
    cls: type, tree: Mapping[str, Any], place: str, path: tuple[str, ...]
) -> dict[str, Any]:
    hints = get_type_hints(cls)
    known = {name.replace("_", "-"): name for name in _keys_of(cls)}
    fields: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = ".".join((*path, key))
        name = known.get(key.replace("_", "-"))
        if name is None:
            leaf, _ = next(_flatten({dotted: value}), (dotted, None))
            close = difflib.get_close_matches(leaf, _known_keys(cls, path), n=1, cutoff=0.5)
            hint = close[0] if close else None
            raise ConfigError(leaf, "is not a known key", place, suggestion=hint)
        fields[name] = _structure_value(hints[name], value, place, (*path, key))
    return fields


def _structure_value(kind: Any, value: Any, place: str, path: tuple[str, ...]) -> Any:
    if isinstance(kind, type) and attrs.has(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(".".join(path), "is a section, not a value", place)
        return _made(kind, _structure_fields(kind, value, place, path), place, path)
    if get_origin(kind) is Mapping:
        return _structure_mapping(get_args(kind)[1], value, place, path)
    if isinstance(value, Mapping):
        raise ConfigError(".".join(path), "is a value, not a section", place)
    try:
        return _CONVERTER.structure(value, kind)
    except (ValueError, TypeError, OverflowError, AttributeError, cattrs.BaseValidationError):
        name = getattr(kind, "__name__", str(kind)).removesuffix(" | None")
        raise ConfigError(".".join(path), f"expected {name}, got {brief(value)}", place) from None


def _keys_of(cls: type) -> list[str]:
    fields = attrs.fields_dict(cls)
    return [name for name, field in fields.items() if field.metadata != _NO_KEY]


def _structure_mapping(kind: Any, value: Any, place: str, path: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(".".join(path), "is a section, not a value", place)
    if get_origin(kind) is not Mapping:
        return dict(value)
    inner = get_args(kind)[1]
    return {
        key: _structure_mapping(inner, each, place, (*path, key)) for key, each in value.items()
    }


def _known_keys(cls: type, path: tuple[str, ...]) -> list[str]:
    hints = get_type_hints(cls)
    keys: list[str] = []
    for name in _keys_of(cls):
        here = (*path, name.replace("_", "-"))
        keys.append(".".join(here))
        if isinstance(hints[name], type) and attrs.has(hints[name]):
            keys += _known_keys(hints[name], here)
    return keys


def _to_bool(value: Any, _: Any) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    word = str(value).strip().lower()
    if word not in words:
        raise ValueError(value)
    return words[word]


def _to_int(value: Any, _: Any) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError(value)
    return int(value)


def byte_count(value: Any) -> ByteSize:
    """The bytes of a number, or of a text like ``64mb``; ValueError for anything else."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", str(value).strip().lower())
    if isinstance(value, bool) or match is None or match[2] not in _UNITS:
        raise ValueError(value)
    return ByteSize(int(match[1]) * _UNITS[match[2]])


def _to_text(value: Any, _: Any) -> str:
    if not isinstance(value, (str, Path)):
        raise TypeError(value)
    return str(value)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    converter.register_structure_hook(bool, _to_bool)
    converter.register_structure_hook(int, _to_int)
    converter.register_structure_hook(str, _to_text)
    converter.register_structure_hook(ByteSize, lambda value, _: byte_count(value))
    converter.register_structure_hook_func(
        lambda kind: kind == tuple[str, ...], lambda value, _: _names(value)
    )
    return converter


_CONVERTER = _make_converter()
