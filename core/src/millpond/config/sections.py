"""The sections of the configuration tree: one attrs class for each, with what its keys mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from millpond.config.structuring import ByteSize, Secret, names_in, share_of_memory
from millpond.errors import brief


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
    """Limits of the files of snapshots and savepoints.

    Files are untrusted, so their readers need limits. A file that a reader would refuse is not
    written either.

    Attributes:
        max_file_bytes: of a file that is read whole: a savepoint's table, operator state.
        max_unpacked_bytes: by how many bytes a part of a file that is unpacked at once may exceed
            its stored size.
        max_states: the number of states of an operator. A row of a snapshot names its state by 16
            bits.
    """

    max_file_bytes: ByteSize = ByteSize(4 << 30)
    max_unpacked_bytes: ByteSize = ByteSize(32 << 20)
    max_states: int = attrs.field(
        default=1024, validator=[attrs.validators.ge(1), attrs.validators.le(1 << 16)]
    )


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
