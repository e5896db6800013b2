"""Finding, checking and loading plugins."""

from millpond.plugins.discovery import ENTRY_POINT_GROUP, PluginRecord, Resolution, Status
from millpond.plugins.registry import PluginRegistry, get_registry

__all__ = [
    "ENTRY_POINT_GROUP",
    "PluginRecord",
    "PluginRegistry",
    "Resolution",
    "Status",
    "get_registry",
]
