"""Configuration: options, their sources (Spark, TOML, Python) and their checks."""

from millpond.config.config import Config
from millpond.config.options import (
    CheckpointConfig,
    PluginsConfig,
    RestoreConfig,
    S3Config,
    StateConfig,
    TrackConfig,
)
from millpond.config.structuring import ByteSize, structure_options

__all__ = [
    "ByteSize",
    "CheckpointConfig",
    "Config",
    "PluginsConfig",
    "RestoreConfig",
    "S3Config",
    "StateConfig",
    "TrackConfig",
    "structure_options",
]
