"""Finding, checking and loading plugins."""

from millpond.plugins.discovery import ENTRY_POINT_GROUP, PluginRecord, Status
from millpond.plugins.registry import PluginRegistry, get_registry
from millpond.plugins.resolution import Resolution

__all__ = [
    "ENTRY_POINT_GROUP",
    "PluginRecord",
    "PluginRegistry",
    "Resolution",
    "Status",
    "get_registry",
]
