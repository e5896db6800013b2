"""Configuration: options, their sources (Spark, TOML, Python) and their checks."""

from millpond.config.config import Config
from millpond.config.options import (
    BufferConfig,
    CheckpointConfig,
    LocalConfig,
    MetricsConfig,
    PluginsConfig,
    RestoreConfig,
    S3Config,
    SerializationConfig,
    SnapshotConfig,
    StateConfig,
    TrackConfig,
)
from millpond.config.structuring import ByteSize, byte_count, structure_options

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
