"""The sections of the configuration, an attrs class for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from millpond.config.structuring import ByteSize, Secret, names_in, share_of_memory
from millpond.errors import brief


@attrs.frozen
class TrackConfig:
    """Settings for the metrics of latencies or of sizes of state accesses; names are Flink's."""

    enabled: bool = False
    sample_interval: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    history_size: int = attrs.field(default=128, validator=attrs.validators.ge(1))


@attrs.frozen
class SnapshotConfig:
    """The snapshot strategy and its settings.

    Attributes:
        strategy: the name of a snapshot strategy, for instance ``changelog`` or ``full``.
        max_deltas: for ``changelog``, the maximum number of deltas (files with changes only) that a
            restore reads.
        base_ratio: for ``changelog``: if the deltas together are larger than the base (the last
            file with the whole state) times this number, a new base is written.
    """

    strategy: str = "changelog"
    max_deltas: int = attrs.field(default=100, validator=attrs.validators.ge(1))
    base_ratio: float = attrs.field(default=4.0, validator=attrs.validators.gt(0))


def _size_or_share(_: Any, __: Any, value: str | None) -> None:
    if value is not None:
        share_of_memory(value, 1)


@attrs.frozen
class StateConfig:
    """The state backend, its snapshots and the metrics of states.

    Attributes:
        memory: the memory budget in a worker process of all backends that support a budget. It is a
            number of bytes, or a share of the memory that the process may use (``25%``).
    """

    backend: str = "heap"
    memory: str | None = attrs.field(default=None, validator=_size_or_share)
    snapshot: SnapshotConfig = SnapshotConfig()
    latency_track: TrackConfig = TrackConfig()
    size_track: TrackConfig = TrackConfig()


@attrs.frozen
class S3Config:
    """Access to S3; options that are not set come from the URI or the environment.

    Attributes:
        endpoint: ``host:port`` or a URL, for a store other than Amazon's.
        access_key, secret_key, session_token: credentials; the first two must be set together.
        path_style: whether the bucket is in the path rather than in the host's name; true by
            default with an endpoint.
        ssl: whether to use HTTPS, the default unless the endpoint is an ``http://`` URL.
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
    """The storage of snapshots.

    Attributes:
        dir: path or URI of the directory that all workers reach.
        retained: the number of confirmed snapshots, counted from the newest, that can be restored.
        restore: a savepoint from which operators without state start. Each operator finds its state
            in the savepoint by uid.
        claim: whether a backend may delete the files of the snapshot that it was restored from,
            once no snapshot needs them. Spark queries refuse this option.
        ignore_unclaimed_state: whether a query may start if its checkpoint or the savepoint has
            state of operators that the query lacks. That state is discarded.
        s3: the access to S3, for directories and savepoints that begin with ``s3://`` or
            ``s3a://``.
        inline_threshold: the size up to which a subtask's snapshot is not written to a file, but
            stored in the pointer that Spark commits. At most 1 MiB.
        storage: ``files``, or ``pointer`` to store all snapshots in Spark's pointers.
        compression: the compression of rows in new snapshots: ``lz4``, ``zstd`` or ``none``.
            Snapshots of any compression can be read.
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
        dir: the directories for the copies on every worker; by default the directories that Spark,
            YARN or Kubernetes give to the executor.
        recovery: whether a task may continue with the copy that an earlier task has left. Otherwise
            each task of a backend with state on disk restores the snapshot.
    """

    dir: tuple[str, ...] = attrs.field(default=(), converter=names_in, validator=_absolute)
    recovery: bool = True


@attrs.frozen
class RestoreConfig:
    """Limits of the files of snapshots and savepoints.

    The limits protect readers from untrusted files. A file that a reader would refuse is not
    written either.

    Attributes:
        max_file_bytes: the maximum size of a file that is read as a whole: the table of a
            savepoint, or operator state.
        max_unpacked_bytes: the number of bytes by which an unpacked part of a file may exceed the
            part's stored size.
        max_states: the maximum number of states of an operator. A row of a snapshot stores the
            number of its state in 16 bits, which limits this option.
    """

    max_file_bytes: ByteSize = ByteSize(4 << 30)
    max_unpacked_bytes: ByteSize = ByteSize(32 << 20)
    max_states: int = attrs.field(
        default=1024, validator=[attrs.validators.ge(1), attrs.validators.le(1 << 16)]
    )


@attrs.frozen
class SerializationConfig:
    """The permission for pickled data in checkpoints. Reading pickled data can run any code."""

    allow_pickle: bool = False


@attrs.frozen
class BufferConfig:
    """Limits of a backend's buffer of changes. A full buffer is flushed within the micro-batch."""

    max_entries: int = attrs.field(default=200_000, validator=attrs.validators.ge(1))
    max_bytes: ByteSize = ByteSize(256 << 20)


@attrs.frozen
class PluginsConfig:
    """The installed plugins that may be used.

    Attributes:
        allow: the entry-point names that may be loaded; all if it is empty.
        block: the entry-point names that are not loaded.
        disable_all: whether to load no entry point at all. Backends named as ``module:attr`` still
            work.
    """

    allow: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    block: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    disable_all: bool = False


_PORT = attrs.validators.optional([attrs.validators.ge(1), attrs.validators.le(65535)])


@attrs.frozen
class MetricsConfig:
    """The reporters to which the metrics of each micro-batch are passed.

    Attributes:
        reporters: names of reporters: ``log``, ``opentelemetry``, or a plugin's.
        prometheus_port: the port at which Spark's driver serves the metrics of queries.
        prometheus_address: the address at which it does.
        native: whether to report also the metrics of the backend's native library.
    """

    reporters: tuple[str, ...] = attrs.field(default=(), converter=names_in)
    prometheus_port: int | None = attrs.field(default=None, validator=_PORT)
    prometheus_address: str = "127.0.0.1"
    native: bool = False
