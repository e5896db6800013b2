"""Finding, checking and loading plugins."""

from millpond.plugins.registry import (
    ENTRY_POINT_GROUP,
    PluginRecord,
    PluginRegistry,
    Resolution,
    Status,
    get_registry,
)

__all__ = [
    "ENTRY_POINT_GROUP",
    "PluginRecord",
    "PluginRegistry",
    "Resolution",
    "Status",
    "get_registry",
]
