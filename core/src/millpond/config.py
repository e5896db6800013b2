"""Configuration: one tree of attrs classes, filled from Python, TOML or Spark's configuration.

Keys are dotted and written with hyphens. In Spark they begin with ``spark.millpond.``, in
TOML and Python with ``millpond.`` or nothing. Unknown keys and wrong types are refused with
the place they came from and the nearest spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from millpond.arguments import check_type, nearest
from millpond.errors import ArgumentTypeError, ConfigError, brief
from millpond.errors.config import UNPLACED
from millpond.keygroups import MAX_KEY_GROUPS
from millpond.origins import PREFIX, SPARK_PREFIX, Origins, plain_key
from millpond.structuring import (
    NO_KEY,
    ByteSize,
    Secret,
    byte_count,
    flatten,
    insert,
    known_keys,
    made,
    names_in,
    share_of_memory,
    structure_fields,
    structure_options,
)
from millpond.tomlfiles import read_toml

__all__ = [
    "BufferConfig",
    "ByteSize",
    "CheckpointConfig",
    "Config",
    "LocalConfig",
    "MetricsConfig",
    "PluginsConfig",
    "RestoreConfig",
    "S3Config",
    "SerializationConfig",
    "SnapshotConfig",
    "StateConfig",
    "TrackConfig",
    "byte_count",
    "structure_options",
]

_KEY_GROUPS = attrs.validators.optional(
    attrs.validators.and_(attrs.validators.ge(1), attrs.validators.le(MAX_KEY_GROUPS))
)


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


def _size_or_share(_: Any, __: Any, value: str | None) -> None:
    if value is not None:
        share_of_memory(value, 1)


@attrs.frozen
class StateConfig:
    """Which backend holds the state, and what is measured about it.

    Attributes:
        memory: a budget for the memory of all backends in a worker process, in bytes or as a share
            of what the process may use (``25%``); for backends that keep to one.
    """

    backend: str = "heap"
    memory: str | None = attrs.field(default=None, validator=_size_or_share)
    snapshot: SnapshotConfig = SnapshotConfig()
    latency_track: TrackConfig = TrackConfig()
    size_track: TrackConfig = TrackConfig()


@attrs.frozen
class S3Config:
    """How S3 is reached; what is not set comes from the URI or the environment.

    Attributes:
        endpoint: ``host:port`` or a URL, of a store that is not Amazon's.
        access_key, secret_key, session_token: credentials; the first two go together.
        path_style: whether the bucket stands in the path rather than in the host's name; by
            default where there is an endpoint.
        ssl: whether to speak HTTPS, the default, unless the endpoint is an ``http://`` URL.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key: Secret | None = attrs.field(default=None, repr=False)
    secret_key: Secret | None = attrs.field(default=None, repr=False)
    session_token: Secret | None = attrs.field(default=None, repr=False)
    path_style: bool | None = None
    ssl: bool | None = None


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
        s3: for directories and savepoints that begin with ``s3://`` or ``s3a://``.
        inline_threshold: so many bytes of a subtask's snapshot may travel in Spark's pointer, or
            in the handle; what is larger is written to a file. 1 MiB at most.
        storage: ``files``, or ``pointer``: snapshots are carried by pointers alone.
        compression: of rows in snapshots: ``lz4``, ``zstd`` or ``none``; all of them are read.
    """

    dir: str | None = None
    inline_threshold: ByteSize = attrs.field(
        default=ByteSize(0), validator=attrs.validators.le(ByteSize(1 << 20))
    )
    storage: str = attrs.field(
        default="files", validator=attrs.validators.in_(("files", "pointer"))
    )
    compression: str = attrs.field(
        default="lz4", validator=attrs.validators.in_(("lz4", "zstd", "none"))
    )
    restore: str | None = None
    claim: bool = False
    ignore_unclaimed_state: bool = False
    s3: S3Config = S3Config()
    retained: int = attrs.field(default=100, validator=attrs.validators.ge(1))


def _absolute(_: Any, __: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if not Path(name).is_absolute():
            raise ValueError(f"expected absolute paths, got {brief(name)}")


@attrs.frozen
class LocalConfig:
    """The copies of state on the workers' disks.

    Attributes:
        dir: the directories that they spread over, on every worker; by default those that Spark,
            YARN or Kubernetes give the executor.
        recovery: whether a task may go on from such a copy. Without it each task of a backend
            that keeps its state on disk restores the snapshot.
    """

    dir: tuple[str, ...] = attrs.field(default=(), converter=names_in, validator=_absolute)
    recovery: bool = True


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


@attrs.frozen
class PluginsConfig:
    """Which installed plugins may be used.

    Attributes:
        allow: where not empty, only these entry-point names are loaded.
        block: these are not loaded.
        disable_all: nothing is loaded by entry point; ``module:attr`` still works.
    """

    allow: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    block: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    disable_all: bool = False


@attrs.frozen
class MetricsConfig:
    """Who gets the metrics of each subtask and micro-batch, besides the pointer row.

    Attributes:
        reporters: names of reporters: ``log``, ``prometheus``, ``opentelemetry``, or a plugin's.
        directory: prometheus: where a file per subtask is written, for a collector of text files.
        native: whether the native library's own gauges are read too.
    """

    reporters: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    directory: str | None = None
    native: bool = False


_PAIR = 2
_SECTION = PREFIX.rstrip(".")
SPARK_SOURCE = "Spark configuration"
_HADOOP_PREFIX = "spark.hadoop."


@attrs.frozen(init=False)
class Config:
    """The configuration of a job.

    Args:
        options: dotted keys and their values, with or without the prefix ``millpond.``.
        place: where the options come from, for error messages.
        origins: the same, as ``attrs.evolve`` hands it on.
        hadoop: Hadoop's settings of S3, ``fs.s3a.…``, which ``s3a://`` goes by.
        sections: the same by section, as mappings or as instances of the section's class:
            ``Config(state={"backend": "lmdb"})``.

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
    origins: Origins = attrs.field(
        default=Origins("Config(...)"), eq=False, repr=False, metadata=NO_KEY
    )
    hadoop: Mapping[str, str] = attrs.field(factory=dict, repr=False, metadata=NO_KEY)

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        /,
        *,
        place: str | Origins = "Config(...)",
        origins: Origins | None = None,
        hadoop: Mapping[str, str] | None = None,
        **sections: object,
    ) -> None:
        check_type("options", options, Mapping | None)
        check_type("place", place, str | Origins)
        check_type("origins", origins, Origins | None)
        check_type("hadoop", hadoop, Mapping | None)
        place = place if origins is None else origins
        try:
            given = list(flatten({**sections, **(options or {})}))
        except RecursionError as error:
            source = place if isinstance(place, str) else place.source
            raise ConfigError("options", "they are nested too deeply", source) from error
        if isinstance(place, str):
            place = Origins.of_keys(place, (key for key, _ in given))
        with place.placed():
            taken = {"origins": place, "hadoop": dict(hadoop or {})}
            made(self.__attrs_init__, Config, {**_structured(given), **taken})

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """Read a TOML file; its keys stand in the table ``[millpond]``.

        Raises:
            ConfigError: the file is missing, is not TOML, holds a wrong key, or one of these keys
                outside of that table; or it has other tables only.
        """
        check_type("path", path, str | Path)
        file = read_toml(path)
        with file.origins().placed():
            _refuse_outside(file.tree)
        return cls(file.table(_SECTION), place=file.origins(_SECTION))

    @classmethod
    def from_spark_conf(cls, items: Iterable[tuple[str, str]]) -> Config:
        """Take the keys that begin with ``spark.millpond.`` from Spark's configuration.

        And Hadoop's settings of S3, which there begin with ``spark.hadoop.fs.s3a.``.
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
        return cls(ours, place=Origins.of_keys(SPARK_SOURCE, ours, SPARK_PREFIX), hadoop=hadoop)

    @classmethod
    def known_keys(cls) -> list[str]:
        """All keys but the options of backends, dotted, without a prefix."""
        return known_keys(cls, ())

    def backend_options(self, name: str) -> Mapping[str, Any]:
        """The options under ``backend.<name>.``; the name may be ``module:attr``."""
        check_type("name", name, str)
        options: Mapping[str, Any] = self.backend
        for part in plain_key(name).split("."):
            inner = options.get(part, {})
            options = inner if isinstance(inner, Mapping) else {}
        return options

    @contextmanager
    def placed(self, key: str = "") -> Iterator[None]:
        """Have an error that a value of this configuration leads to say where that stands.

        Args:
            key: the value's key, where what refuses it knows it by another name.
        """
        try:
            yield
        except ConfigError as error:
            if key:
                error.key, error.place = key, UNPLACED
            if error.key.partition(".")[0].replace("-", "_") in attrs.fields_dict(Config):
                self.origins.refusing(error)
            raise


def _refuse_outside(tree: Mapping[str, Any]) -> None:
    """Refuse a TOML file's keys that would be passed over, for they stand in no [millpond].

    Beside that table others may stand, of other programs: only what is a key of ours is meant so.
    """
    for key, value in tree.items():
        for leaf, _ in () if key == _SECTION else flatten({key: value}):
            plain = plain_key(leaf)
            if leaf.startswith(SPARK_PREFIX) or _is_known(plain):
                reason = f"stands outside of [{_SECTION}], where nothing reads it"
                raise ConfigError(leaf, reason, suggestion=f"{PREFIX}{plain}")
    if tree and _SECTION not in tree:
        first = next(iter(tree))
        reason = f"the file has no table [{_SECTION}], in which the configuration stands"
        raise ConfigError(first, reason, suggestion=nearest(first, [_SECTION]))


def _is_known(plain: str) -> bool:
    """Whether a plain key is one of ours; backends have options of their own."""
    section, _, option = plain.partition(".")
    return plain in _known_keys() or (section == "backend" and "." in option)


@cache
def _known_keys() -> frozenset[str]:
    return frozenset(Config.known_keys())


def _structured(given: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in given:
        insert(tree, plain_key(key), value)
    try:
        return structure_fields(Config, tree)
    except RecursionError as error:
        raise ConfigError("options", "they are nested too deeply") from error
